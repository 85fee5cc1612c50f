"""Examples in the documentation and in docstrings run, and the public names are documented ones."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.models.llamagen import llamagen_fns
from tests.cli import fake_language
from tests.helpers import TARGET, labels, random_params, side, tiny_pair

ROOT = Path(__file__).parents[1]


def test_examples_of_the_page_on_adding_plug_ins():
  blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding.md").read_text(), re.S)
  assert len(blocks) == 2
  fns = llamagen_fns(TARGET)
  params = jaxspec.SpecParams((), side(random_params(fns, 0)))
  scope = {"jaxspec": jaxspec, "target_fns": fns}
  for block in blocks:
    exec(block, scope)
  drafter = scope["repeat_last"](3, TARGET.vocab_size)
  out = jaxspec.speculate(
    params, jax.random.key(0), labels(2), drafter=drafter, verifier=scope["verifier"], max_len=9
  )
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  np.testing.assert_array_equal(out.tokens[:, :4], out.tokens[:, :1] + np.zeros((1, 4), int))


@pytest.mark.slow
def test_examples_of_the_page_on_rules():
  blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "rules.md").read_text(), re.S)
  assert len(blocks) == 4
  params, drafter, _ = tiny_pair(window=3)
  p, q = jax.nn.softmax(jax.random.normal(jax.random.key(0), (2, TARGET.vocab_size)))
  codebook = jax.random.normal(jax.random.key(1), (TARGET.vocab_size, 4))
  scope = dict(params=params, drafter=drafter, warp=jaxspec.Warp(), target_fns=llamagen_fns(TARGET))
  scope |= dict(prompt=labels(2), codebook=codebook, p=p, q=q)
  for block in blocks:
    exec(block, scope)
  assert scope["out"].tokens.shape == scope["out"].metrics.tv.shape == (2, 16)
  assert float(scope["out"].metrics.tv.max()) > 0
  assert int(scope["out"].counters.drafted.sum()) > 0
  place = scope["place"]
  np.testing.assert_allclose(place.tv, place.excess, atol=1e-6)
  np.testing.assert_allclose(scope["own"].tv, scope["own"].excess, atol=1e-6)


@pytest.mark.slow
def test_examples_of_the_page_on_links():
  blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "sqs.md").read_text(), re.S)
  assert len(blocks) == 2
  fns = llamagen_fns(TARGET)
  scope = dict(vocab=TARGET.vocab_size, draft_fns=fns, target_fns=fns, key=jax.random.key(0), prompt=labels(2))
  scope |= dict(draft_params=random_params(fns, 1), target_params=random_params(fns, 0))
  for block in blocks:
    exec(block, scope)
  np.testing.assert_array_equal(scope["out"].tokens, scope["far"].tokens)
  assert scope["traffic"].coded_bits.all()


@pytest.mark.slow
def test_example_of_the_page_on_gated_devices():
  (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ciar.md").read_text(), re.S)
  fns = llamagen_fns(TARGET)
  scope = dict(cloud_config=TARGET, cloud_fns=fns, cloud_params=random_params(fns, 0), key=jax.random.key(0))
  scope["prompt"] = labels(2)
  exec(block, scope)
  counters = scope["out"].counters
  total = counters.settled + counters.accepted + counters.target_calls
  np.testing.assert_array_equal(total, 16)  # every call that verifies, and the prefill, gives one token of its own


@pytest.mark.slow
def test_example_of_the_page_on_language_models(tmp_path):
  (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "text.md").read_text(), re.S)
  fake_language.make(tmp_path)
  scope = {"target_folder": tmp_path / "target", "draft_folder": tmp_path / "draft"}
  exec(block, scope)
  assert scope["out"].tokens.shape == (2, 8) and all(isinstance(text, str) for text in scope["texts"])


@pytest.mark.slow
def test_example_of_the_page_on_vector_tokens():
  from types import SimpleNamespace

  from jaxspec.models.causal_tokens import CausalTokensConfig, causal_token_fns

  block = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "mar.md").read_text(), re.S)[-1]
  config = CausalTokensConfig(
    num_tokens=16, latent_channels=2, num_classes=9, dim=8, num_layers=1, num_heads=2, diffloss_width=8, diffloss_depth=1
  )
  fns = causal_token_fns(config)
  side_of = lambda seed: SimpleNamespace(fns=fns, params=random_params(fns.network, seed, scale=0.2))
  scope = {"target": side_of(0), "draft": side_of(1)}
  exec(block, scope)
  assert scope["out"].tokens.shape == (2, 16, 2) and np.all(np.isfinite(scope["out"].tokens))


def _modules():
  package = importlib.import_module("jaxspec")
  for info in pkgutil.walk_packages(package.__path__, "jaxspec."):
    if ">>>" in (ROOT / (info.name.replace(".", "/") + ".py")).read_text() if not info.ispkg else False:
      yield info.name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_modules()))
def test_docstring_examples(name):
  with jax.numpy_rank_promotion("raise"):
    outcome = doctest.testmod(importlib.import_module(name))
  assert outcome.attempted > 0 and outcome.failed == 0


def test_public_names_exist_and_have_docstrings():
  for name in jaxspec.__all__:
    value = getattr(jaxspec, name)
    assert name == "__version__" or value.__doc__, name


def test_imports_point_one_way():
  """types, rng <- diffusion <- models, codecs, data <- drafters, verifiers <- decode <- link <- cli; no experiments."""
  layers = {
    "diffusion": 0, "intervals": 1, "models": 1, "codecs": 1, "data": 1, "verifiers": 2, "drafters": 2, "decode": 3,
    "link": 4, "cli": 5,
  }
  allowed_late = {"bundle", "checkpoints"}
  for path in (ROOT / "jaxspec").rglob("*.py"):
    text = path.read_text()
    assert "experiments" not in re.findall(r"^\s*(?:from|import) (\w+)", text, re.M), path
    assert "flax.nnx" not in text, path
    here = layers.get(path.relative_to(ROOT / "jaxspec").parts[0])
    if here is None:
      continue
    for target in re.findall(r"^(?:from|import) jaxspec\.(\w+)", text, re.M):
      if target in layers and target not in allowed_late:
        assert layers[target] <= here, f"{path} imports {target}"
