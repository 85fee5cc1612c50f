"""The estimate of a rule's bias from drafted tokens is unbiased, and counts tested drafts only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng
from jaxspec.rules.exact_distribution import exact_distribution
from tests.rules.rules_reference import random_distributions


@pytest.mark.slow
def test_estimate_agrees_with_the_exact_distribution():
  rows, size = 8000, 12
  rule = jaxspec.scaled(2.5)
  p, q = random_distributions(4, 3, size, noise=1.0)
  generator = np.random.default_rng(5)
  normal = lambda distribution: distribution.astype(np.float64) / distribution.sum(dtype=np.float64)
  tokens = np.stack([generator.choice(size, size=rows, p=normal(distribution)) for distribution in q], 1).astype(np.int32)
  spread = lambda distribution: jnp.broadcast_to(jnp.log(jnp.asarray(distribution))[None], (rows, *distribution.shape))
  count = jnp.asarray(np.arange(rows) % 4, jnp.int32)  # ragged, 0 included
  draft = jaxspec.Draft(jnp.asarray(tokens), spread(q), count)
  target = spread(np.concatenate([p, p[:1]]))

  @jax.jit
  def judged(keys):
    verdict = rule((), keys, draft, target)
    return verdict, jaxspec.diagnose(rule, (), draft, target, verdict)

  verdict, found = judged(rng.row_keys(jax.random.key(6), rows))
  exact = exact_distribution(rule, (), p, q)
  np.testing.assert_allclose(exact.tv, exact.excess, atol=1e-5)
  tested, kept = np.asarray(found.tested), np.asarray(verdict.num_accepted)
  np.testing.assert_array_equal(tested.sum(1), np.minimum(kept + 1, np.asarray(count)))
  assert (np.asarray(found.excess)[~tested] == 0).all()
  for position in range(3):
    values = np.asarray(found.excess)[tested[:, position], position]
    error = values.std() / np.sqrt(values.size)
    assert abs(values.mean() - float(exact.tv[position])) < 4 * error and error < 0.03
    np.testing.assert_allclose(np.asarray(found.alpha_sd)[:, position], float(exact.alpha_sd[position]), atol=1e-5)
  assert float(exact.tv.min()) > 0.02
