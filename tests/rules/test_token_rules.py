"""Distributions of decodes of continuous tokens: the published rule is biased if its last step is wide; exact rules are not.

The theory is for one token whose chain has two steps, ``x_1 = s e + shift`` and ``N(x_1, 1)``. The target's distribution is
``N(0, 1 + s_p^2)``. The Kolmogorov-Smirnov distance of the published ratio from it is 0.037 with (s_q, s_p, shift) =
(1.5, 1, 0) and 0.087 with (2, 1, 0.5), for any number of rows.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec import testing
from jaxspec.core import rng
from jaxspec.core.state import Origin
from jaxspec.rules.path_coupling import PathCoupling
from jaxspec.rules.path_ratio import PathRatio
from tests import token_toy
from tests.token_toy import TWO_STEPS, distribution_params

ROWS = 20_000
CRITICAL = 1.63 / ROWS**0.5  # 1 % point of the one-sample statistic, 0.0115
DRAFT, TARGET = distribution_params(2.0, 0.5), distribution_params(1.0)
# Other exact rules are those of the joint distributions below.
EXACT = [
  PathCoupling(coupling="split"),
  PathCoupling(shared_steps=0, eta=1.0),
  PathRatio("none", align=False, max_tries=2000),
]


def decode(*args, rows, **kwargs):
  """Decodes with keys of a cheap generator: with many rows, most time is spent on random numbers."""
  return token_toy.decode(*args, rows=rows, key=testing.fast_keys(0, rows), **kwargs)


def _distance(tokens, deviation: float) -> float:
  return stats.kstest(np.asarray(tokens), "norm", args=(0, deviation)).statistic


@pytest.mark.slow
@pytest.mark.long_runs
def test_the_published_rule_is_biased():
  out, tokens = decode(DRAFT, TARGET, PathRatio(max_tries=1000), rows=ROWS, length=3, window=1)
  assert np.mean(out.origin[:, 1] == Origin.DRAFT) == pytest.approx(0.816, abs=0.012)
  assert _distance(tokens[:, 1], 2**0.5) == pytest.approx(0.0872, abs=0.012)
  # Token 0 and the last token come from the target alone; the last token cannot be a draft.
  assert _distance(tokens[:, 0], 2**0.5) < CRITICAL and _distance(tokens[:, 2], 2**0.5) < CRITICAL


@pytest.mark.slow
@pytest.mark.long_runs
@pytest.mark.parametrize("rule", EXACT)
def test_exact_rules_keep_the_distribution(rule):
  out, tokens = decode(DRAFT, TARGET, rule, rows=ROWS, length=3, window=1)
  accepted = np.mean(out.origin[:, 1] == Origin.DRAFT)
  assert 0.2 < accepted < 0.9
  for position in range(3):
    assert _distance(tokens[:, position], 2**0.5) < CRITICAL
  # Tokens are independent: acceptance of a draft does not correlate neighbours.
  assert abs(np.corrcoef(np.asarray(tokens)[:, 1:].T)[0, 1]) < 4 / ROWS**0.5
  assert not np.any(out.metrics.fallback)


@pytest.mark.slow
@pytest.mark.long_runs
@pytest.mark.parametrize("rule", [PathCoupling(), PathCoupling(shared_steps=0, coupling="split"), PathRatio("none")])
def test_joint_distribution_of_several_drafts(rule):
  """The target is ``x_i = 0.8 x_{i-1} + N(0, 0.36)``; the draft has another correlation and scale."""
  target = distribution_params(0.36, coef=0.8, last=0.48)
  draft = distribution_params(0.45, shift=0.1, coef=0.55, last=0.5)
  out, tokens = decode(draft, target, rule, rows=ROWS, length=5, window=3)
  assert 0.05 < np.mean(out.origin[:, 2] == Origin.DRAFT) < 0.98
  x = np.asarray(tokens, np.float64)
  noise = (x[:, 1:] - 0.8 * x[:, :-1]) / 0.6
  for position in range(4):
    assert stats.kstest(noise[:, position], "norm").pvalue > 1e-3
  correlations = np.corrcoef(np.concatenate([x[:, :1], noise], axis=1).T) - np.eye(5)
  assert np.abs(correlations).max() < 4.5 / ROWS**0.5


@pytest.mark.slow
@pytest.mark.long_runs
def test_drafts_that_are_judged_one_by_one_keep_the_distribution_of_every_token():
  """Tokens are independent here, so a whole block loses nothing: after a rejection drafts are accepted and replaced too."""
  rule = PathRatio("none", max_tries=2000, block=True)
  out, tokens = decode(DRAFT, TARGET, rule, rows=ROWS, length=5, window=3)
  np.testing.assert_array_equal(out.commit_round, np.broadcast_to([0, 1, 1, 1, 2], (ROWS, 5)))
  origin = np.asarray(out.origin)
  accepted = (origin == Origin.DRAFT)[:, 1:4].mean(axis=0)
  np.testing.assert_allclose(accepted, accepted[0], atol=0.02)  # no position suffers from earlier rejections
  assert np.mean((origin[:, 1] == Origin.REPLACED) & (origin[:, 2] == Origin.DRAFT)) > 0.05
  for position in range(5):
    assert _distance(tokens[:, position], 2**0.5) < CRITICAL
  assert np.abs(np.corrcoef(np.asarray(tokens)[:, 1:].T) - np.eye(4)).max() < 4.5 / ROWS**0.5


@pytest.mark.slow
def test_a_block_whose_drafts_are_all_accepted_is_that_of_the_usual_rule():
  """But for the token of the target after it; the fused loop, a Python loop and a row alone agree."""
  key, same = jax.random.key(3), dict(rows=33, length=9, window=3)
  usual, expected = token_toy.decode(TARGET, TARGET, PathRatio(), key=key, **same)
  out, tokens = token_toy.decode(TARGET, TARGET, PathRatio(block=True), key=key, **same)
  np.testing.assert_array_equal(tokens[:, :4], expected[:, :4])
  np.testing.assert_array_equal(out.origin[:, :4], usual.origin[:, :4])
  np.testing.assert_array_equal(out.counters.accepted, 7)
  np.testing.assert_array_equal(out.counters.rounds, 3)  # 1 + 3 + 3 + 2
  draft = distribution_params(2.0, 0.5)
  fused, _ = token_toy.decode(draft, TARGET, PathRatio(block=True), key=key, **same)
  host, _ = token_toy.decode(draft, TARGET, PathRatio(block=True), key=key, loop="host", **same)
  jax.tree.map(np.testing.assert_array_equal, fused, host)
  last = rng.row_keys(key, 33)[32:]
  alone, _ = token_toy.decode(draft, TARGET, PathRatio(block=True), key=last, rows=1, length=9, window=3)
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[32:], b), fused, alone)
  assert 0 < int(fused.counters.accepted.sum()) < int(fused.counters.drafted.sum())


@pytest.mark.slow
def test_a_cap_is_reported():
  """If the Sigma product is so small that no proposal can be accepted, the loop ends at its cap and reports it."""
  out, _ = decode(distribution_params(0.5), distribution_params(4.0), PathRatio(max_tries=3), rows=500, length=3, window=1)
  fallback = np.asarray(out.metrics.fallback)
  assert fallback[:, 1].mean() > 0.2 and not fallback[:, 0].any()
  np.testing.assert_array_equal(np.asarray(out.metrics.tries)[fallback], 3)
  assert (np.asarray(out.origin)[fallback] == Origin.REPLACED).all()
  assert np.isfinite(out.tokens).all()


@pytest.mark.slow
@pytest.mark.parametrize("rule", [PathRatio(), PathCoupling(eta=1.0), PathCoupling(shared_steps=0, coupling="split")])
def test_equal_networks_accept_every_draft(rule):
  out, _ = decode(TARGET, TARGET, rule, rows=64, length=9, window=3)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  np.testing.assert_array_equal(out.counters.rounds, 2)  # 1 + 4 + 4


@pytest.mark.slow
@pytest.mark.long_runs
def test_alignment_raises_acceptance():
  rates = []
  for align in (True, False):
    out, _ = decode(DRAFT, TARGET, PathRatio(align=align), rows=4000, length=3, window=1)
    rates.append(np.mean(out.origin[:, 1] == Origin.DRAFT))
  assert rates[0] > 1.3 * rates[1]


@pytest.mark.parametrize(
  "make, message",
  [
    (lambda: PathRatio("product"), "sigma in paper, released, none"),
    (lambda: PathRatio(inner_temperature=0.0), "inner_temperature above 0"),
    (lambda: PathRatio(max_tries=0), "max_tries of at least 1"),
    (lambda: PathRatio("none").check(5, False), "end with noise"),
    (lambda: PathCoupling().check(5, False), "end with noise"),
    (lambda: PathCoupling(shared_steps=5).check(5, True), "below the 5 steps"),
    (lambda: PathCoupling(coupling="mirror"), "coupling in maximal, split"),
    (lambda: PathCoupling(eta=0.0), "eta above 0"),
    (lambda: PathCoupling(shared_steps=-1), "shared_steps of at least 0"),
  ],
)
def test_bad_arguments_are_errors(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.slow
def test_ratio_equals_the_published_one():
  from jaxspec.diffusion.chain import ChainSummary
  from jaxspec.rules import gaussian_path

  draw = lambda seed, *shape: jax.random.normal(jax.random.key(seed), shape)
  q, p = (ChainSummary(draw(i, 5, 3), draw(i + 2, 5, 3), draw(i + 4, 5)) for i in range(2))
  x = draw(9, 5, 3)
  for sigma, expected in (("paper", True), ("none", False)):
    ratio = PathRatio(sigma).log_ratio(x, p, q)
    np.testing.assert_allclose(ratio, gaussian_path.paper_log_ratio(x, p, q, sigma=expected), rtol=1e-4, atol=1e-4)
  ratio = PathRatio("released", inner_temperature=42.0).log_ratio(x, p, q)
  np.testing.assert_allclose(ratio, gaussian_path.released_log_ratio(x, p, q), rtol=1e-4, atol=1e-4)
  assert jnp.isfinite(ratio).all() and TWO_STEPS.noisy_end
