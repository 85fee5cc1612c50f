"""`repr` of values with networks and arrays: one readable line."""

import numpy as np
import pytest

import jaxspec
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.rules.audited import TokenAudit
from tests.helpers import random_params

CONFIG = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=64, num_classes=3)
LARGE = np.zeros((30, 30))


@pytest.fixture(scope="module")
def network():
  fns = llamagen_fns(CONFIG)
  return jaxspec.Network(fns, random_params(fns, 0), CONFIG, {"figures": list(range(1000))}, "small")


def test_networks_and_decoders(network):
  decoder = jaxspec.Decoder(network, jaxspec.methods.Speculative(draft=network, gamma=2))
  assert (
    repr(decoder) == f"Decoder(target={network}, method=Speculative(gamma=2, round_times=None, bonus=True, verify='token'))"
  )
  assert len(repr(decoder.parts)) < 600 and len(repr(decoder.context)) < 200
  params = jaxspec.SpecParams((), jaxspec.ModelParams(network.params, jaxspec.sampling_params()))
  assert "{11 arrays, " in repr(params) and len(repr(params)) < 200, repr(params)


def test_results():
  audit = TokenAudit(*[LARGE] * len(TokenAudit._fields))
  assert repr(audit).startswith("TokenAudit(tested=float64[30, 30], ") and len(repr(audit)) < 300


@pytest.mark.slow
def test_families():
  pipe = jaxspec.load_pipeline("digits32-var", target_weights=False)
  assert repr(pipe.family) == f"<ScaleFamily: images of scales, {pipe.family.target.path}>"
  assert len(repr(pipe.family.tokenizer)) < 800
