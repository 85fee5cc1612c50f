"""Grouped acceptance with fixed groups: the theorem about partitions, and its bounds."""

import jax.numpy as jnp
import numpy as np

from jaxspec.rules.exact_distribution import exact_distribution, total_variation
from jaxspec.rules.static_groups import StaticGroupsRule
from tests.rules.rules_reference import random_distributions


def test_theorem_on_partitions():
  """alpha = 1 - TV of the group masses; TV(p, q) - TV(p', q') <= TV(phat, p) <= the smaller of the two bounds."""
  size, num_groups = 30, 6
  groups = np.random.default_rng(0).integers(num_groups, size=size)
  p, q = random_distributions(1, 12, size, sharpness=1.5, noise=1.0)
  found = exact_distribution(StaticGroupsRule(), jnp.asarray(groups, jnp.int32), p, q)
  member = (groups[:, None] == np.arange(num_groups)).astype(np.float64)
  coarse_p, coarse_q = p @ member, q @ member
  coarse = np.asarray(total_variation(coarse_p, coarse_q))
  np.testing.assert_allclose(found.alpha, 1 - coarse, atol=1e-6)
  fine = np.asarray(total_variation(p, q))
  assert (found.tv >= fine - coarse - 1e-6).all()
  inside = np.abs(p / (coarse_p @ member.T) - q / (coarse_q @ member.T)) @ member / 2
  bound = np.minimum(fine, (np.minimum(coarse_p, coarse_q) * inside).sum(-1))
  assert (found.tv <= bound + 1e-6).all()
  assert float(found.tv.min()) > 0.01
