"""The shipped bundles of vector tokens: they load, draw, and say what they are."""

import jax
import numpy as np
import pytest

from jaxspec.cli.shipped import named, shipped
from jaxspec.decode.class_methods import ClassMethod, class_decode, signal_of
from jaxspec.decode.state import Origin
from jaxspec.decode.token_methods import TokenSampling
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.kl_vae import to_uint8
from jaxspec.token_bundle import load_token_bundle
from jaxspec.verifiers.path_coupling import PathCoupling

LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("classes64", "classes64-causal")]


@pytest.mark.parametrize("name", [*LARGE, "digits32-causal"])
def test_bundles_load_and_say_what_they_are(name):
  bundle = load_token_bundle(shipped(name))
  assert bundle.target.config.num_classes == len(bundle.classes) and list(bundle.drafts) == ["small"]
  for part in (bundle.vae, bundle.target, *bundle.drafts.values()):
    assert part.meta["licence"].startswith("Apache-2.0") and part.meta["steps"] > 0
  assert TokenSampling(bundle.defaults["steps"], bundle.defaults["stop"]).stop == bundle.defaults["stop"]


def test_names_stand_for_shipped_folders(tmp_path, monkeypatch):
  from pathlib import Path

  monkeypatch.chdir(tmp_path)
  assert named(Path("classes64")) == shipped("classes64")
  assert named(Path("elsewhere")) == Path("elsewhere") and named(Path("a/classes64")) == Path("a/classes64")
  (tmp_path / "classes64").mkdir()
  assert named(Path("classes64")) == Path("classes64")


@pytest.mark.slow
def test_exact_speculation_of_digits_saves_calls():
  """Half of the calls at least, and digits that are dark with a light drawing."""
  bundle = load_token_bundle(shipped("digits32-causal"))
  sampling = TokenSampling(bundle.defaults["steps"], bundle.defaults["stop"])
  method = ClassMethod("cspd", sampling, gamma=4, rule=PathCoupling(), refine=True)
  params, decode = class_decode(bundle, method)
  keys = jax.random.key_data(jax.random.split(jax.random.key(0), 4))
  out = jax.device_get(jax.jit(decode)(params, keys, ClassLabels(np.arange(4, dtype=np.int32))))
  assert out.counters.target_calls.mean() < 32 and (out.origin == Origin.DRAFT).mean() > 0.4
  assert not out.report.fallback.any()
  pixels = np.asarray(to_uint8(bundle.pictures(bundle.vae.params, out.tokens, signal_of(method))))
  assert pixels.shape == (4, 32, 32, 3)
  assert pixels[:, :2].mean() < 30 and (pixels.max(axis=(1, 2, 3)) > 200).all()
