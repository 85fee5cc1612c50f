"""The contrastive loss is compared with closed forms and numerical gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from jaxspec.training.contrastive import contrastive_loss


def _vectors(seed, rows=5, width=8):
  x = jax.random.normal(jax.random.key(seed), (rows, width))
  return x / jnp.sqrt(jnp.mean(x**2, axis=1, keepdims=True))


def test_orthogonal_views():
  """With cosine 1 for own pairs and 0 for others the loss is log(1 + (B - 1) exp(-1 / temperature))."""
  x = jnp.eye(6) * jnp.sqrt(6.0)
  loss, accuracy = contrastive_loss(x, x, temperature=0.5)
  np.testing.assert_allclose(loss, np.log(1 + 5 * np.exp(-2)), rtol=1e-5)
  assert accuracy == 1
  loss, accuracy = contrastive_loss(x, jnp.roll(x, 1, axis=0), temperature=0.5)
  np.testing.assert_allclose(loss, np.log(5 + np.exp(2)), rtol=1e-5)
  assert accuracy == 0


def test_both_directions():
  a, b = _vectors(0), _vectors(1)
  logits = np.asarray(a @ b.T / 8 / 0.2)
  picked = lambda x: np.mean(np.log(np.exp(x).sum(1)) - np.diagonal(x))
  loss, _ = contrastive_loss(a, b, temperature=0.2)
  np.testing.assert_allclose(loss, (picked(logits) + picked(logits.T)) / 2, rtol=1e-5)


def test_near_duplicates_do_not_repel():
  """A pair of one family has no weight. Its gradient is finite and equals that of the batch without the pair."""
  a, b = _vectors(0), _vectors(1)
  same = jnp.zeros((5, 5), bool).at[0, 1].set(True).at[1, 0].set(True) | jnp.eye(5, dtype=bool)
  logits = np.array(a @ b.T / 8 / 0.1)
  logits[0, 1] = logits[1, 0] = -np.inf
  picked = lambda x: np.mean(np.log(np.exp(x).sum(1)) - np.diagonal(x))
  loss_of = jax.jit(lambda a, b: contrastive_loss(a, b, temperature=0.1, same=same).loss)
  np.testing.assert_allclose(loss_of(a, b), (picked(logits) + picked(logits.T)) / 2, rtol=1e-5)
  assert all(bool(jnp.isfinite(g).all()) for g in jax.grad(loss_of, argnums=(0, 1))(a, b))


def test_gradients():
  with jax.enable_x64(True):
    a, b = (jnp.asarray(np.asarray(_vectors(seed), np.float64)) for seed in (2, 3))
    same = jnp.asarray(np.eye(5, k=1, dtype=bool))
    loss = jax.jit(lambda a, b: contrastive_loss(a, b, temperature=0.3, same=same).loss)
    check_grads(loss, (a, b), order=1, modes=["rev"])
