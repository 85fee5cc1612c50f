"""DDIM: identities with exact denoisers, and its limit DDPM."""

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
  got = ddim.step_distribution(TABLES, jnp.int32(index), at(index), Prediction(jnp.asarray(noise), jnp.nan), 0.0)
  np.testing.assert_allclose(got.mean, x0 if index == 0 else at(index - 1), atol=1e-4)
  assert np.all(got.log_variance == -np.inf) and got.log_variance.shape == got.mean.shape


@pytest.mark.parametrize("eta", [0.3, 0.8])
@pytest.mark.parametrize("index", [1, 100, 249])
def test_the_next_state_has_the_noise_of_its_step(index, eta):
  """With the true noise the marginal distribution is the same for every eta (arXiv 2010.02502, lemma 1)."""
  x0, noise = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
  x = ddpm.q_sample(TABLES, x0, jnp.full((4, 1), index), noise)
  got = ddim.step_distribution(TABLES, jnp.int32(index), x, Prediction(jnp.asarray(noise), jnp.nan), eta)
  now, before = TABLES.alphas_cumprod[index], TABLES.alphas_cumprod_prev[index]
  sigma = eta * np.sqrt((1 - before) / (1 - now)) * np.sqrt(1 - now / before)  # eq. 16
  np.testing.assert_allclose(np.exp(0.5 * got.log_variance), np.full(x.shape, sigma), rtol=1e-5)
  np.testing.assert_allclose(got.mean, np.sqrt(before) * x0 + np.sqrt(1 - before - sigma**2) * noise, atol=1e-4)


@pytest.mark.parametrize("index", [1, 100, 249])
def test_all_of_the_noise_is_ddpm(index):
  """With eta 1 a step is that of DDPM with the posterior variance."""
  x, noise = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
  prediction = Prediction(jnp.asarray(noise), jnp.full((4, 3), -1.0))
  ours = ddim.step_distribution(TABLES, jnp.int32(index), x, prediction, 1.0)
  theirs = ddpm.step_distribution(TABLES, jnp.int32(index), x, prediction)
  for one, other in zip(ours, theirs):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
