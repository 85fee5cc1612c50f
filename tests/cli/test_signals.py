"""Ctrl-C and SIGTERM at any moment: one line, the exit code of the signal, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest

import jaxspec
from jaxspec.core.command_line import exit_with

CODES = [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Terminated")]


@pytest.fixture(autouse=True)
def _heard():
  """A job in the background inherits that Ctrl-C is ignored."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number, code, word", CODES)
def test_a_signal_unwinds_what_runs(number, code, word, capsys):
  unwound = []

  @click.command()
  def command():
    try:
      signal.raise_signal(number)
    finally:
      unwound.append(True)

  before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
  with pytest.raises(SystemExit) as caught:
    exit_with(lambda: command.main([], standalone_mode=False))
  assert caught.value.code == code and unwound
  assert f"{word}: no file was left half-written" in capsys.readouterr().err
  assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("redirection, said", [(">&-", "Terminated"), (">&- 2>&-", "")])
def test_a_signal_without_streams(redirection, said):
  """The status is that of the signal also where stdout is closed."""
  program = (
    "from jaxspec.core.command_line import Interrupted, Terminated, exit_with\n"
    "def main():\n"
    "  print('unwritten')\n"
    "  raise Interrupted from Terminated()\n"
    "exit_with(main)\n"
  )
  command = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, program]
  env = os.environ | {"PYTHONPATH": str(Path(jaxspec.__file__).parents[1])}
  done = subprocess.run(command, env=env, capture_output=True, text=True)
  assert done.returncode == 143 and done.stderr.partition(":")[0] == said


def test_a_thread_has_no_signals():
  done = []
  thread = threading.Thread(target=lambda: done.append(pytest.raises(SystemExit, exit_with, lambda: 3).value.code))
  thread.start()
  thread.join()
  assert done == [3]


@pytest.mark.parametrize("number, code, word", CODES)
def test_an_import_that_loses_exceptions_is_left(number, code, word, tmp_path):
  """As one of native code may; and what surrounds it is unwound."""
  (tmp_path / "slow.py").write_text(
    "import time\nprint('importing', flush=True)\ntry: time.sleep(60)\nexcept BaseException: time.sleep(60)\n"
  )
  program = (
    "import signal\n"
    "from jaxspec.cli import guards\n"
    "from jaxspec.core.command_line import exit_with\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "def main():\n"
    "  open('kept', 'w').close()\n"
    "  try: guards.imported('slow')\n"
    "  finally: __import__('os').unlink('kept')\n"
    "exit_with(main)\n"
  )
  paths = os.pathsep.join((str(tmp_path), str(Path(jaxspec.__file__).parents[1])))
  kwargs = dict(cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, text=True)
  with subprocess.Popen(
    [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs
  ) as process:
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
  assert process.returncode == code and said == f"{word}: no file was left half-written\n"
  assert not (tmp_path / "kept").exists()
