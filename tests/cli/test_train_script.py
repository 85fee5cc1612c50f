"""`jaxspec train script`: config files by path, overrides, and errors."""

import json

import pytest

CONFIG = """
import dataclasses, json

@dataclasses.dataclass(frozen=True)
class Inner:
  rate: float = 0.5

@dataclasses.dataclass(frozen=True)
class Run:
  steps: int = 3
  name: str = ""
  inner: Inner = Inner()

def get_config(arg=""):
  if arg == "bad":
    raise ValueError("Must have another argument")
  if arg == "unknown":
    raise KeyError(arg)
  return Run(name=arg)

def train(config, run_dir, resume):
  if config.name == "diverges":
    from jaxspec.training.train_loop import TrainingDiverged
    raise TrainingDiverged("Must have a finite loss, we instead got nan at step 7")
  text = json.dumps([dataclasses.asdict(config), resume])
  (run_dir / "done.json").write_text(text)
"""


@pytest.fixture
def config(tmp_path):
  (tmp_path / "tiny_config.py").write_text(CONFIG)
  return "tiny_config.py"


def test_train(run, config, tmp_path):
  outcome = run("train", "script", f"{config}:small", "--set", "steps=5", "--set", "inner.rate=1", "--no-resume")
  assert outcome.exit_code == 0, outcome.output
  done, resume = json.loads((tmp_path / "runs" / "tiny_config" / "done.json").read_text())
  assert done == {"steps": 5, "name": "small", "inner": {"rate": 1.0}} and resume is False
  assert "steps  5" in outcome.stdout


def test_dry_run(run, config, tmp_path):
  assert run("train", "script", config, "--dry-run").exit_code == 0
  assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["none.py"], "No config file at none.py"),
    (["tiny_config.py:bad"], "another argument"),
    (["tiny_config.py:unknown"], "Cannot get a config for 'unknown'"),
    (["tiny_config.py:diverges"], "at step 7: try a lower learning rate"),
    (["tiny_config.py", "--set", "step=3"], "steps, name, inner"),
    (["tiny_config.py", "--set", "steps"], "name=value"),
    (["tiny_config.py", "--set", "steps=many"], "type int"),
    (["tiny_config.py", "--run-dir", "/proc/run"], "Cannot write to /proc/run"),
    (["notes.txt"], "Python file"),
    (["broken.py"], "Cannot import"),
    (["lacking.py"], "we instead got no train"),
    ([], "Missing argument 'FILE[:ARG]'"),
  ],
)
def test_errors(fails, config, tmp_path, options, words):
  (tmp_path / "notes.txt").write_text("hello")
  (tmp_path / "broken.py").write_text("import nothing_of_the_kind")
  (tmp_path / "lacking.py").write_text("def get_config(arg): pass")
  assert words in fails("train", "script", *options)
  assert not list(tmp_path.glob("runs/*"))
