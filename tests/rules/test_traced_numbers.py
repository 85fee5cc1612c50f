"""Numbers of acceptance rules are arguments of a program: a sweep of ten values compiles once, with the same verdicts."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxspec.rules.lantern_greedy import GreedyLanternRule
from jaxspec.rules.lantern_rule import LanternRule
from jaxspec.rules.lossless import lossless
from jaxspec.rules.scaled_rule import ScaledRule
from jaxspec.rules.traced_numbers import TracedRule, traced_numbers
from jaxspec.sampling import SamplingConfig
from tests.methods import networks

SWEEPS = {
  "scaled": ("factor", np.linspace(1.0, 4.0, 10)),
  "lantern": ("factor", np.linspace(1.0, 4.0, 10)),
  "gsd": ("max_gap", np.linspace(0.0, 0.9, 10)),
}


@pytest.mark.parametrize("audit", [False, True])
@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_of_ten_values_has_one_program(name, audit):
  option, values = SWEEPS[name]
  parts = [networks.decoder(networks.small(name, **{option: float(value)}), audit=audit).parts for value in values]
  assert len({(one.verifier, one.drafter) for one in parts}) == 1
  assert isinstance(parts[0].verifier.accept_fn, TracedRule)
  assert len({tuple(map(float, one.params.target.rule.numbers.values())) for one in parts}) == 10


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEPS)
def test_traced_numbers_judge_like_fixed_ones(name):
  """Tokens are equal with fixed numbers and with numbers as program arguments."""
  option, values = SWEEPS[name]
  decoder = networks.decoder(networks.small(name, **{option: float(values[6])}), sampling=SamplingConfig(temperature=2.0))
  parts = decoder.parts
  numbers, tables = parts.params.target.rule
  inner = parts.verifier.accept_fn.rule
  fixed = dataclasses.replace(inner, **{key: float(value) for key, value in numbers.items()})
  params = parts.params._replace(target=parts.params.target._replace(rule=tables))
  verifier = dataclasses.replace(parts.verifier, accept_fn=fixed)
  condition, key = networks.condition_of(decoder, 8), jax.random.key(3)
  want = dataclasses.replace(decoder)
  vars(want)["parts"] = parts._replace(params=params, verifier=verifier)
  np.testing.assert_array_equal(decoder(condition, key=key).tokens, want(condition, key=jax.random.key(3)).tokens)


def test_rules_without_numbers_stay_as_they_are():
  assert traced_numbers(lossless, ()) == (lossless, ())
  below = ScaledRule(0.5, residual="optimal")  # whether its residual needs all acceptances is static
  assert traced_numbers(below, ()) == (below, ())
  rule, (numbers, tables) = traced_numbers(GreedyLanternRule(LanternRule(3, 2.0, True)), np.zeros((4, 3)))
  assert rule == TracedRule(GreedyLanternRule(LanternRule(3, 1.0, True)))
  assert float(numbers["bound"]) == 2.0 and tables.shape == (4, 3)
