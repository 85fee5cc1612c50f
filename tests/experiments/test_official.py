"""Official code beside ours: what is refused before anything runs, the watch over the machine, and the table."""

import importlib.machinery
import importlib.util
import sys
import types

import numpy as np
import pytest

from conversion import engine
from experiments import run
from experiments.bench.official import MODULES, Official, check_checkout, on_path
from experiments.engine import quiet
from experiments.engine.experiment import Lab
from experiments.engine.tables import render
from jaxspec.models.llamagen import LlamaGenConfig

STAT = "cpu  {user} 0 100 5000 70 10 20 0 0 0\ncpu0 1 2 3\n"


def checkout(path):
  for module in MODULES:
    file = path / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
  return path


def test_what_is_missing(tmp_path, capsys):
  arguments = ["bench:official", "--runs", str(tmp_path / "runs"), "--results", str(tmp_path)]
  assert run.main(arguments) == 2 and "FoundationVision/LlamaGen (--official PATH)" in capsys.readouterr().err
  assert run.main([*arguments, "--official", str(tmp_path)]) == 2
  assert "has no autoregressive.models.gpt" in capsys.readouterr().err
  assert check_checkout(checkout(tmp_path)) == tmp_path
  if importlib.util.find_spec("torch") is None:
    assert run.main([*arguments, "--official", str(tmp_path)]) == 2
    assert "Must have PyTorch" in capsys.readouterr().err
  assert not list(tmp_path.glob("*.json"))


GPT = """
class Model:
  def __init__(self, **fields):
    self.fields = fields
  def eval(self):
    return self
  def load_state_dict(self, state, strict):
    self.names = sorted(state)
    return [], [name for name in self.names if name == "unknown"]
GPT_models = {"GPT-B": lambda **fields: Model(**fields)}
"""
GENERATE = """
import numpy as np
class Tensor:
  def __init__(self, array):
    self.array = array
  def __getitem__(self, index):
    return Tensor(self.array[index])
  def numpy(self):
    return self.array
def generate(model, labels, num_tokens, *, cfg_scale, cfg_interval, temperature, top_k, top_p, sample_logits):
  assert list(labels) == [207] and "layers.0.attention.wqkv.weight" in model.names and cfg_scale == 4.0
  assert (top_k == 0) == (not sample_logits) and model.fields["block_size"] == num_tokens
  return Tensor(np.full((1, num_tokens), -1))
"""


@pytest.mark.slow
def test_programs_take_turns(tmp_path, monkeypatch):
  """The official code and PyTorch are stand-ins here: both sides get one file, and are compared."""
  torch = types.ModuleType("torch")
  torch.__spec__, torch.__version__ = importlib.machinery.ModuleSpec("torch", None), "0"
  torch.load = lambda path, weights_only: {"model": engine.unwrap(engine.read_source(path))}
  torch.tensor, torch.get_num_threads, torch.compile = np.asarray, lambda: 1, lambda model, fullgraph: model
  monkeypatch.setitem(sys.modules, "torch", torch)
  for module in ("autoregressive", "autoregressive.models", *MODULES):
    monkeypatch.delitem(sys.modules, module, raising=False)
  folder = checkout(tmp_path / "checkout")
  for module, text in zip(MODULES, (GPT, GENERATE)):
    (folder / f"{module.replace('.', '/')}.py").write_text(text)
  config = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=32, num_tokens=16, multiple_of=16)
  monkeypatch.setattr(LlamaGenConfig, "named", lambda size, **fields: config)
  monkeypatch.setattr(quiet, "check", lambda most: None)
  found = Official(title="T", tokens=16, repeats=2).measure(Lab(tmp_path / "runs", official=folder))
  assert [row["label"] for row in found["rows"]] == ["ours", "official, eager", "official, torch.compile"]
  assert [(row["equal"], row["first_difference"]) for row in found["rows"]] == [(16, None), (0, 0), (0, 0)]
  assert found["rows"][0]["ours_faster"]["median"] == 1 and 0 <= found["others"] <= 1
  assert not (tmp_path / "runs" / "official").exists() and str(folder) not in sys.path
  for module in ("autoregressive", "autoregressive.models", *MODULES):
    sys.modules.pop(module, None)


def test_modules_are_found_in_the_checkout_first(tmp_path):
  (tmp_path / "module_of_a_checkout.py").write_text("")
  with on_path(tmp_path):
    assert importlib.util.find_spec("module_of_a_checkout") is not None
  importlib.invalidate_caches()
  assert importlib.util.find_spec("module_of_a_checkout") is None


def test_what_others_use(monkeypatch):
  """Half of two cores for ten seconds, of which a second is our own."""
  monkeypatch.setattr(quiet.os, "cpu_count", lambda: 2)
  monkeypatch.setattr(quiet.os, "sysconf", lambda name: 100)
  texts, own, clock = iter([STAT.format(user=0), STAT.format(user=1000)]), iter([5.0, 6.0]), iter([50.0, 60.0])
  watch = quiet.Watch(lambda: next(texts), lambda: next(own), lambda: next(clock))
  assert watch.others() == pytest.approx(9 / 20)


def test_a_busy_machine_is_refused(monkeypatch):
  monkeypatch.setattr(quiet.Watch, "others", lambda self: 0.4)
  quiet.check(0.5, seconds=0)
  with pytest.raises(ValueError, match="others use at most 10%.*we instead got 40%"):
    quiet.check(0.1, seconds=0)


def test_the_table():
  ratio = {"median": 2.0, "low": 1.5, "high": 2.5}
  row = dict(tokens_per_s=10.0, ours_faster=ratio, first_call_s=3.0, equal=16, first_difference=None)
  document = dict(
    kind="official", title="T", command="c", notes=[], size="GPT-B", tokens=16, repeats=5, threads=2, others=0.02,
    rows=[row | {"label": "ours"}, row | {"label": "official, eager", "equal": 3, "first_difference": 3}],
  )  # fmt: skip
  text = render(document)
  assert "| ours | 10.0 |  |  | 3.0 |" in text
  assert "| official, eager | 10.0 | 2.00 [1.50, 2.50] | 3 of 16, first other one at 3 | 3.0 |" in text
  assert "Others used 2 % of the machine" in text
