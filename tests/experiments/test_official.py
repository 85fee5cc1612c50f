"""Official code beside ours: early errors, the monitor of the machine, and the table."""

import importlib.machinery
import importlib.util
import sys
import types

import numpy as np
import pytest

from conversion import engine
from experiments import run
from experiments.bench.beside import check_checkout, differences, official_part, on_path
from experiments.bench.official import Official
from experiments.bench.official_mar import OfficialMAR, normals_of, tensors_stay
from experiments.engine import quiet
from experiments.engine.experiment import Lab
from experiments.engine.tables import render
from jaxspec.diffusion.chain import TokenNoise
from jaxspec.models.llamagen import LlamaGenConfig
from tests.exit_status import status_of

MODULES = Official.modules
STAT = "cpu  {user} 0 100 5000 70 10 20 0 0 0\ncpu0 1 2 3\n"


def checkout(path, modules=MODULES):
  for module in modules:
    file = path / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
  return path


@pytest.mark.parametrize("name, experiment", [("official", Official), ("official_mar", OfficialMAR)])
def test_what_is_missing(tmp_path, capsys, monkeypatch, name, experiment):
  arguments = [f"bench:{name}", "--runs", str(tmp_path / "runs"), "--results", str(tmp_path)]
  assert status_of(run.main, *arguments) == 2 and f"{experiment.repository} (--official PATH)" in capsys.readouterr().err
  assert status_of(run.main, *arguments, "--official", tmp_path) == 2
  assert f"has no {experiment.modules[0]}" in capsys.readouterr().err
  made = checkout(tmp_path, experiment.modules)
  assert check_checkout(made, experiment.repository, experiment.modules) == tmp_path
  monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
  assert status_of(run.main, *arguments, "--official", tmp_path) == 2
  assert "Must have torch to run the official code" in capsys.readouterr().err
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


def test_noise_of_mar_comes_in_the_order_of_the_official_sampler(monkeypatch):
  """Four tokens in two iterations with guidance; the network is a stand-in that sums its inputs."""
  torch = types.ModuleType("torch")
  torch.tensor = lambda array: Tensor(array)
  torch.randn = torch.randn_like = None
  monkeypatch.setitem(sys.modules, "torch", torch)
  order, numbers = np.array([2, 0, 3, 1]), np.random.default_rng(0)
  noise = TokenNoise(numbers.normal(size=(1, 4, 5)), numbers.normal(size=(1, 4, 3, 5)))
  counts, known, asked = [2, 2], 0, []
  with normals_of(OfficialMAR(title="T", iterations=2, steps=3).tape(order, noise)):
    for count in counts:
      positions = np.sort(order[known : known + count])
      known += count
      np.testing.assert_array_equal(torch.randn(count, 5), noise.initial[0, positions])
      for step in (2, 1, 0):
        asked.append(torch.randn_like(np.zeros((2 * count, 5))))
        np.testing.assert_array_equal(asked[-1], np.tile(noise.steps[0, positions, step], (2, 1)))
    with pytest.raises(StopIteration):
      torch.randn(1, 5)
  assert len(asked) == 6 and torch.randn is None


class Tensor(np.ndarray):
  """Interface of PyTorch's tensors for the tape."""

  def __new__(cls, array):
    return np.asarray(array).view(cls)

  def repeat(self, *times):
    return np.tile(np.asarray(self), times)


@pytest.mark.parametrize("has_device", [True, False])
def test_tensors_stay_where_there_is_no_device(monkeypatch, has_device):
  torch = types.ModuleType("torch")
  torch.cuda = types.SimpleNamespace(is_available=lambda: has_device)
  torch.Tensor = type("Tensor", (), {"cuda": lambda self: "there"})
  monkeypatch.setitem(sys.modules, "torch", torch)
  with tensors_stay():
    tensor = torch.Tensor()
    assert tensor.cuda() == "there" if has_device else tensor.cuda() is tensor
  assert torch.Tensor().cuda() == "there"


def test_differences_are_over_the_deviation():
  ours = np.array([[1.0, -1.0], [1.0, -1.0]], np.float32)
  np.testing.assert_allclose(differences(ours, ours + np.array([[0.0, 0.5], [0.0, 0.0]])), [0.5, 0.0])
  np.testing.assert_array_equal(differences(np.array([3, 3]), np.array([3, 4])), [0.0, 1.0])  # ids of no deviation
  with pytest.raises(ValueError):
    differences(np.zeros(3), np.zeros(4))


def test_modules_are_found_in_the_checkout_first(tmp_path):
  (tmp_path / "module_of_a_checkout.py").write_text("")
  with on_path(tmp_path):
    assert importlib.util.find_spec("module_of_a_checkout") is not None
  importlib.invalidate_caches()
  assert importlib.util.find_spec("module_of_a_checkout") is None


@pytest.mark.parametrize("text, found", [("", "has no attribute 'make'"), ("import nowhere_to_be_found", "No module named")])
def test_a_checkout_that_lacks_something_is_one_line(tmp_path, text, found):
  (tmp_path / "module_of_a_broken_checkout.py").write_text(text)
  sys.modules.pop("module_of_a_broken_checkout", None)
  with on_path(tmp_path), pytest.raises(ValueError, match=f"has make in module_of_a_broken_checkout.*{found}"):
    official_part("module_of_a_broken_checkout", "make")
  sys.modules.pop("module_of_a_broken_checkout", None)


def test_what_others_use(monkeypatch):
  """Half of two cores for ten seconds, including one second of our own."""
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


def test_the_table_of_mar():
  ratio = {"median": 2.0, "low": 1.5, "high": 2.5}
  row = dict(tokens_per_s=10.0, ours_faster=ratio, first_call_s=3.0, equal=16, difference=2e-6, first_difference=None)
  document = dict(
    kind="official MAR", title="T", command="c", notes=[], size="MAR-B", tokens=16, iterations=4, steps=10, scale=2.9,
    tolerance=1e-3, repeats=3, threads=2, others=0.0,
    rows=[row | {"label": "ours"}, row | {"label": "official, eager", "equal": 15, "difference": 0.5}],
  )  # fmt: skip
  text = render(document)
  assert "| ours | 10.0 |  |  | 3.0 |" in text
  assert "| official, eager | 10.0 | 2.00 [1.50, 2.50] | 15 of 16, largest difference 5.0e-01 | 3.0 |" in text
  assert "4 iterations for 16 tokens, 10 steps of diffusion" in text and "within 0.001 of the deviation" in text
