"""Denoising steps as tokens: every committed one follows the target's step; acceptance is maximal."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec import testing
from jaxspec.core import commits
from jaxspec.core.types import Cursor, Draft
from jaxspec.diffusion import chain, ddpm
from jaxspec.diffusion.chain import StepDistribution
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.diffusion.step_payloads import TargetSteps, drafted_steps, target_steps
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.coupled_steps import Coupler
from jaxspec.rules.step_coupling import StepCoupling
from tests.helpers import slow_but
from tests.models import dit_golden

ROWS, WINDOW, FIRST = 20_000, 2, 5
ONE = jnp.float32(1)
RULES = {
  "maximal": StepCoupling(Coupler("maximal", eta=1.0)),
  "split": StepCoupling(Coupler("split")),
}


def _target(number, x):
  """Mean and deviation depend on the state, and on the step."""
  mean = 0.8 * x + 0.3 * jnp.sin(x) + 0.1 * number
  return StepDistribution(mean, 2 * (0.2 * jnp.tanh(x) - 0.05 * number), mean)


def _draft(spread):
  """A draft with other means; with ``spread`` also with other deviations, else with the target's."""

  def distribution(number, x):
    mean = 0.9 * x + 0.1 * number + 0.6
    return StepDistribution(mean, 2 * jnp.full_like(x, 0.1) if spread else _target(number, x).log_variance, mean)

  return distribution


def _round(rule, x, drafting, num_drafted, *, noisy_end=True, number=FIRST):
  """One round from states ``x [B, C]``: the draft, the verdict, the committed block."""
  number = jnp.full((len(x),), number, jnp.int32)
  noise = jnp.asarray(np.random.default_rng(1).normal(size=(len(x), WINDOW, x.shape[1])), jnp.float32)
  states, distributions = chain.follow(drafting, x, number, noise, ONE, noisy_end=noisy_end)
  draft = Draft.chain(states, drafted_steps(distributions, noise, ONE), jnp.asarray(num_drafted, jnp.int32), 0)
  inputs = jnp.concatenate([x[:, None], states], axis=1)
  numbers = jnp.maximum(number[:, None] - jnp.arange(WINDOW + 1)[None], 0)
  own = jnp.asarray(np.random.default_rng(2).normal(size=inputs.shape), jnp.float32)
  steps = target_steps(_target(numbers[..., None], inputs), numbers, own, ONE, noisy_end=noisy_end)
  verdict = rule(testing.fast_keys(0, len(x)), draft, steps)
  return draft, verdict, commits.committed_block(draft, verdict)


def _white(state, number, before):
  """The noise of the target's own step; standard normal if the state follows it."""
  distribution = _target(number, before)
  return np.asarray((state - distribution.mean) * jnp.exp(-0.5 * distribution.log_variance))


@pytest.mark.parametrize("name", slow_but(RULES, ["maximal"]))
def test_every_state_follows_the_target(name):
  """Rows of 0, 1 and 2 drafts; the second state is judged given the first."""
  x = jax.random.normal(jax.random.key(3), (ROWS, 1))
  num_drafted = np.arange(ROWS) % 3
  draft, verdict, block = jax.jit(lambda x: _round(RULES[name], x, _draft(True), num_drafted))(x)
  accepted = np.asarray(verdict.num_accepted)
  assert set(accepted) == {0, 1, 2} and (accepted <= num_drafted).all()
  assert not np.any(verdict.metrics.fallback)
  before, white = x, []
  for offset in range(3):
    rows = accepted >= offset
    noise = _white(block[:, offset], FIRST - offset, before)[rows, 0]
    white.append(noise)
    assert stats.kstest(noise, "norm").pvalue > 0.01, offset
    # It is independent of the previous state.
    assert stats.kstest((noise + np.asarray(_ranks(before[rows, 0]))) / 2**0.5, "norm").pvalue > 0.01, offset
    before = block[:, offset]
  np.testing.assert_array_equal(block[accepted == 2, :2], draft.tokens[accepted == 2])


def _ranks(x):
  """Standard normal quantiles of the ranks of numbers."""
  return stats.norm.ppf((stats.rankdata(x) - 0.5) / len(x))


