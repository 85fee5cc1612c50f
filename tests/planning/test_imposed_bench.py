"""Decodes with random weights and imposed acceptance; no timing is asserted."""

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.planning import MODELS, make_plan
from jaxspec.planning.imposed_bench import ImposedBench, break_even
from jaxspec.planning.published_models import Model
from jaxspec.planning.random_weights import RandomModel, filled
from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.planning.this_machine import NAME, this_machine
from jaxspec.sampling import SamplingConfig

TINY = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=16, num_tokens=64, num_classes=4, multiple_of=16)
MODEL = Model("tiny", "llamagen", TINY, 64)
SAMPLING = SamplingConfig(cfg_scale=2.0)


def test_weights():
  shapes = {"table": jax.ShapeDtypeStruct((64, 64), np.float32), "norm": jax.ShapeDtypeStruct((3,), np.float32)}
  shapes |= {"ids": jax.ShapeDtypeStruct((2, 3), np.int32), "mask": jax.ShapeDtypeStruct((2,), np.bool_)}
  found = filled(shapes, 0)
  assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), found) == jax.tree.map(
    lambda leaf: (leaf.shape, leaf.dtype), shapes
  )
  assert abs(float(np.std(found["table"])) - 0.02) < 1e-3 and (found["norm"] == 1).all()
  assert (found["ids"] == 0).all() and found["mask"].all()


def test_break_even():
  """A round that costs as many steps as it commits tokens."""
  assert break_even(0.9, 3) == 0 and break_even(4.5, 3) is None
  assert break_even(1 + 0.5 + 0.25 + 0.125, 3) == pytest.approx(0.5)
  assert break_even(1 + 0.5 + 0.25, 3, bonus=False) == pytest.approx(0.5) and break_even(3.5, 3, bonus=False) is None
  assert break_even(1.0, 1, bonus=False) == 0 and break_even(1.1, 1, bonus=False) is None


def test_what_cannot_be_measured():
  with pytest.raises(ValueError, match="a model of token ids to impose acceptance, we instead got mar-b"):
    RandomModel(MODELS["mar-b"], "float32")
  with pytest.raises(ValueError, match="a method that draws discrete tokens for tiny, we instead got cspd"):
    RandomModel(MODEL, "float32").decoder(methods.Cspd(gamma=2), SAMPLING)


@pytest.mark.slow
def test_this_machine():
  device = this_machine("float32")
  assert device.name == NAME and device.count == 1 and this_machine("float32") is device
  assert 1e8 < device.device.bandwidth < 1e14 and 1e8 < device.device.peak("float32") < 1e16
  assert make_plan(MODEL, device, dtype="float32").batches[0].fits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["speculative", "eagle"])
def test_acceptance_is_honoured(name):
  """Counts agree with the imposed acceptance within the noise of 10,000 draws, not with the networks' probabilities."""
  random = RandomModel(MODEL, "float32")
  is_chain = name == "speculative"
  bench = ImposedBench(random, 64 if is_chain else 8, SAMPLING, 3, this_machine("float32"))
  plain = bench.plain()
  assert plain["seconds"]["low"] > 0 and plain["share_of_floor"] > 0
  assert plain["read_bytes"] > 2 * random.model.sized("float32").num_parameters and plain["operations"] > 0
  method = methods.make_method(name, gamma=3) if is_chain else methods.make_method(name, tree_size=6, tree_depth=2)
  recorded = RecordedAcceptance(name, 3, ((0, 1, 2, 1, 0), (3, 0)))
  with pytest.raises(ValueError, match="acceptance of method"):
    bench.figures(methods.Sjd(window=3), recorded)
  # tests/rules/test_imposed.py has another acceptance of chains.
  for acceptance in (0.5, recorded) if is_chain else (0.9,):
    waits = is_chain and acceptance == 0.5
    found = bench.figures(method, acceptance, lock_step=waits)
    assert (found["over_lock_step"] is not None) == waits
    assert found["floor_ms"] >= max(found["memory_floor_ms"], found["arithmetic_floor_ms"]) * (1 - 1e-9)
    if acceptance is recorded:
      assert 1 < found["tokens_per_call"] < 3
      continue
    if is_chain:
      assert found["accepted_of_tested"] == pytest.approx(acceptance, abs=0.015)  # three standard deviations
    else:  # of a tree, whose first path may end early
      assert found["accepted_of_tested"] is None
    assert 1 < found["tokens_per_call"] <= expected_tokens(acceptance, 3) + 0.1
    assert found["over_plain"]["low"] > 0 and found["round_ms"] > 0 and found["floor_ms"] > 0
