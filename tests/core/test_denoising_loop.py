"""Speculation on denoising steps in the shared loop: exact against known chains, and against plain sampling."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec import methods
from jaxspec.core.state import Origin, SpecParams
from jaxspec.diffusion import ddim, ddpm
from jaxspec.diffusion.chain import row_noise
from jaxspec.drafters.denoising_model import DenoisingModelDrafter
from jaxspec.drafters.frozen_steps import FrozenStepDrafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.coupled_steps import Coupler
from jaxspec.rules.step_coupling import StepCoupling
from jaxspec.sampling import DenoisingSampling
from jaxspec.testing import fast_keys
from jaxspec.verifiers.denoising_target import DenoisingVerifier
from tests import denoising_toy as denoising_toy
from tests.denoising_toy import DIM, NEAR, NETWORK, TARGET

ROWS = 3000
RULES = {name: StepCoupling(Coupler(name)) for name in ("maximal", "split")}
SHIFTED = denoising_toy.side(shift=(0.6, -0.4))


def _decode(draft, keys, window=3, rule="maximal", *, target=TARGET, label=0, network=NETWORK, **kwargs):
  params = SpecParams(() if draft is None else draft, target)
  drafter = FrozenStepDrafter if draft is None else DenoisingModelDrafter
  parts = dict(drafter=drafter(network, window=window), verifier=DenoisingVerifier(network, RULES[rule]))
  labels = ClassLabels(jnp.full((len(keys),), label, jnp.int32))
  return jaxspec.speculate(params, keys, labels, **parts, **({"max_len": NETWORK.num_steps} | kwargs))


def _follows(states, side, label=0, ddim_eta=None):
  """Checks that chains ``[B, N, C]`` have the network's joint Gaussian distribution over all steps."""
  flat = np.asarray(states, np.float64).reshape(len(states), -1)
  mean, covariance = denoising_toy.moments(side, label, ddim_eta)
  # The last state is the mean of its step, a function of the one before; the others have a density.
  flat, mean, covariance = flat[:, :-DIM], mean[:-DIM], covariance[:-DIM, :-DIM]
  white = np.linalg.solve(np.linalg.cholesky(covariance), (flat - mean).T).T
  found = [stats.kstest(column, "norm").pvalue for column in white.T]
  found.append(stats.kstest(np.sum(white**2, axis=1), stats.chi2(white.shape[1]).cdf).pvalue)
  # Standardised neighbours are independent: their products have mean 0.
  for before, after in zip(white.T, white.T[DIM:]):
    found.append(2 * stats.norm.sf(abs(np.mean(before * after)) * len(white) ** 0.5))
  assert min(found) * len(found) > 0.01, min(found)


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["frozen", "network"])
def test_steps_of_ddim_with_noise_follow_the_target(draft):
  network = dataclasses.replace(NETWORK, ddim_eta=0.6)
  out = _decode(None if draft == "frozen" else NEAR, fast_keys(6, ROWS), network=network)
  _follows(out.tokens, TARGET, ddim_eta=0.6)
  assert np.any(out.origin == int(Origin.DRAFT)) and np.any(out.origin == int(Origin.REPLACED))


@pytest.mark.slow
def test_steps_of_ddim_without_noise_are_those_of_its_sampler():
  """Plain decoding from the noise of the same keys; exact methods refuse such steps, in one line."""
  keys, labels = fast_keys(9, 6), ClassLabels(jnp.arange(6) % 2)
  fields = dict(target=denoising_toy.network(TARGET), sampling=DenoisingSampling(denoising_toy.STEPS, ddim_eta=0.0))
  plain = jaxspec.Decoder(method=methods.Plain(), **fields)(labels, key=keys)
  noise = row_noise(keys, NETWORK.num_steps, DIM).initial
  wanted = jax.jit(lambda noise: ddim.sample(NETWORK.predictor(TARGET, labels), NETWORK.tables, noise))(noise)
  np.testing.assert_allclose(plain.tokens[:, -1], wanted, rtol=1e-4, atol=1e-4)
  for draft in (None, denoising_toy.network(NEAR)):
    with pytest.raises(ValueError, match="ddim_eta above 0 .*method ar draws them.*, we instead got 0$"):
      jaxspec.Decoder(method=methods.StepSpeculative(), draft=draft, **fields).parts


def _last_is_a_mean(states, side, label=0):
  matrix, shift, _ = denoising_toy.affine(0, side, label)
  states = np.asarray(states, np.float64)
  np.testing.assert_allclose(states[:, -1], states[:, -2] @ matrix + shift, atol=1e-4)


@pytest.mark.parametrize("draft, acceptance", [("frozen", 0.174), ("network", 0.329)])
def test_every_state_follows_the_target(draft, acceptance):
  """Kolmogorov-Smirnov test of all steps of chains against their exact distribution, and of squares jointly."""
  out = _decode(None if draft == "frozen" else NEAR, fast_keys(3, ROWS))
  _follows(out.tokens, TARGET)
  _last_is_a_mean(out.tokens, TARGET)
  assert not np.any(out.metrics.fallback)
  accepted, drafted = np.sum(out.counters.accepted), np.sum(out.counters.drafted)
  assert accepted / drafted == pytest.approx(acceptance, abs=0.02)
  assert set(np.unique(out.origin)) == {Origin.FIRST, Origin.DRAFT, Origin.REPLACED, Origin.BONUS}
  assert not np.any(out.accepted_mask[:, -1])  # always the target's


