"""Density ratios of continuous speculative decoding (CSpD; Wang et al. 2024, arXiv 2411.11925), all in logarithms.

Draft and target run their chains with the same noise ("trajectory alignment"). Let x be the drafted token, and ``S`` the
product of the ratios of standard deviations over all steps but the last. With the summaries of both chains
(`jaxspec.diffusion.ddpm.ChainSummary`), the published acceptance ratio is

  ratio(x) = S N(x; mu_p, sd_p) / N(x; mu_q, sd_q),    S = prod sd_q / sd_p.

**This does not preserve the target's distribution** unless S = 1. The two chains are evaluated at different points, and the
Jacobian of the map between them, 1/S, cancels S exactly. ``paper_log_ratio(..., sigma=False)`` is the correct ratio for
chains whose last step is noisy. The released code differs again, see `released_log_ratio`. A lossless decoder needs
`jaxspec.rules.couplings`.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.diffusion.ddpm import ChainSummary, normal_log_prob

RELEASED_INNER_TEMPERATURE = 42.0


def log_sigma_ratio(p: ChainSummary, q: ChainSummary) -> Array:
  """``log S [...] = sum_{t > 1} sum_d (log sd_q - log sd_p)`` (the paper's Sigma product)."""
  return q.sum_log_std - p.sum_log_std


def paper_log_ratio(x: Array, p: ChainSummary, q: ChainSummary, *, sigma: bool = True) -> Array:
  """Log acceptance ratio ``[...]`` of a draft ``x [..., C]``: accept iff ``log u <= ratio`` (CSpD, section 4.1).

  Args:
    sigma: True includes S, as published; without S the test is exact given the shared noise.
  """
  last = normal_log_prob(x, p.mean, p.log_std) - normal_log_prob(x, q.mean, q.log_std)
  return last + log_sigma_ratio(p, q) if sigma else last


def released_log_ratio(
  x: Array, p: ChainSummary, q: ChainSummary, *, inner_temperature: float = RELEASED_INNER_TEMPERATURE
) -> Array:
  """Log acceptance ratio ``[...]`` as the released code computes it.

  It has 1/S instead of S. The z-scores of the last step are divided by 42 in the exponents but not in the normalisers.
  """
  squares = lambda distribution: jnp.sum(jnp.square((x - distribution.mean) * jnp.exp(-distribution.log_std)), axis=-1)
  exponent = (squares(q) - squares(p)) / (2.0 * inner_temperature**2)
  return -log_sigma_ratio(p, q) + jnp.sum(q.log_std - p.log_std, axis=-1) + exponent


def residual_accept_prob(x: Array, p: ChainSummary, q: ChainSummary, log_sigma: Array) -> Array:
  """Probability ``[...]`` of accepting a proposal ``x ~ N(mu_p, sd_p)`` after a rejection (CSpD, section 4.3).

  It is ``max(0, S p(x) - q(x)) / (S p(x)) = 1 - min(1, q / (S p))``. If S p < q everywhere no proposal is accepted, so a
  loop over proposals needs a cap.

  Args:
    log_sigma: `log_sigma_ratio` as published, its negative as released, 0 for the exact residual.
  """
  log_quotient = normal_log_prob(x, q.mean, q.log_std) - normal_log_prob(x, p.mean, p.log_std) - log_sigma
  return -jnp.expm1(jnp.minimum(log_quotient, 0.0))
