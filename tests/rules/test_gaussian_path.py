"""The published density ratio is biased; the one without the Sigma product is not.

The toy has one token. The draft's chain ends in ``N(s_q e, 1)`` and the target's in ``N(s_p e, 1)`` with shared e, so the
target's output is ``N(0, 1 + s_p^2)``. The last step must be wide: a narrow one hides the bias after rejections.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec.diffusion.ddpm import ChainSummary
from jaxspec.rules import gaussian_path

ROWS = 50_000


@functools.partial(jax.jit, static_argnames=("sigma", "max_tries"))
def _toy(sd_q, sd_p, shift, *, sigma: bool, max_tries: int = 300):
  chain_key, test_key, residual_key = jax.random.split(jax.random.key(0), 3)
  shared, z = jax.random.normal(chain_key, (2, ROWS, 1))
  row = jnp.zeros((ROWS,))
  distribution = lambda mean, sd: ChainSummary(mean, jnp.zeros_like(mean), row + jnp.log(sd))
  q, p = distribution(sd_q * shared + shift, sd_q), distribution(sd_p * shared, sd_p)
  x = q.mean + z
  accepted = jnp.log(jax.random.uniform(test_key, (ROWS,))) < gaussian_path.paper_log_ratio(x, p, q, sigma=sigma)
  log_sigma = gaussian_path.log_sigma_ratio(p, q) if sigma else row

  def round_(state):
    x, done, k = state
    normal_key, uniform_key = jax.random.split(jax.random.fold_in(residual_key, k))
    proposal = p.mean + jax.random.normal(normal_key, x.shape)
    keep = jax.random.uniform(uniform_key, (ROWS,)) < gaussian_path.residual_accept_prob(proposal, p, q, log_sigma)
    return jnp.where(done[:, None], x, proposal), done | keep, k + 1

  going = lambda state: ~jnp.all(state[1]) & (state[2] < max_tries)
  x, done, _ = jax.lax.while_loop(going, round_, (x, accepted, jnp.int32(0)))
  return x[:, 0], jnp.mean(accepted), jnp.mean(~done)


@pytest.mark.slow
@pytest.mark.parametrize(
  "sd_q, shift, sigma, distance, acceptance",
  [
    (1.5, 0.0, True, 0.037, 0.936),
    (1.0, 0.7, True, 0.0, 0.726),
    pytest.param(1.5, 0.0, False, 0.0, 0.844, marks=pytest.mark.slow),
  ],
)
def test_bias(sd_q, shift, sigma, distance, acceptance):
  x, rate, unfinished = (np.asarray(out) for out in _toy(sd_q, 1.0, shift, sigma=sigma))
  assert unfinished < 1e-3
  assert rate == pytest.approx(acceptance, abs=0.008)
  ks = stats.kstest(x, stats.norm(0, 2**0.5).cdf).statistic
  assert (ks < 0.008) if distance == 0 else (abs(ks - distance) < 0.008)


def test_ratios_by_hand():
  generator = np.random.default_rng(1)
  draw = lambda *shape: jnp.asarray(generator.normal(size=shape), jnp.float32)
  q, p = (ChainSummary(draw(5, 3), draw(5, 3), draw(5)) for _ in range(2))
  x = draw(5, 3)
  density = lambda distribution: stats.norm.logpdf(x, distribution.mean, np.exp(distribution.log_std)).sum(-1)
  expected = density(p) - density(q) + q.sum_log_std - p.sum_log_std
  np.testing.assert_allclose(gaussian_path.paper_log_ratio(x, p, q), expected, rtol=1e-4, atol=1e-4)
  # As in the released code: both determinants have the other sign, and the draft is at its own mean.
  released = gaussian_path.released_log_ratio(q.mean, p, q)
  z = (q.mean - p.mean) / jnp.exp(p.log_std)
  by_hand = p.sum_log_std - q.sum_log_std + jnp.sum(q.log_std - p.log_std, -1) - jnp.sum(z**2, -1) / (2 * 42**2)
  np.testing.assert_allclose(released, by_hand, rtol=1e-4, atol=1e-5)
  same = gaussian_path.paper_log_ratio(x, p, p)
  np.testing.assert_array_equal(same, 0)
