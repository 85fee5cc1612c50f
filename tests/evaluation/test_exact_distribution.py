"""Distances between distributions, and the optimality of the optimal residual."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxspec.rules.chain_rule import ChainRule
from jaxspec.rules.exact_distribution import exact_distribution, kl_divergence, total_variation
from jaxspec.rules.scaled_rule import ScaledRule
from tests.rules.rules_reference import random_distributions


def test_distances_between_distributions():
  a, b = random_distributions(0, 6, 10)
  np.testing.assert_allclose(total_variation(a, b), np.abs(a - b).sum(-1) / 2, atol=1e-6)
  np.testing.assert_allclose(kl_divergence(a, b), special.rel_entr(a, b).sum(-1), rtol=1e-4)
  one, other = jnp.asarray([0.5, 0.5, 0.0]), jnp.asarray([0.5, 0.0, 0.5])
  assert float(kl_divergence(one, other)) == np.inf
  assert float(kl_divergence(one, jnp.asarray([0.25, 0.25, 0.5]))) == np.float32(np.log(2))


@dataclasses.dataclass(frozen=True)
class _Given(ChainRule):
  """An arbitrary acceptance, read from the tables."""

  def accept_all(self, tables, p, q):
    return tables


def test_no_residual_beats_the_optimal_one():
  """For arbitrary acceptances: the optimal residual reaches ``sum [q a - p]+`` and random residuals stay above it."""
  p, q = random_distributions(1, 40, 12, noise=1.0)
  generator = np.random.default_rng(2)
  accept = jnp.asarray(generator.uniform(size=p.shape), jnp.float32)
  distribution_of = jax.jit(exact_distribution, static_argnums=0)
  best, paper = distribution_of(_Given(residual="optimal"), accept, p, q), distribution_of(_Given(), accept, p, q)
  np.testing.assert_allclose(best.tv, best.excess, atol=2e-6)
  assert (paper.tv >= best.tv - 1e-6).all() and float((paper.tv - best.tv).max()) > 0.01
  rejected = 1 - np.asarray(best.alpha)[:, None]
  for _ in range(20):
    other = q * np.asarray(accept) + rejected * generator.dirichlet(np.ones(12), size=40)
    assert (np.asarray(total_variation(other, p)) >= np.asarray(best.tv) - 1e-6).all()


def test_equal_distributions_leave_no_residual():
  p, _ = random_distributions(3, 4, 12)
  found = exact_distribution(ScaledRule(1.0), (), p, p)
  np.testing.assert_allclose(found.distribution, p, atol=1e-6)
  np.testing.assert_allclose(found.alpha, 1.0, atol=1e-6)
  assert np.isfinite(found.kl).all()
