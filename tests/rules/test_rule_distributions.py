"""One contract for every acceptance rule: exact distribution at one position, lossless limit, relabelled ids, chi-square."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec.core import rng
from jaxspec.rules.distances import DistanceTable
from jaxspec.rules.exact_distribution import exact_distribution
from jaxspec.rules.gsd_rule import GsdRule, gsd_released
from jaxspec.rules.lantern_rule import LanternRule, lantern_plus_plus
from jaxspec.rules.scaled_rule import ScaledRule, always
from jaxspec.rules.static_groups import StaticGroupsRule
from tests.rules import rules_reference as reference

pytestmark = pytest.mark.slow

V = 24
CONTINUOUS = np.random.default_rng(5).normal(size=(V, 3)).astype(np.float32)
DISTANCE = ((CONTINUOUS[:, None] - CONTINUOUS[None]) ** 2).sum(-1)
NEIGHBOURS = np.argsort(DISTANCE + np.diag([np.inf] * V), axis=1, kind="stable")[:, :-1].astype(np.int32)
GROUPS = (np.random.default_rng(6).permutation(V) % 7).astype(np.int32)

# An acceptance rule, its lossless limit (None: it has none), and its table in NumPy.
RULES = {
  "scaled": (ScaledRule(3.0), ScaledRule(1.0), None),
  "scaled_optimal": (ScaledRule(1.5, residual="optimal"), ScaledRule(0.5, residual="optimal"), None),
  "scaled_below_one": (ScaledRule(0.5), None, None),
  "always": (always, None, None),
  "static": (StaticGroupsRule(), None, GROUPS),
  "static_optimal": (StaticGroupsRule(residual="optimal"), None, GROUPS),
  "gsd": (GsdRule(6, 0.1, 4.0), GsdRule(1, 0.1, 4.0), DISTANCE),
  "gsd_odd": (GsdRule(5, 0.1, 4.0, max_rule=False), GsdRule(5, 0.0, 4.0), DISTANCE),
  "gsd_centered": (GsdRule(6, 0.02, 9.0, window="centered", max_rule=False), GsdRule(6, 0.1, 0.0), DISTANCE),
  "gsd_optimal": (
    GsdRule(6, 0.1, 9.0, max_rule=False, residual="optimal"),
    GsdRule(1, max_rule=False, residual="optimal"),
    DISTANCE,
  ),
  "gsd_released": (gsd_released(8, 0.1, 9.0), gsd_released(1), DISTANCE),
  "lantern": (LanternRule(5, 0.05), LanternRule(5, 0.0), NEIGHBOURS),
  "lantern_paper": (LanternRule(5, 0.05, residual="paper"), LanternRule(5, 0.0, residual="paper"), NEIGHBOURS),
  "lantern_compat": (LanternRule(5, 0.05, residual="compat"), LanternRule(5, 0.0, residual="compat"), NEIGHBOURS),
  "lantern_wide": (LanternRule(1000, 0.1, residual="paper"), None, NEIGHBOURS),
  "lantern_plus_plus": (lantern_plus_plus(5, 2.0), lantern_plus_plus(5, 1.0), NEIGHBOURS),
  "lantern_plus_plus_paper": (
    lantern_plus_plus(10, 3.0, residual="paper"),
    lantern_plus_plus(10, 1.0, residual="paper"),
    NEIGHBOURS,
  ),
}

_distribution = jax.jit(exact_distribution, static_argnums=0)


def _tables(array):
  """NumPy table to what the rule reads."""
  if array is None:
    return ()
  if array.dtype == np.int32:
    return jnp.asarray(array)
  return DistanceTable(jnp.asarray(array), "codebook", 2)


def _relabel(array, old):
  """The table after token ``old[i]`` got the id i."""
  if array is None:
    return None
  if array.ndim == 1:
    return array[old]
  if array.dtype == np.int32:
    return np.argsort(old).astype(np.int32)[array[old]]
  return array[old][:, old]


@functools.cache
def _positions():
  """Flat, peaked and truncated positions, ``[9, V]`` each."""
  parts = [reference.random_distributions(0, 4, V), reference.random_distributions(1, 3, V, sharpness=2.5)]
  parts.append(reference.random_distributions(2, 2, V, keep=9))
  return tuple(np.concatenate(x) for x in zip(*parts))


@pytest.mark.parametrize("name", RULES)
def test_distribution_of_one_position_and_relabelled_ids(name):
  rule, _, array = RULES[name]
  p, q = _positions()
  found = _distribution(rule, _tables(array), p, q)
  asked = {}
  for row in range(p.shape[0]):
    asked[row] = reference.emitted_distribution(rule, array, p[row], q[row])
    np.testing.assert_allclose(found.accept[row], asked[row][0], atol=2e-6)
    np.testing.assert_allclose(found.distribution[row], asked[row][1], atol=2e-6)
  distribution = np.stack([asked[row][1] for row in asked])
  np.testing.assert_allclose(found.tv, np.abs(distribution - p).sum(-1) / 2, atol=3e-6)
  np.testing.assert_allclose(np.sum(found.distribution, -1), 1.0, atol=2e-6)
  # Two bounds hold for every rule: the bias is at least the acceptance gained, and at least the excess.
  assert (found.tv >= found.alpha - found.alpha_sd - 1e-6).all()
  assert (found.tv >= found.excess - 1e-6).all()
  if rule.residual == "optimal":
    np.testing.assert_allclose(found.tv, found.excess, atol=2e-6)

  # Figures of the drafted tokens alone agree with those of all tokens.
  tokens = jnp.broadcast_to(jnp.arange(V, dtype=jnp.int32)[:, None], (V, p.shape[0]))
  stack = lambda x: jnp.broadcast_to(jnp.asarray(x), (V, *x.shape))
  drafted = jax.jit(rule.accept_prob)(_tables(array), tokens, stack(p), stack(q))
  np.testing.assert_allclose(drafted.T, found.accept, atol=2e-6)

  # Relabelled ids give the same distribution (except for ties, which go by id).
  dense = slice(0, 7)
  for seed in range(3):
    old = np.random.default_rng(seed).permutation(V)
    again = _distribution(rule, _tables(_relabel(array, old)), p[:, old], q[:, old])
    np.testing.assert_allclose(again.distribution[dense], np.asarray(found.distribution)[dense][:, old], atol=2e-6)


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name][1] is not None])
def test_switched_off_is_lossless(name):
  rule, off, array = RULES[name]
  p, q = (distribution[:7] for distribution in _positions())
  found = _distribution(off, _tables(array), p, q)
  np.testing.assert_allclose(found.distribution, p, atol=2e-6)
  np.testing.assert_allclose(found.tv, 0.0, atol=2e-6)
  assert float(_distribution(rule, _tables(array), p, q).tv.max()) > 0.01  # lossy when enabled


def test_groups_of_one_token_are_lossless():
  p, q = _positions()
  found = _distribution(StaticGroupsRule(), jnp.arange(V), p, q)
  np.testing.assert_allclose(found.distribution, p, atol=2e-6)


# One rule per code path of draws.
_SAMPLED = ("scaled", "always", "static", "gsd", "gsd_optimal", "lantern", "lantern_paper", "lantern_compat")


@pytest.mark.parametrize("name", _SAMPLED)
def test_sampled_rule_follows_the_enumerated_distribution(name):
  """Two positions of 8192 rows: the first token, and the second token where the first draft was accepted."""
  rule, _, array = RULES[name]
  rows, tables = 8192, _tables(array)
  p, q = reference.random_distributions(7, 2, V, noise=1.0)
  generator = np.random.default_rng(11)
  cast = lambda distribution: distribution.astype(np.float64) / distribution.sum(dtype=np.float64)
  tokens = np.stack([generator.choice(V, size=rows, p=cast(distribution)) for distribution in q], 1).astype(np.int32)
  spread = lambda distribution: jnp.broadcast_to(jnp.log(jnp.asarray(distribution))[None], (rows, *distribution.shape))
  full = jnp.full((rows,), 2, jnp.int32)
  draft = jaxspec.Draft.chain(jnp.asarray(tokens), spread(q), full, 0)
  target = spread(np.concatenate([p, p[:1]]))
  verdict = jax.jit(rule)(tables, rng.row_keys(jax.random.key(4), rows), draft, target)
  kept, last = np.asarray(verdict.num_accepted), np.asarray(verdict.next_tokens[:, 0])
  found = _distribution(rule, tables, p, q)
  for position in range(2):
    here = kept >= position
    emitted = np.where(kept[here] > position, tokens[here, position], last[here])
    distribution = cast(np.asarray(found.distribution)[position])
    assert _p_value(emitted, distribution) > 0.001, position
    if found.tv[position] > 0.05:
      assert _p_value(emitted, cast(p[position])) < 1e-4  # the test can distinguish the two distributions
    rate = float(found.alpha[position])
    assert abs((kept[here] > position).mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / here.sum()) + 1e-6


def _p_value(emitted, distribution):
  observed, expected = np.bincount(emitted, minlength=distribution.size), distribution * emitted.size
  if observed[expected == 0].any():
    return 0.0
  big = expected >= 5
  merge = lambda x: np.append(x[big], x[~big].sum())[: int(big.sum()) + int((expected[~big] > 0).any())]
  return stats.chisquare(merge(observed), merge(expected)).pvalue
