"""``jaxspec generate --show``: where images stand in the terminal, and the command as a user sees it."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from rich.color import ColorSystem
from rich.console import Console

from jaxspec.cli import show
from jaxspec.cli.terminal import Screen
from jaxspec.render.image_sheet import Cell
from tests.cli.pseudo_terminal import run_in_terminal
from tests.cli.test_terminal_images import decode_kitty

BLOCKS = Screen("blocks", ColorSystem.TRUECOLOR, (10, 20))
REDS = [(200, 0, 0), (210, 0, 0), (220, 0, 0)]


def shown(screen, cells, width=80, **kwargs):
  console = Console(file=io.StringIO(), width=width, color_system="truecolor", _environ={})
  show.show_images(console, screen, cells, **kwargs)
  return console.file.getvalue()


def cells(panels=1, side=16):
  titles = ["fast", "plain"] if panels == 2 else []
  return [Cell([Image.new("RGB", (side, side), red)] * panels, titles, f"caption {i}") for i, red in enumerate(REDS)]


def plain(text):
  return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]


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
  lines = plain(shown(BLOCKS, cells()))
  assert lines[0] == "" and lines[1:9] == ["  ".join(["▀" * 16] * 3)] * 8
  assert [lines[9].index(f"caption {number}") for number in range(3)] == [3, 21, 39]
  assert len(lines) == 10


def test_narrow_windows_have_several_rows():
  lines = plain(shown(BLOCKS, cells(), width=20))
  assert [line.strip() for line in lines if "caption" in line] == ["caption 0", "caption 1", "caption 2"]
  assert max(map(len, lines)) <= 20


def test_methods_stand_side_by_side_with_their_names():
  lines = plain(shown(BLOCKS, cells(panels=2), width=40))
  assert lines[1].split() == ["fast", "plain"] and lines[2] == "▀" * 16 + "  " + "▀" * 16
  assert not any("caption" in line for line in plain(shown(BLOCKS, cells(), captions=False)))


def test_an_image_is_not_higher_than_the_window():
  console = Console(file=io.StringIO(), width=200, height=20, force_terminal=True, _environ={})
  show.show_images(console, BLOCKS, cells(side=128)[:1])
  assert sum("▀" in line for line in console.file.getvalue().splitlines()) == 16


def test_pixels_are_one_strip_and_the_cursor_ends_below():
  """The images lie over the characters that captions are aligned with; between them is nothing."""
  text = shown(Screen("kitty", ColorSystem.TRUECOLOR, (5, 10)), cells(), width=102)
  before, strip, after = re.fullmatch(r"(.*?)\x1b7(.*)\x1b8(.*)", text, re.S).groups()
  pixels, settings = decode_kitty(strip)
  assert (settings["c"], settings["r"]) == ("100", "16") and pixels.shape == (160, 500, 4)
  assert before == "\n" + "\n" * 16 + "\x1b[16A" and after.startswith("\x1b[16B\r")
  for number, red in enumerate(REDS):
    assert np.all(pixels[:, number * 170 : number * 170 + 160] == [*red, 255])
  assert not pixels[:, 160:170, 3].any() and not pixels[:, 330:340, 3].any()


@pytest.mark.parametrize("protocol, head", [("iterm2", "\x1b]1337;File="), ("sixel", "\x1bP0;1q"), ("kitty", "\x1b_Ga=T")])
def test_every_protocol_is_drawn(protocol, head):
  assert head in shown(Screen(protocol, ColorSystem.TRUECOLOR, (5, 10)), cells(panels=2))


def test_a_caption_is_not_obeyed():
  text = shown(BLOCKS, [Cell([Image.new("RGB", (4, 4))], [], "a\x1b]0;title\x07 heart")])
  assert "\x1b]" not in text and "\x07" not in text


def test_the_command_warns_where_it_cannot_show(run, bundle, monkeypatch):
  """In one line; the images are written, and the figures are there."""
  monkeypatch.delenv("JAXSPEC_SHOW", raising=False)
  outcome = run("generate", "apple", "--method", "ar", "--show", "--checkpoint", bundle)
  assert outcome.exit_code == 0 and "wrote images.png" in outcome.stdout and "▀" not in outcome.stdout
  assert outcome.stderr.startswith("Warning: The images are written, not shown: stdout is not a terminal")
  assert len(outcome.stderr.splitlines()) == 1


def test_the_command_shows_what_it_writes(run, bundle, monkeypatch):
  monkeypatch.setenv("JAXSPEC_SHOW", "blocks")
  monkeypatch.setenv("COLORTERM", "truecolor")
  outcome = run("generate", "apple", "--method", "ar", "--show", "--raw", "--checkpoint", bundle)
  assert outcome.exit_code == 0, outcome.output
  runs = re.findall(r"38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m(▀+)", outcome.stdout)
  numbers = np.array([list(map(int, colours)) for *colours, text in runs for _ in text]).reshape(8, 16, 2, 3)
  with Image.open("images.png") as image:
    np.testing.assert_array_equal(numbers.transpose(0, 2, 1, 3).reshape(16, 16, 3), np.asarray(image))
  assert outcome.stderr == ""


def test_texts_are_not_shown(fails):
  assert "--show is about images, we instead got texts" in fails("generate", "--text", "river", "--show")


def test_a_protocol_that_is_not_there(fails, bundle, monkeypatch):
  monkeypatch.setenv("JAXSPEC_SHOW", "ascii")
  assert "Must have JAXSPEC_SHOW" in fails("generate", "apple", "--show", "--checkpoint", bundle)


@pytest.mark.slow
def test_a_batch_in_a_terminal(bundle, tmp_path):
  """Three images, as a terminal gets them that says that it knows kitty's protocol."""
  code = "from jaxspec.cli.main import main; main()"
  args = ["-c", code, "generate", "red apple", "cat", "blue cat", "--method", "ar", "--show", "--checkpoint", str(bundle)]
  answers = b"\x1b_Gi=31;OK\x1b\\\x1b[6;20;10t\x1b[?62;22c"
  env = {"JAX_PLATFORMS": "cpu", "JAXSPEC_CACHE_DIR": str(tmp_path)}
  printed, code = run_in_terminal(args, columns=110, lines=40, answers=answers, env=env, cwd=tmp_path)
  assert code == 0, printed
  strip = re.search(r"\x1b7(.*)\x1b8", printed, re.S)[1]
  pixels, settings = decode_kitty(strip)
  assert (settings["c"], settings["r"]) == ("100", "16") and pixels.shape == (320, 1000, 4)
  caption = next(line for line in printed.splitlines() if "red apple" in line and "blue cat" in line)
  assert caption.index("red apple") < 32 < 68 <= caption.index("blue cat")
  assert "images.png" in printed and printed.index("\x1b7") < printed.index("tokens per second")
