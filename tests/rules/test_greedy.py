"""The arg-max acceptance rule on logits by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.rules.greedy import greedy
from tests.ciar_pair import keys_of


@pytest.mark.slow
def test_leading_drafts_that_are_the_arg_max_are_accepted():
  """Full acceptance, a rejection, no drafts. Bonus and first token are sampled; a replacement is the arg-max."""
  best = np.array([[3, 1, 2, 0]] * 3)
  target = jnp.asarray(np.where(np.arange(5) == best[..., None], 2.0, 0.0), jnp.float32)
  tokens = jnp.array([[3, 1, 2], [3, 0, 2], [0, 0, 0]], jnp.int32)
  jnp.zeros((3,), jnp.int32)
  draft = jaxspec.Draft.chain(tokens, (), jnp.array([3, 3, 0]), 0)
  seen = set()
  for seed in range(20):
    verdict = greedy((), keys_of(3, 10 * seed), draft, target)
    np.testing.assert_array_equal(verdict.num_accepted, [3, 1, 0])
    assert verdict.next_tokens[1, 0] == 1
    seen.add((int(verdict.next_tokens[0, 0]), int(verdict.next_tokens[2, 0])))
  assert len({a for a, _ in seen}) > 1 and len({b for _, b in seen}) > 1


@pytest.mark.slow
def test_a_window_of_zero_drafts_samples_the_target():
  draft = jaxspec.Draft.empty(jnp.zeros((2,), jnp.int32))
  verdict = greedy((), keys_of(2), draft, jnp.array([[[0.0, -jnp.inf]], [[-jnp.inf, 0.0]]]))
  np.testing.assert_array_equal(verdict.next_tokens[:, 0], [0, 1])