def _total_variation(mean_q, sd_q, mean_p, sd_p):
  at = np.linspace(-15, 15, 200_001)
  difference = stats.norm.pdf(at, mean_q, sd_q) - stats.norm.pdf(at, mean_p, sd_p)
  return 0.5 * np.trapezoid(np.abs(difference), at)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [True, False])
def test_acceptance_is_one_minus_the_total_variation(spread):
  x = jnp.full((ROWS, 1), 0.5)
  _, verdict, _ = jax.jit(lambda x: _round(RULES["maximal"], x, _draft(spread), np.ones(ROWS)))(x)
  steps = [fn(jnp.float32(FIRST), x[:1]) for fn in (_draft(spread), _target)]
  parts = [(float(step.mean[0, 0]), float(jnp.exp(0.5 * step.log_variance)[0, 0])) for step in steps]
  best = 1 - _total_variation(*parts[0], *parts[1])
  if not spread:
    assert best == pytest.approx(2 * stats.norm.cdf(-abs(parts[0][0] - parts[1][0]) / parts[1][1] / 2), abs=1e-6)
  assert 0.3 < best < 0.95
  assert np.mean(verdict.num_accepted) == pytest.approx(best, abs=4 * 0.5 / ROWS**0.5)


@pytest.mark.slow
def test_equal_deviations_make_both_couplings_one():
  """Many dimensions: the acceptance depends on the distance of the means alone."""
  rng = np.random.default_rng(2)
  mean, shift = rng.normal(size=(2, 1, 1, 64)).astype(np.float32)
  shift *= 0.8 / np.linalg.norm(shift)
  noise = rng.normal(size=(ROWS, 1, 64)).astype(np.float32)
  states = StepDistribution(jnp.broadcast_to(mean, noise.shape), jnp.full(noise.shape, -1.0), None)
  draft = Draft.chain(states.mean + jnp.exp(-0.5) * noise, drafted_steps(states, noise, ONE), 1, 0)
  moved = jnp.broadcast_to(mean + np.exp(-0.5) * shift, (ROWS, 2, 64))
  target = TargetSteps(moved, jnp.full(moved.shape, -0.5), jnp.zeros(moved.shape))
  for rule in RULES.values():
    verdict = jax.jit(rule)(testing.fast_keys(0, ROWS), draft, target)
    assert np.mean(verdict.num_accepted) == pytest.approx(2 * stats.norm.cdf(-0.4), abs=4 * 0.5 / ROWS**0.5)
    first = commits.committed_block(draft, verdict)[:, 0]
    along = np.asarray((first - moved[:, 0]) @ shift[0, 0]) / 0.8 / np.exp(-0.5)
    assert stats.kstest(along, "norm").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_the_last_step_is_the_target_s_own(name):
  """It ends in the mean. A draft of it is never accepted, and is replaced by the mean exactly."""
  x = jax.random.normal(jax.random.key(3), (12, 1))
  _, verdict, block = jax.jit(lambda x: _round(RULES[name], x, _target, np.full(12, WINDOW), noisy_end=False, number=1))(x)
  # Step 1 is the target's own and accepted; step 0 was drafted, too.
  np.testing.assert_array_equal(verdict.num_accepted, 1)
  np.testing.assert_allclose(block[:, 1], _target(0, block[:, 0]).mean, rtol=1e-6)
  assert not np.any(verdict.metrics.fallback) and not np.any(verdict.metrics.tries)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_drafts_of_the_target_are_accepted(name):
  x = jax.random.normal(jax.random.key(3), (100, 3))
  draft, verdict, block = jax.jit(lambda x: _round(RULES[name], x, _target, np.full(100, WINDOW)))(x)
  np.testing.assert_array_equal(verdict.num_accepted, WINDOW)
  np.testing.assert_array_equal(block[:, :WINDOW], draft.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_slots_without_a_draft_do_not_matter(name):
  x = jax.random.normal(jax.random.key(3), (40, 1))
  num_drafted = np.arange(40) % 2
  draft, verdict, _ = jax.jit(lambda x: _round(RULES[name], x, _draft(True), num_drafted))(x)
  empty = np.arange(WINDOW)[None] >= num_drafted[:, None]
  spoil = lambda leaf: jnp.where(empty[..., None], jnp.nan, leaf)
  other = Draft.chain(spoil(draft.tokens), jax.tree.map(spoil, draft.proposal), draft.num_drafted, 0)
  inputs = jnp.concatenate([x[:, None], draft.tokens], axis=1)
  numbers = FIRST - jnp.broadcast_to(jnp.arange(WINDOW + 1), inputs.shape[:2])
  own = jnp.asarray(np.random.default_rng(2).normal(size=inputs.shape), jnp.float32)
  steps = target_steps(_target(numbers[..., None], inputs), numbers, own, ONE, noisy_end=True)
  got = jax.jit(RULES[name])(testing.fast_keys(0, 40), other, steps)
  np.testing.assert_array_equal(got.num_accepted, verdict.num_accepted)
  np.testing.assert_allclose(got.next_tokens, verdict.next_tokens, atol=1e-5)


@pytest.mark.slow
def test_no_draft_is_the_target_s_own_step():
  x = jnp.full((ROWS, 1), 0.5)
  number = jnp.full((ROWS, 1), FIRST)
  own = jax.random.normal(jax.random.key(5), (ROWS, 1, 1))
  steps = target_steps(_target(number[..., None], x[:, None]), number, own, ONE, noisy_end=True)
  cursor = Cursor(x, number[:, 0], number[:, 0] > 0, jnp.int32(0))
  verdict = jax.jit(RULES["maximal"])(testing.fast_keys(0, ROWS), Draft.empty(cursor.last), steps)
  assert stats.kstest(_white(verdict.next_tokens[:, 0], FIRST, x)[:, 0], "norm").pvalue > 0.01
  assert not np.any(verdict.num_accepted)


def test_bad_settings_are_errors():
  for change, message in (
    (dict(coupling="lucky"), "coupling in maximal, split"),
    (dict(eta=0.0), "eta"),
    (dict(max_tries=0), "max_tries"),
  ):
    with pytest.raises(ValueError, match=message):
      dataclasses.replace(Coupler(), **change)


@pytest.mark.slow
def test_frozen_drafts_of_a_network():
  """The target's last prediction drafts for a small DiT: every state still follows the network's own step."""
  model, tables, rows, number = dit_golden.network(), diffusion_tables("250", "linear"), 64, 120
  labels = ClassLabels(jnp.arange(rows) % 10)
  before, own, *noise = np.random.default_rng(4).normal(size=(2 + WINDOW, rows, model.config.state_dim)).astype(np.float32)

  @jax.jit
  def run(before, own, noise):
    predict_fn = model.fns.predictor(model.params, labels, tables.timesteps)
    full = lambda value: jnp.full((rows, 1), value)
    stale = predict_fn(full(number + 1), before)
    x = chain.next_state(ddpm.step_distribution(tables, full(number + 1), before, stale), full(number + 1), own, ONE)
    frozen = ddpm.distribution_fn(lambda index, x: stale, tables)
    states, drawn = chain.follow(frozen, x, full(number)[:, 0], noise, ONE)
    draft = Draft.chain(states, drafted_steps(drawn, noise, ONE), WINDOW, 0)
    # All states of all rows in one pass, [K + 1, B, C].
    inputs = jnp.concatenate([x[None], states.swapaxes(0, 1)])
    numbers = number - jnp.arange(WINDOW + 1)
    judged = ddpm.distribution_fn(predict_fn, tables)(numbers[:, None, None], inputs)
    judged = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), judged)
    fresh = jax.random.normal(jax.random.key(5), judged.mean.shape)
    steps = target_steps(judged, jnp.broadcast_to(numbers[None], (rows, WINDOW + 1)), fresh, ONE)
    verdict = RULES["split"](testing.fast_keys(0, rows), draft, steps)
    return verdict, commits.committed_block(draft, verdict), steps

  verdict, block, steps = run(before, own, np.stack(noise, axis=1))
  assert 0 < np.mean(verdict.num_accepted) < WINDOW
  for offset in range(2):
    followed = np.asarray(verdict.num_accepted) >= offset
    white = np.asarray((block - steps.mean[:, : WINDOW + 1]) * jnp.exp(-steps.log_std))[followed, offset]
    assert stats.kstest(white.ravel(), "norm").pvalue > 0.01, offset
