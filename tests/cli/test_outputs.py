"""Files that commands write: whole or not at all, to links, pipes, devices and stdout too."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jaxspec.cli import generate, generate_files, outputs
from jaxspec.core.command_line import UserError
from jaxspec.io import whole_files
from jaxspec.render.working import Working


def test_failed_write_leaves_nothing(tmp_path):
  (tmp_path / "old.png").write_text("old")

  def write(path):
    path.write_text("half")
    raise OSError(28, "No space left on device")

  with pytest.raises(ValueError, match="No space left"):
    whole_files.write_whole(tmp_path / "old.png", write)
  assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("old.png", "old")]


def test_links_are_followed_and_modes_kept(tmp_path):
  real, link = tmp_path / "real.json", tmp_path / "link.json"
  real.write_text("{}")
  real.chmod(0o600)
  link.symlink_to(real)
  outputs.check_writable(link, suffix=".json")
  whole_files.write_whole(link, lambda work: work.write_text("new"))
  assert link.is_symlink() and real.read_text() == "new" and real.stat().st_mode & 0o777 == 0o600
  (tmp_path / "lost.json").symlink_to(tmp_path / "nowhere" / "x.json")
  with pytest.raises(UserError, match="there is no folder .*nowhere"):
    outputs.check_writable(tmp_path / "lost.json", suffix=".json")


def test_links_in_a_circle(fails, bundle):
  Path("a.json").symlink_to("b.json")
  Path("b.json").symlink_to("a.json")
  assert "links lead in a circle" in fails("generate", "apple", "--checkpoint", bundle, "--json", "a.json")
  assert Path("a.json").is_symlink()


def test_every_name_of_stdout(fails, bundle, monkeypatch):
  for name in ("-", "/dev/stdout", "/dev/fd/1"):
    assert outputs.report_console(None, Path(name)).stderr
    files = ("--json", name, "--save-acceptance", "-")
    assert "different files" in fails("generate", "apple", "--checkpoint", bundle, *files)
  monkeypatch.setattr(sys, "stdout", None)
  with pytest.raises(UserError, match="stdout is closed"):
    outputs.check_writable(Path("-"), suffix=".json")


def test_a_stdout_of_few_characters():
  """A report loses no work, whatever the encoding."""
  code = "from jaxspec.core.command_line import exit_with; exit_with(lambda: print('\u00e9 \U0001f642'))"
  for encoding in ("ascii", "latin-1", "utf-8"):
    env = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
    wanted = "\u00e9 \U0001f642\n".encode(encoding, "backslashreplace")
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, b"")


def test_a_terminal_without_a_width():
  code = "from jaxspec.core.command_line import exit_with; from rich.console import Console; "
  code += "exit_with(lambda: Console().print('a report'))"
  done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"COLUMNS": "0"}, capture_output=True, text=True)
  assert (done.returncode, done.stdout, done.stderr) == (0, "a report\n", "")


def test_texts_go_to_pipes_and_devices(tmp_path):
  """A pipe without a reader stops nothing before the work is done."""
  pipe = tmp_path / "pipe.json"
  os.mkfifo(pipe)
  for path in (pipe, Path("/dev/null"), Path("-")):
    outputs.check_writable(path, suffix=".json")
  with pytest.raises(UserError, match="a file name that ends in .png"):
    outputs.check_writable(Path("-"), suffix=".png")
  found = []
  reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
  reader.start()
  whole_files.write_whole(pipe, lambda work: work.write_text("whole"))
  reader.join()
  assert found == ["whole"] and stat.S_ISFIFO(pipe.stat().st_mode)
  whole_files.write_whole(Path("/dev/null"), lambda work: work.write_text("whole"))


@pytest.mark.slow
def test_progress_names_the_file_that_is_written(run, bundle, monkeypatch):
  """A pipe without a reader waits in this stage."""
  stages, written = [], []
  monkeypatch.setattr(Working, "__call__", lambda self, text: stages.append(text))

  def write(path, save):
    written.append((str(path), stages[-1]))
    whole_files.write_whole(path, save)

  for module in (generate, generate_files):
    monkeypatch.setattr(module, "write_whole", write)
  files = ("--json", "x.json", "--save-acceptance", "y.json")
  outcome = run("generate", "apple", "--checkpoint", bundle, "--method", "sjd", *files, "--no-cache")
  assert outcome.exit_code == 0, outcome.output
  assert written == [("y.json", "Writing y.json"), ("x.json", "Writing x.json")]


@pytest.mark.parametrize("suffix", [".png", ".npz"])
def test_pipes_of_other_files(tmp_path, suffix):
  """A check that opens a pipe waits for a reader, and ends the reader before the work is done."""
  pipe = tmp_path / f"pipe{suffix}"
  os.mkfifo(pipe)
  checked = threading.Thread(target=outputs.check_writable, args=(pipe,), kwargs={"suffix": suffix}, daemon=True)
  checked.start()
  checked.join(10)
  assert not checked.is_alive()
  os.rename(pipe, tmp_path / "pipe")
  with pytest.raises(UserError, match=f"a file name that ends in {suffix}"):
    outputs.check_writable(tmp_path / "pipe", suffix=suffix)


def test_json_on_stdout(run, bundle):
  outcome = run("generate", "apple", "--checkpoint", bundle, "--method", "ar", "--json", "-", "--no-cache")
  assert outcome.exit_code == 0, outcome.output
  assert json.loads(outcome.stdout)["settings"]["method"] == "ar" and "plain decoding" in outcome.stderr


def test_names_as_long_as_names_can_be(tmp_path):
  path = tmp_path / ("n" * 251 + ".png")
  outputs.check_writable(path, suffix=".png")
  whole_files.write_whole(path, lambda work: work.write_text("whole"))
  assert path.read_text() == "whole" and len(list(tmp_path.iterdir())) == 1
