"""Couplings of Gaussians: the output has the target's distribution, and the acceptance is as stated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec.rules import couplings

ROWS = 60_000
MU_Q, MU_P = np.asarray([[0.3, -0.2]], np.float32), np.asarray([[0.0, 0.1]], np.float32)
SD_Q, SD_P = np.asarray([[1.0, 0.6]], np.float32), np.asarray([[0.8, 0.9]], np.float32)
GENERATOR = np.random.default_rng(0)
NORMALS = GENERATOR.normal(size=(3, ROWS, 2)).astype(np.float32)
LOG_U = np.log(GENERATOR.random(ROWS)).astype(np.float32)


def _proposals(round_):
  normals, uniforms = (jax.random.fold_in(jax.random.fold_in(jax.random.key(2), i), round_) for i in range(2))
  return jax.random.normal(normals, (ROWS, 2)), jnp.log(jax.random.uniform(uniforms, (ROWS,)))


def _run(rule, mu_q, sd_q, mu_p, sd_p, **kwargs):
  """The coupling, compiled, and the draft in the same program."""
  z, w, xi = NORMALS

  @jax.jit
  def run():
    if rule == "reflect":
      out = couplings.reflect(mu_q, mu_p, jnp.asarray(sd_p), z, LOG_U)
    elif rule == "split":
      out = couplings.split(mu_q, sd_q, mu_p, sd_p, z, w, xi, LOG_U)
    else:
      out = couplings.maximal(mu_q, sd_q, mu_p, sd_p, z, LOG_U, _proposals, **kwargs)
    return out, mu_q + jnp.asarray(sd_q) * z

  return jax.tree.map(np.asarray, run())


@pytest.mark.slow
@pytest.mark.parametrize(
  "rule, sd_q, acceptance, kwargs",
  [
    ("reflect", SD_P, 0.8019, {}),
    ("split", SD_Q, 0.5393, {}),
    ("maximal", SD_Q, 0.7295, {}),
    pytest.param("maximal", SD_Q, 0.6797, {"eta": 0.9}, marks=pytest.mark.slow),
  ],
)
def test_distribution_and_acceptance(rule, sd_q, acceptance, kwargs):
  out, draft = _run(rule, MU_Q, sd_q, MU_P, SD_P, **kwargs)
  assert np.mean(out.accepted) == pytest.approx(acceptance, abs=4 * 0.5 / ROWS**0.5)
  white = (out.x - MU_P) / SD_P
  for direction in ((1, 0), (0, 1), (1, 1), (1, -1)):
    assert stats.kstest(white @ np.asarray(direction) / np.linalg.norm(direction), "norm").pvalue > 0.01
  np.testing.assert_array_equal(out.x[out.accepted], draft[out.accepted])
  if out.num_tries is not None:
    assert np.all(out.num_tries >= 0)
    assert np.mean(out.num_tries) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("rule", ["reflect", "split", "maximal"])
def test_equal_distributions_accept_every_draft(rule):
  out, draft = _run(rule, MU_Q, SD_Q, MU_Q, SD_Q)
  assert np.all(out.accepted)
  np.testing.assert_array_equal(out.x, draft)


@pytest.mark.slow
def test_a_cap_is_reported():
  """The distributions are almost equal, so proposals rarely hit the residual after a rejection."""
  out, _ = _run("maximal", MU_Q, SD_Q, MU_Q + 1e-4, SD_Q, max_tries=2)
  rejected = ~out.accepted
  assert rejected.any()
  assert np.all(out.num_tries[~rejected] == 0) and np.all(out.num_tries[rejected] == -1) and np.all(np.isfinite(out.x))


def test_the_ratio_of_thousands_of_components_keeps_its_digits():
  """As for DiT: the logarithms of the two densities are thousands, their ratio is of the order of 1."""
  generator, size = np.random.default_rng(5), (8, 4096)
  mu_q, z = generator.normal(size=(2, *size)).astype(np.float32)
  sd_q = np.exp(generator.normal(-4.0, 0.2, size)).astype(np.float32)
  mu_p = (mu_q + sd_q * generator.normal(0, 0.01, size)).astype(np.float32)
  sd_p = (sd_q * np.exp(generator.normal(0, 0.005, size))).astype(np.float32)
  draft = mu_q + sd_q * z
  nothing = lambda number: (jnp.zeros(size), jnp.zeros(size[:1]))
  got = couplings.maximal(
    mu_q, sd_q, mu_p, sd_p, jnp.asarray(z), jnp.full(size[:1], -jnp.inf), nothing, max_tries=0
  ).log_ratio
  of = lambda mean, std: stats.norm.logpdf(*(part.astype(np.float64) for part in (draft, mean, std)))
  difference = of(mu_p, sd_p) - of(mu_q, sd_q)
  assert np.abs(of(mu_p, sd_p).sum(axis=1)).min() > 1e3
  np.testing.assert_allclose(got, difference.sum(axis=1), atol=3e-4)
