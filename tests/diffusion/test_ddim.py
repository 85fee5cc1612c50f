"""Deterministic sampling: identities with exact denoisers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.diffusion import ddim, ddpm
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.diffusion.schedule import diffusion_tables

TABLES = diffusion_tables("250", "linear")


def _of_gaussian(mean: float, std: float):
  """The exact denoiser of data from N(mean, std^2)."""

  def predict(index, x):
    kept = ddpm.at_index(TABLES.alphas_cumprod, index)
    noisy = kept * std**2 + 1 - kept
    return Prediction(jnp.sqrt(1 - kept) * (x - jnp.sqrt(kept) * mean) / noisy, jnp.full_like(x, jnp.nan))

  return predict


def test_a_gaussian_is_scaled_and_moved():
  """The exact flow maps normals to the data by a line; the learned variance is not read."""
  x = np.linspace(-2.0, 2.0, 9, dtype=np.float32)[:, None]
  got = np.asarray(jax.jit(lambda x: ddim.sample(_of_gaussian(0.7, 0.4), TABLES, x))(x))
  np.testing.assert_allclose(got, 0.7 + 0.4 * x, atol=0.02)


@pytest.mark.parametrize("index", [0, 1, 100, 249])
def test_a_point_is_reached_at_every_step(index):
  """With the true noise the state stays on the line from the noise to the clean token."""
  x0, noise = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
  at = lambda number: ddpm.q_sample(TABLES, x0, jnp.full((4, 1), number), noise)
  got = ddim.next_state(TABLES, jnp.int32(index), at(index), jnp.asarray(noise))
  np.testing.assert_allclose(got, x0 if index == 0 else at(index - 1), atol=1e-4)