@pytest.mark.slow
@pytest.mark.parametrize(
  ("draft", "window", "rule"),
  [("frozen", 1, "split"), ("frozen", 5, "maximal"), ("network", 1, "maximal"), ("network", 5, "split")],
)
def test_more_settings_follow_the_target(draft, window, rule):
  out = _decode(None if draft == "frozen" else NEAR, fast_keys(4, 3 * ROWS), window, rule, label=1, target_prefix=2)
  _follows(out.tokens, TARGET, 1)
  _last_is_a_mean(out.tokens, TARGET, 1)
  assert np.isin(out.origin[:, :2], (Origin.FIRST, Origin.BONUS)).all() and np.any(out.accepted_mask)


@pytest.mark.slow
def test_acceptance_of_equal_deviations():
  """``2 Phi(-|D| / 2)`` at every step, with D the distance of the means in deviations; here the same for all states."""
  out = _decode(SHIFTED, fast_keys(5, ROWS), 1, "split")
  origin, replaced = np.asarray(out.origin), int(Origin.REPLACED)
  tested = 0
  for token in range(1, NETWORK.num_steps - 1):
    _, own, std = denoising_toy.affine(NETWORK.num_steps - 1 - token, TARGET)
    _, other, _ = denoising_toy.affine(NETWORK.num_steps - 1 - token, SHIFTED)
    expected = 2 * stats.norm.cdf(-0.5 * np.linalg.norm((own - other) / std))
    accepted, rejected = np.sum(origin[:, token] == Origin.DRAFT), np.sum(origin[:, token] == replaced)
    if accepted + rejected > 100:
      tested += 1
      assert stats.binomtest(int(accepted), int(accepted + rejected), expected).pvalue > 0.002, token
  assert tested >= 3


@pytest.mark.slow
def test_a_draft_that_is_the_target_is_accepted():
  """All steps are accepted except the last of a row, which is the target's own; the number of rounds is minimal."""
  keys = fast_keys(7, 40)
  out = _decode(TARGET, keys, 3, "split")
  four = [Origin.DRAFT] * 3 + [Origin.BONUS]
  assert out.origin.tolist() == [[Origin.FIRST, *four, *four, Origin.BONUS]] * 40
  names = ("drafted", "accepted", "target_calls", "draft_calls")
  # The draft network makes three passes a round; those of the last round are not used.
  assert [np.unique(getattr(out.counters, name)).tolist() for name in names] == [[6], [6], [4], [9]]
  # A frozen prediction is exact if it does not depend on the state.
  constant = denoising_toy.side(np.zeros((2, 2)))
  frozen = _decode(None, keys, 3, "split", target=constant)
  assert frozen.origin.tolist() == out.origin.tolist() and not np.any(frozen.counters.draft_calls)


@pytest.mark.slow
def test_rows_alone_and_in_a_batch():
  """A row has the same states in any batch, in the fused loop and in Python."""
  keys = fast_keys(9, 6)
  together = _decode(NEAR, keys)
  for row in range(6):
    alone = _decode(NEAR, keys[row : row + 1])
    np.testing.assert_allclose(alone.tokens[0], together.tokens[row], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(alone.origin[0], together.origin[row])
  assert len(np.unique(together.counters.rounds)) > 1
  on_host = _decode(NEAR, keys, loop="host")
  np.testing.assert_allclose(on_host.tokens, together.tokens, rtol=1e-4, atol=1e-4)


def test_plain_decoding_is_the_sampler():
  """The same states from the same keys."""
  keys, labels = fast_keys(9, 6), ClassLabels(jnp.arange(6) % 2)
  plain = jaxspec.autoregress(
    SpecParams((), TARGET), keys, labels, verifier=DenoisingVerifier(NETWORK, StepCoupling()), max_len=NETWORK.num_steps
  )
  noise = row_noise(keys, NETWORK.num_steps, DIM)
  chain = jax.jit(
    lambda noise: ddpm.sample(NETWORK.predictor(TARGET, labels), NETWORK.tables, noise, jnp.float32(1), record=True)
  )(noise)
  np.testing.assert_allclose(plain.tokens[:, -1], chain.token, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(plain.tokens[:, :-1], chain.states[::-1][1:].swapaxes(0, 1), rtol=1e-4, atol=1e-4)


def test_bad_settings_are_errors():
  for make in (FrozenStepDrafter, DenoisingModelDrafter):
    with pytest.raises(ValueError, match="window of at least 1"):
      make(NETWORK, window=0)
  with pytest.raises(ValueError, match="at most the 10 states of a chain, we instead got 11"):
    _decode(None, fast_keys(0, 1), max_len=11)
