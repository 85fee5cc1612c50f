"""Dynamic trees: parity with the public code, ties, and static shapes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import trees
from jaxspec.core.types import Draft
from jaxspec.drafters import draft_tree
from jaxspec.sampling.logit_processing import Warp, sampling_params

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "discrete" / "eagle2_tree.npz")


def _grow(root, level_logits, top_k, total):
  """Grows trees from the logits of every round; ``root [B, V]``, ``level_logits [depth, B, k, V]``."""
  levels = [draft_tree.first_level(root, top_k)]
  beams = [draft_tree.next_beam(levels[0], None, top_k)]
  for logits in level_logits:
    levels.append(draft_tree.next_level(logits, beams[-1]))
    beams.append(draft_tree.next_beam(levels[-1], beams[-1], top_k))
  return draft_tree.prune(levels, [beam.choice for beam in beams], total), beams


_jitted = jax.jit(_grow, static_argnames=("top_k", "total"))


def _draft(grown):
  rows = grown.tokens.shape[0]
  jnp.zeros((rows,), jnp.int32)
  return Draft.tree(grown.tokens, grown.parents, grown.num_levels, 0)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(int(GOLDEN["n_cases"])))
def test_tree_matches_the_public_code(case):
  get = lambda name: GOLDEN[f"t{case}_{name}"]
  total, depth, top_k, _ = (int(x) for x in get("params_total_depth_topk_V"))
  cfg, warp = float(get("cfg")), Warp(top_k=int(get("draft_topk_filter")))

  def distribution(logits):
    if cfg >= 0:
      cond, uncond = logits
      logits = uncond + (cond - uncond) * np.float32(cfg)
    return warp(jnp.asarray(logits), sampling_params())

  root = distribution(get("root_logits"))[None]
  rounds = [distribution(logits)[None] for logits in get("level_logits")]
  grown, beams = _jitted(root, jnp.stack(rounds), top_k=top_k, total=total)
  np.testing.assert_array_equal(grown.tokens[0], get("draft_tokens")[1:])
  positions, mask = trees.layout(_draft(grown))
  np.testing.assert_array_equal(positions[0], get("tree_position_ids"))
  np.testing.assert_array_equal(mask[0], get("tree_mask"))
  for r in range(depth):
    np.testing.assert_array_equal(beams[r].tokens[0], get("beam_input_ids")[r])
    width = (r + 1) * top_k
    np.testing.assert_array_equal(beams[r].mask[0], get("beam_mask")[r, :, :width])
    assert not get("beam_mask")[r, :, width:].any()
  assert grown.num_levels[0] == positions.max()


def test_certain_tokens_keep_their_parents():
  """A draft probability of 1 gives a child the score of its parent. The chosen nodes must still include the parent."""
  rows, top_k, depth, vocab = 64, 3, 4, 7
  generator = np.random.default_rng(0)

  def logits(*shape):
    certain = np.eye(vocab)[generator.integers(vocab, size=shape)]
    flat = generator.integers(0, 2, size=(*shape, vocab)).astype(float)
    return jnp.asarray(np.where(generator.random((*shape, 1)) < 0.7, np.where(certain > 0, 0.0, -np.inf), flat), jnp.float32)

  rounds = jnp.stack([logits(rows, top_k) for _ in range(depth)])
  grown, _ = _jitted(logits(rows), rounds, top_k=top_k, total=10)
  parents = np.asarray(grown.parents)
  assert (parents < np.arange(10)).all() and (parents >= -1).all()
  reach = np.asarray(trees.ancestors(grown.parents))
  np.testing.assert_array_equal(np.asarray(trees.depths(trees.ancestors(grown.parents))).max(1), grown.num_levels)
  for row in range(rows):  # ancestors by following parents
    for node in range(10):
      walked, at = set(), node
      while at >= 0:
        walked.add(at)
        at = parents[row, at]
      assert walked == set(np.flatnonzero(reach[row, node]))
  # Children of one node are different tokens.
  for row in range(rows):
    pairs = list(zip(parents[row], np.asarray(grown.tokens[row])))
    assert len(set(pairs)) == len(pairs)


def test_vocabulary_must_hold_the_beam():
  with pytest.raises(ValueError, match="top_k of at most the 4"):
    draft_tree.first_level(jnp.zeros((1, 4)), 5)
