"""The objective of interval features by hand, and the positions drawn by the edge."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.training.interval_features_loss import edge_positions, injection_loss


def logits(seed):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(2, 3, 5)) * 2, jnp.float32)


def test_terms_by_hand():
  tokens = jnp.asarray([[0, 4, 2], [1, 1, 3]], jnp.int32)
  after_edge, after_cloud, calm = logits(0), logits(1), logits(2).at[0, 0, 1].set(-jnp.inf)
  loss, terms = injection_loss(after_edge, after_cloud, calm, tokens, kl_weight=0.5)
  p, q, g = (np.asarray(jax.nn.softmax(x), np.float64) for x in (after_edge, after_cloud, calm))
  ce = -np.mean([np.log(p[i, j, tokens[i, j]]) for i, j in np.ndindex(2, 3)])
  kl = np.mean(np.sum(np.where(g > 0, g * (np.log(np.where(g > 0, g, 1)) - np.log(q)), 0), axis=-1))
  np.testing.assert_allclose([loss, terms["cross_entropy"], terms["kl"]], [ce + 0.5 * kl, ce, kl], rtol=1e-5)
  assert abs(injection_loss(after_edge, after_cloud, after_cloud, tokens, kl_weight=1.0)[1]["kl"]) < 1e-6


def test_gradients():
  """d CE = softmax - one-hot, d KL = softmax - goal, both over the number of positions; none to the goal."""
  tokens = jnp.asarray([[0, 4, 2], [1, 1, 3]], jnp.int32)
  fn = lambda a, b, c: injection_loss(a, b, c, tokens, kl_weight=2.0)[0]
  after_edge, after_cloud, calm = logits(0), logits(1), logits(2)
  by_edge, by_cloud, by_goal = jax.grad(fn, argnums=(0, 1, 2))(after_edge, after_cloud, calm)
  np.testing.assert_allclose(by_edge, (jax.nn.softmax(after_edge) - jax.nn.one_hot(tokens, 5)) / 6, atol=1e-6)
  np.testing.assert_allclose(by_cloud, 2 * (jax.nn.softmax(after_cloud) - jax.nn.softmax(calm)) / 6, atol=1e-6)
  assert not np.asarray(by_goal).any()


def test_shares_of_the_edge_differ_between_images():
  mask = np.asarray(edge_positions(jax.random.key(0), (200, 400), 0.3)).mean(1)
  assert 0.25 < mask.min() < 0.4 and mask.max() > 0.9 and abs(mask.mean() - 0.65) < 0.05
