"""The command group: help without imports, unknown commands, the console entry point."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from jaxspec.cli.main import COMMANDS, main
from tests.helpers import slow_but


def test_help(run):
  outcome = run("--help")
  assert outcome.exit_code == 0
  for name, command in COMMANDS.items():
    assert name in outcome.stdout and command.summary in outcome.stdout
  assert run().exit_code == 0 and run("--version").stdout.startswith("jaxspec ")


def test_help_imports_no_command():
  """Nor any of the libraries that take seconds."""
  code = (
    "import sys\n"
    "from jaxspec.cli.main import main\n"
    "try: main(['--help'])\n"
    "except SystemExit as end: assert end.code == 0\n"
    "loaded = [n for n in sys.modules if n.startswith(('jaxspec.cli.', 'conversion'))]\n"
    "assert set(loaded) - {'jaxspec.cli.main'} == {'jaxspec.cli.lazy', 'jaxspec.cli.guards'}, loaded\n"
    "slow = {'jax', 'flax', 'numpy', 'rich', 'importlib.metadata', 'jaxspec.core.types'} & sys.modules.keys()\n"
    "assert not slow, slow\n"
  )
  subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


BELOW = ("convert llamagen", "convert llamagen-vq", "convert mar", "convert mar-vae")


@pytest.mark.parametrize("command", [*COMMANDS, *BELOW])
def test_every_command_has_help(run, command):
  outcome = run(*command.split(), "--help")
  assert outcome.exit_code == 0 and "Usage" in outcome.stdout


def test_unknown_commands(fails):
  assert "generate, methods, info" in fails("xyzzy")
  assert fails("genrate").endswith("we instead got 'genrate': did you mean generate?")
  assert "did you mean scenes?" in fails("generate", "a cat", "--checkpoint", "scense")
  assert "wordnet come with the package" in fails("generate", "a cat", "--checkpoint", "xyzzy")
  assert "llamagen" in fails("convert", "dalle")
  assert "No such option" in fails("--unknown")
  assert "SRC" in fails("convert", "llamagen")


@pytest.mark.parametrize("module", slow_but(["jaxspec", "jaxspec.cli.main"], ["jaxspec"]))
def test_entry_point(module):
  outcome = subprocess.run([sys.executable, "-m", module, "info", "/nowhere"], capture_output=True, text=True, timeout=60)
  assert outcome.returncode == 2 and outcome.stderr == "Error: No checkpoint folder at /nowhere\n"


@pytest.mark.parametrize(
  ("words", "completed"),
  [("gen", ["generate"]), ("convert lla", ["llama", "llamagen", "llamagen-vq"]), ("generate --dtype b", ["bfloat16"])],
)
def test_shells_complete_commands_and_options(words, completed):
  line = f"jaxspec {words}"
  environment = {"_JAXSPEC_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
  outcome = CliRunner().invoke(main, env=environment, prog_name="jaxspec")
  assert sorted(outcome.stdout.split()) == [f"plain,{word}" for word in completed]


@pytest.mark.slow
def test_a_backend_that_cannot_start():
  """The error names the cause, and conversions and plans need no device."""
  kind = "cuda"
  env = os.environ | {"JAX_PLATFORMS": kind}
  run = lambda *args: subprocess.run(
    [sys.executable, "-m", "jaxspec.cli.main", *args], capture_output=True, text=True, timeout=60, env=env
  )
  outcome = run("generate", "a cat")
  assert outcome.returncode == 2 and outcome.stderr.startswith(f"Error: JAX cannot start the backend '{kind}' here")
  assert outcome.stderr.count("\n") == 1
  assert run("plan", "--model", "llamagen-b", "--device", "h100").returncode == 0
