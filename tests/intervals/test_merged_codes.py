"""Codes that count as one: their groups, and scores that do not change when codes are split into copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Intervals
from jaxspec.intervals.inter_fuse import inter_fuse
from jaxspec.intervals.merged_codes import Groups, groups_within, merge
from jaxspec.intervals.scores import Merged, make_score
from jaxspec.testing import fast_keys
from tests.helpers import slow_but

B, V = 5, 7
COPIES = np.array([1, 4, 1, 3, 2, 1, 1])  # of each code
OF_CODE = np.repeat(np.arange(V), COPIES)
GROUPS = Groups(jnp.asarray(OF_CODE, jnp.int32), jnp.asarray(np.cumsum(COPIES) - COPIES, jnp.int32))

_merge = jax.jit(merge)


def intervals(heads, seed=0, radius=None):
  generator = np.random.default_rng(seed)
  draw = lambda *shape: np.float32(3 * generator.normal(size=shape))
  radii = np.abs(draw(B, heads, V)) if radius is None else np.full((B, heads, V), radius, np.float32)
  return Intervals(*map(jnp.asarray, (draw(B, heads, V), radii, draw(B, 2, V))))


def split(whole, seed=1):
  """Every code becomes copies that share its probability at random and keep its radius."""
  shares = np.random.default_rng(seed).gamma(1.0, size=len(OF_CODE))
  shares /= np.bincount(OF_CODE, shares)[OF_CODE]
  parts = lambda logits: jnp.asarray(np.asarray(logits)[..., OF_CODE] + np.log(shares), jnp.float32)
  return Intervals(parts(whole.centre), jnp.asarray(np.asarray(whole.radius)[..., OF_CODE]), parts(whole.lens))


SCORES = (
  "interval",
  "interval:paper",
  "interval:radius=0.5",
  "entropy",
  "entropy_lens",
  "max_prob",
  "temperature",
  "discrete:3",
)


@pytest.mark.parametrize("name", slow_but(SCORES, ["interval", "entropy"]))
@pytest.mark.parametrize("combination", slow_but(["ensemble", "voting"], ["ensemble"]))
def test_a_merged_score_is_the_score_before_codes_were_split(name, combination):
  whole = intervals(3)
  score = lambda name, of, *groups: jax.jit(make_score(name, combination))(of, jnp.zeros((B, 0)), fast_keys(0, B), *groups)
  plain = score(name, whole)
  np.testing.assert_allclose(score(f"merged:0.1:{name}", split(whole), GROUPS), plain, rtol=2e-4, atol=1e-6)
  if "entropy" in name:
    unmerged = score(name, split(whole))
    assert (np.asarray(unmerged) > np.asarray(plain)).all()


def test_the_interval_of_a_group_holds_every_logit_that_its_codes_reach():
  """With different radii it may be wider than the exact one, which it never cuts."""
  generator = np.random.default_rng(2)
  split_ones = split(intervals(1))._replace(
    radius=jnp.asarray(generator.gamma(1, 1, size=(B, 1, len(OF_CODE))), jnp.float32)
  )
  merged = _merge(split_ones, GROUPS)
  centre, radius = (np.asarray(leaf[:, 0], np.float64) for leaf in split_ones[:2])
  for _ in range(50):
    moved = centre + radius * generator.uniform(-1, 1, size=radius.shape)
    logits = np.log(np.stack([np.exp(moved[:, OF_CODE == group]).sum(1) for group in range(V)], axis=1))
    assert (np.abs(logits - merged.centre[:, 0]) <= np.asarray(merged.radius[:, 0]) + 1e-4).all()
  ends = [
    np.log(np.stack([np.exp((centre + sign * radius)[:, OF_CODE == g]).sum(1) for g in range(V)], 1)) for sign in (-1, 1)
  ]
  farther = np.maximum(ends[1] - np.asarray(merged.centre[:, 0]), np.asarray(merged.centre[:, 0]) - ends[0])
  np.testing.assert_allclose(merged.radius[:, 0], farther, atol=1e-4)


def test_excluded_codes():
  """A group with one code left is that code; a group without any stays excluded."""
  whole = split(intervals(1))
  centre = np.array(whole.centre)
  centre[..., np.flatnonzero(OF_CODE == 1)[1:]] = centre[..., OF_CODE == 3] = -np.inf
  merged = _merge(whole._replace(centre=jnp.asarray(centre)), GROUPS)
  np.testing.assert_allclose(merged.centre[..., 1], centre[..., np.flatnonzero(OF_CODE == 1)[0]], rtol=1e-6)
  assert np.isneginf(merged.centre[..., 3]).all() and (np.asarray(merged.radius[..., 3]) == 0).all()
  bounds = jax.jit(inter_fuse)(merged.centre, merged.radius)
  assert all(np.isfinite(leaf).all() for leaf in bounds)


def test_groups_are_linked_by_steps():
  """A chain is one group, whatever its length; the numbers of codes may be in any order."""
  chain = np.stack([np.arange(10) * 0.02, np.ones(10)], axis=1)
  codes = np.concatenate([chain, chain + [5, 0], [[2.5, 0.0]]])
  order = np.random.default_rng(0).permutation(len(codes))
  found = groups_within(codes[order], 0.03, normalise=False)
  of_code = np.empty(len(codes), int)
  of_code[order] = found.of_code
  assert len(found.first) == 3 and len(set(of_code[:10])) == len(set(of_code[10:20])) == 1
  assert found.of_code[found.first].tolist() == [0, 1, 2]
  assert len(groups_within(codes, 0.01, normalise=False).first) == len(codes)
  assert len(groups_within(np.concatenate([codes, codes]), 0.0, normalise=False).first) == len(codes)


def test_rows_of_one_direction_are_one_code_at_unit_length():
  codes = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
  assert groups_within(codes, 0.1).of_code.tolist() == [0, 0, 1]
  assert groups_within(codes, 0.1, normalise=False).of_code.tolist() == [0, 1, 2]


def test_large_codebooks_are_compared_in_blocks(monkeypatch):
  codes = np.random.default_rng(3).normal(size=(50, 3))
  whole = groups_within(codes, 0.3)
  monkeypatch.setattr("jaxspec.intervals.merged_codes._BLOCK", 150)
  np.testing.assert_array_equal(groups_within(codes, 0.3).of_code, whole.of_code)
  assert 2 <= len(whole.first) < 50


def test_what_does_not_fit():
  for distance, words in ((-1.0, "at least 0"), (float("nan"), "at least 0"), (9.0, "leaves at least 2 groups")):
    with pytest.raises(ValueError, match=words):
      groups_within(np.eye(4), distance)
  for text in (
    "merged",
    "merged:0.1",
    "merged:wide:entropy",
    "merged:-1:entropy",
    "merged:0.1:merged:0.1:entropy",
    "merged:0.1:x",
  ):
    with pytest.raises(ValueError, match="Must have"):
      make_score(text)
  assert make_score("merged:0.1:interval:radius=0.5") == Merged(make_score("interval:radius=0.5"), 0.1)
  with pytest.raises(ValueError, match="codebook of an image tokenizer"):
    make_score("merged:0.1:entropy").tables(TokenSpace(vocab_size=4))
