"""The shipped bundles of continuous tokens load, draw images, and have descriptions."""

import jax
import pytest

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.methods import Cspd


@pytest.mark.parametrize("name", ["digits32-causal", "digits32-mar"])
def test_bundles_load_and_describe_themselves(name):
  pipe = jaxspec.load_pipeline(name)
  assert pipe.target.config.num_classes == len(pipe.family.classes) and list(pipe.drafts) == ["small"]
  for meta in (pipe.family.vae.meta, pipe.target.meta, pipe.drafts["small"].meta):
    assert meta["licence"].startswith("Apache-2.0") and meta["steps"] > 0
  assert pipe.sampling().stop is not None


@pytest.mark.slow
def test_exact_speculation_of_digits_saves_calls():
  """At least half of the target's calls are saved, and the digits are light on a dark background."""
  pipe = jaxspec.load_pipeline("digits32-causal")
  out = pipe(list(pipe.family.classes[:4]), key=jax.random.key(0), method=Cspd(exact=True, gamma=4))
  assert out.counters.target_calls.mean() < 32 and (out.result.origin == Origin.DRAFT).mean() > 0.4
  assert not out.result.metrics.fallback.any()
  assert out.images.shape == (4, 32, 32, 3)
  assert out.images[:, :2].mean() < 30 and (out.images.max(axis=(1, 2, 3)) > 200).all()
