"""Sampling steps and losses: identities, distributions, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec.diffusion import ddpm, diffusion_loss
from jaxspec.diffusion.ddpm import Prediction, TokenNoise
from jaxspec.diffusion.schedule import diffusion_tables
from tests.helpers import FULL_OPTIMISATION

TABLES = diffusion_tables("20")


def _gaussian_data(mean: float, std: float):
  """The exact denoiser of data from N(mean, std^2), with the exact variance of every step."""

  def predict(index, x):
    kept, previous = (ddpm.at_index(table, index) for table in (TABLES.alphas_cumprod, TABLES.alphas_cumprod_prev))
    noisy = kept * std**2 + 1 - kept
    x0 = mean + jnp.sqrt(kept) * std**2 / noisy * (x - jnp.sqrt(kept) * mean)
    eps = (x - jnp.sqrt(kept) * x0) / jnp.sqrt(1 - kept)
    # The variance of the posterior given x_0, plus the variance of x_0 given x.
    coef, low = (ddpm.at_index(getattr(TABLES, f"posterior_{f}"), index) for f in ("mean_coef1", "variance"))
    log_variance = jnp.log(low + coef**2 * std**2 * (1 - kept) / noisy)
    low, high = ddpm.at_index(TABLES.posterior_log_variance_clipped, index), jnp.log(ddpm.at_index(TABLES.betas, index))
    return Prediction(eps, jnp.zeros_like(x) + 2 * (log_variance - low) / (high - low) - 1)

  return predict


@pytest.mark.slow
def test_exact_denoisers_reproduce_the_data_distribution():
  first, second = jax.random.split(jax.random.key(0))
  rows = 20_000
  noise = TokenNoise(jax.random.normal(first, (rows, 1)), jax.random.normal(second, (rows, TABLES.num_steps, 1)))
  draw = lambda noise, t: ddpm.sample(_gaussian_data(0.7, 0.4), TABLES, noise, t, record=True)
  run = jax.jit(draw, compiler_options=FULL_OPTIMISATION)
  chain = run(noise, jnp.float32(1.0))
  assert chain.states.shape == (20, rows, 1)
  assert stats.kstest(np.asarray(chain.token)[:, 0], stats.norm(0.7, 0.4).cdf).pvalue > 0.01
  np.testing.assert_array_equal(chain.token, chain.distributions.mean[0])

  # The noise of step 0 is never used, and the first state ignores the temperature.
  other = noise._replace(steps=noise.steps.at[:, 0].set(5.0))
  np.testing.assert_array_equal(run(other, jnp.float32(1.0)).token, chain.token)
  np.testing.assert_array_equal(run(noise, jnp.float32(0.0)).states[-1], noise.initial)


def test_the_true_noise_recovers_the_token():
  x0, noise = np.random.default_rng(1).normal(size=(2, 6, 3)).astype(np.float32)
  index = jnp.asarray([0, 1, 5, 9, 15, 18])[:, None]

  @jax.jit
  def run(x0, noise):
    x = ddpm.q_sample(TABLES, x0, index, noise)
    distribution = ddpm.step_distribution(TABLES, index, x, Prediction(noise, jnp.full_like(x, -1.0)))
    return distribution.x0, diffusion_loss.variational_bound(TABLES, x0, x, index, distribution)

  again, terms = run(x0, noise)
  np.testing.assert_allclose(again, x0, atol=2e-4)
  # With the posterior's own variance the bound is 0, except at index 0, where it is a code length in bits.
  np.testing.assert_allclose(terms[1:], 0.0, atol=1e-5)
  assert terms[0] > 0


def test_guidance():
  cond, uncond = (Prediction(*half) for half in np.random.default_rng(2).normal(size=(2, 2, 3, 2)).astype(np.float32))
  np.testing.assert_allclose(ddpm.guide(cond, uncond, 1.0).eps, cond.eps, atol=1e-6)
  np.testing.assert_array_equal(ddpm.guide(cond, uncond, 0.0).eps, uncond.eps)
  for scale in (0.0, 3.0):
    np.testing.assert_array_equal(ddpm.guide(cond, uncond, scale).v, cond.v)


def test_densities():
  x, mean, log_std = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
  expected = stats.norm.logpdf(x, mean, np.exp(log_std)).sum(-1)
  np.testing.assert_allclose(ddpm.normal_log_prob(x, mean, log_std), expected, rtol=1e-4)
  kl = diffusion_loss.normal_kl(mean, 2 * log_std, mean, 2 * log_std)
  np.testing.assert_allclose(kl, 0, atol=1e-6)
  assert np.all(diffusion_loss.normal_kl(mean, 2 * log_std, x, 0 * x) >= -1e-6)


def test_probabilities_of_all_bins_add_up_to_one():
  bins = (2 * np.arange(256) / 255 - 1.0).astype(np.float32)
  run = jax.jit(diffusion_loss.discretized_normal_log_prob)
  for mean, std in ((0.1, 0.3), (-0.9, 0.05), (3.0, 1.0)):
    log_prob = run(bins, jnp.float32(mean), jnp.float32(np.log(std)))
    np.testing.assert_allclose(np.sum(np.exp(log_prob)), 1.0, atol=1e-4)


def test_the_bound_has_gradients_for_the_variance_only():
  x0, noise = np.random.default_rng(3).normal(size=(2, 8, 3)).astype(np.float32)
  index = jnp.asarray([0, 0, 1, 3, 7, 12, 18, 19])[:, None]
  tables = TABLES

  def bound(eps, v):
    x = ddpm.q_sample(tables, x0, index, noise)
    return jnp.sum(diffusion_loss.diffusion_losses(tables, x0, x, index, noise, Prediction(eps, v)).vb)

  eps_grad, v_grad = jax.jit(jax.grad(bound, argnums=(0, 1)))(0.9 * noise, 0.1 * x0)
  assert not np.any(eps_grad)
  assert np.all(np.isfinite(v_grad)) and np.any(v_grad)
