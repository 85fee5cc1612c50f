"""``jaxspec generate --show``: positions of images in the terminal, and the command's output."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from rich.color import Color, ColorSystem
from rich.console import Console

from jaxspec.cli import show
from jaxspec.render.image_sheet import Cell
from tests.cli.pseudo_terminal import run_in_terminal

REDS = [(200, 0, 0), (210, 0, 0), (220, 0, 0)]


def shown(cells, width=80, **kwargs):
  console = Console(file=io.StringIO(), width=width, color_system="truecolor", _environ={})
  show.show_images(console, cells, **kwargs)
  return console.file.getvalue()


def cells(panels=1, side=16):
  titles = ["fast", "plain"] if panels == 2 else []
  return [Cell([Image.new("RGB", (side, side), red)] * panels, titles, f"caption {i}") for i, red in enumerate(REDS)]


def plain(text):
  return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]


def pixels_of(text, width):
  """Pixels ``[H, W, 3]`` of half blocks in 24 bits."""
  runs = re.findall(r"38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m(▀+)", text)
  numbers = np.array([list(map(int, colours)) for *colours, text in runs for _ in text]).reshape(-1, width, 2, 3)
  return numbers.transpose(0, 2, 1, 3).reshape(-1, width, 3)


@pytest.mark.parametrize("width", [10, 40, 80, 200])
@pytest.mark.parametrize("panels", [1, 2])
@pytest.mark.parametrize("num", [1, 3, 16])
def test_a_grid_fits(width, panels, num):
  columns, panel = show.grid(width, num, panels, most=40)
  assert 1 <= columns <= num and 1 <= panel <= 40
  assert columns * panels * (panel + 2) - 2 <= width
  assert panel >= 32 or columns == 1  # narrow only where one cell is too wide


def test_half_blocks_stand_side_by_side():
  """Small images keep their size; captions are in the middle below."""
  lines = plain(shown(cells()))
  assert lines[0] == "" and lines[1:9] == ["  ".join(["▀" * 16] * 3)] * 8
  assert [lines[9].index(f"caption {number}") for number in range(3)] == [3, 21, 39]
  assert len(lines) == 10


def test_narrow_windows_have_several_rows():
  lines = plain(shown(cells(), width=20))
  assert [line.strip() for line in lines if "caption" in line] == ["caption 0", "caption 1", "caption 2"]
  assert max(map(len, lines)) <= 20


def test_methods_stand_side_by_side_with_their_names():
  lines = plain(shown(cells(panels=2), width=40))
  assert lines[1].split() == ["fast", "plain"] and lines[2] == "▀" * 16 + "  " + "▀" * 16
  assert not any("caption" in line for line in plain(shown(cells(), captions=False)))


def test_an_image_is_not_higher_than_the_window():
  console = Console(file=io.StringIO(), width=200, height=20, force_terminal=True, _environ={})
  show.show_images(console, cells(side=128)[:1])
  assert sum("▀" in line for line in console.file.getvalue().splitlines()) == 16


def test_half_blocks_have_the_colours_of_the_pixels():
  """An upper and a lower one in each character; equal neighbours share their codes."""
  pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
  pixels[:2, :3] = (1, 2, 3)
  text = shown([Cell([Image.fromarray(pixels)], [], "")])
  assert "\x1b[38;2;1;2;3;48;2;1;2;3m▀▀▀\x1b[0m" in text
  np.testing.assert_array_equal(pixels_of(text, 5), pixels)


def test_a_terminal_of_256_colours():
  console = Console(file=io.StringIO(), width=40, color_system="256", force_terminal=True, _environ={})
  show.show_images(console, cells()[:1])
  nearest = Color.from_rgb(*REDS[0]).downgrade(ColorSystem.EIGHT_BIT).number
  assert console.file.getvalue().count(f"\x1b[38;5;{nearest};48;5;{nearest}m" + "▀" * 16) == 8


def test_a_caption_is_not_obeyed():
  text = shown([Cell([Image.new("RGB", (4, 4))], [], "a\x1b]0;title\x07 heart")])
  assert "\x1b]" not in text and "\x07" not in text


@pytest.mark.parametrize(
  "env, reason",
  [
    ({"TERM": "xterm-256color"}, "stdout is not a terminal; FORCE_COLOR=1"),
    ({"TERM": "xterm-256color", "FORCE_COLOR": "1"}, None),
    ({"TERM": "dumb", "FORCE_COLOR": "1"}, "no colours"),
    ({"TERM": "xterm-256color", "FORCE_COLOR": "1", "NO_COLOR": "1"}, "no colours"),
  ],
)
def test_where_images_are_shown(env, reason):
  found = show.why_not(Console(file=io.StringIO(), _environ=env))
  assert found is None if reason is None else reason in found


def test_the_command_warns_where_it_cannot_show(run, bundle, monkeypatch):
  """In one line; images are written, and figures printed."""
  monkeypatch.delenv("FORCE_COLOR", raising=False)
  outcome = run("generate", "apple", "--method", "ar", "--show", "--checkpoint", bundle)
  assert outcome.exit_code == 0 and "wrote images.png" in outcome.stdout and "▀" not in outcome.stdout
  assert outcome.stderr.startswith("Warning: The images are written, not shown: stdout is not a terminal")
  assert len(outcome.stderr.splitlines()) == 1


def test_the_command_shows_what_it_writes(run, bundle, monkeypatch):
  for name, value in {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}.items():
    monkeypatch.setenv(name, value)
  monkeypatch.delenv("NO_COLOR", raising=False)
  outcome = run("generate", "apple", "--method", "ar", "--show", "--raw", "--checkpoint", bundle)
  assert outcome.exit_code == 0, outcome.output
  with Image.open("images.png") as image:
    np.testing.assert_array_equal(pixels_of(outcome.stdout, 16), np.asarray(image))
  assert "Warning" not in outcome.stderr


def test_texts_are_not_shown(fails):
  assert "--show is about images, we instead got texts" in fails("generate", "--text", "river", "--show")


@pytest.mark.slow
def test_a_batch_in_a_terminal(bundle, tmp_path):
  """Three images side by side before the figures."""
  code = "from jaxspec.cli.main import main; main()"
  args = ["-c", code, "generate", "red apple", "cat", "blue cat", "--method", "ar", "--show", "--checkpoint", str(bundle)]
  env = {"JAX_PLATFORMS": "cpu", "JAXSPEC_CACHE_DIR": str(tmp_path)}
  printed, code = run_in_terminal(args, columns=110, lines=40, env=env, cwd=tmp_path)
  assert code == 0, printed
  lines = plain(printed)
  assert sum(line.count("▀") == 48 for line in lines) == 8
  caption = next(line for line in lines if "red apple" in line and "blue cat" in line)
  assert caption.index("red apple") < 16 < 34 <= caption.index("blue cat")
  assert printed.index("▀") < printed.index("tokens per second")
