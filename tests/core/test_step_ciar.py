"""CIAR on denoising steps: its limits are the two networks alone, and every step is that of its side."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core import rng
from jaxspec.core.network import Network
from jaxspec.core.state import Origin
from jaxspec.diffusion.chain import step_normals
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.drafters.ciar_steps import CiarStepDrafter, interval_score, random_score, weighted_score
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.dit import dit_fns
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import DenoisingSampling
from tests import denoising_toy as denoising_toy
from tests import helpers
from tests.denoising_toy import DIM, NEAR, NETWORK, TARGET
from tests.methods import networks

ROWS, STEPS = 6, NETWORK.num_steps
LABELS = ClassLabels(jnp.arange(ROWS) % 2)


def _keys():
  return jax.random.split(jax.random.key(3), ROWS)


def _draw(method, **fields):
  known = dict(target=denoising_toy.network(TARGET), draft=None if method.name == "ar" else denoising_toy.network(NEAR))
  known |= dict(sampling=DenoisingSampling(denoising_toy.STEPS))
  return Decoder(method=method, **(known | fields))(LABELS, key=_keys())


def _chains(origin):
  """The states ``[B, N, C]`` with each step taken by the side of its origin, in float64."""
  numbers = jnp.arange(STEPS + 1)[None]
  noise = {}
  for stream in (rng.Stream.FIRST, rng.Stream.OPEN):
    noise[stream] = np.asarray(step_normals(rng.stream_keys(_keys(), stream, jnp.int32(0)), numbers, DIM), np.float64)
  chains = np.zeros((ROWS, STEPS, DIM))
  for row in range(ROWS):
    state = None
    for token in range(STEPS):
      number, is_local = STEPS - 1 - token, origin[row, token] == Origin.LOCAL
      own = noise[rng.Stream.OPEN if is_local else rng.Stream.FIRST][row]
      matrix, shift, std = denoising_toy.affine(number, NEAR if is_local else TARGET, row % 2)
      state = (own[STEPS] if state is None else state) @ matrix + shift + std * own[number]
      chains[row, token] = state
  return chains


def _follows(out):
  np.testing.assert_allclose(out.tokens, _chains(np.asarray(out.origin)), rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_everything_is_local():
  """The edge alone, from its own noise, without cloud calls."""
  out = _draw(methods.StepCiar(tau=float("inf"), max_run=4))
  assert np.all(out.origin == int(Origin.LOCAL)) and not np.any(out.counters.target_calls)
  assert np.all(out.counters.draft_calls == STEPS - 1)  # the first step is the prefill's
  _follows(out)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 7])
def test_code(first):
  """The cloud takes the first steps, the edge the others."""
  out = _draw(methods.StepCiar(tau=float("inf"), target_prefix=first / STEPS))
  own = [Origin.FIRST, *[Origin.BONUS] * (first - 1)]
  assert out.origin.tolist() == [own + [Origin.LOCAL] * (STEPS - first)] * ROWS
  assert np.all(out.counters.target_calls == first)
  _follows(out)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 7), (2, 3)])
def test_the_cloud_takes_the_last_steps(first, last):
  """The edge takes the steps between both ends, without a pass for those of the suffix."""
  method = methods.StepCiar(tau=float("inf"), target_prefix=first / STEPS, target_suffix=last / STEPS, max_run=4)
  out = _draw(method)
  local = STEPS - first - last
  own = [Origin.FIRST, *[Origin.BONUS] * (first - 1)] if first else []
  assert out.origin.tolist() == [own + [Origin.LOCAL] * local + [Origin.BONUS] * last] * ROWS
  assert np.all(out.counters.target_calls == first + last) and np.all(out.report.sent == last)
  assert np.all(out.counters.draft_calls == local - (not first))  # without a prefix the first step is the prefill's
  _follows(out)


@pytest.mark.slow
def test_nothing_is_local():
  """The cloud alone: the states of plain decoding."""
  plain, everything = _draw(methods.Plain()), {"tau": float("inf")}
  ends = ({"target_prefix": 1.0}, {"target_suffix": 1.0}, {"target_prefix": 0.5, "target_suffix": 0.5})
  for method in (methods.StepCiar(tau=-1.0), *(methods.StepCiar(**everything, **end) for end in ends)):
    out = _draw(method)
    np.testing.assert_allclose(out.tokens, plain.tokens, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(out.origin, plain.origin)
    assert np.all(out.counters.target_calls == STEPS)


def test_every_state_is_a_step_of_the_side_that_took_it():
  out = _draw(methods.StepCiar(tau=0.6, score="random", max_run=2))
  local = np.asarray(out.origin) == Origin.LOCAL
  assert 0.3 < local.mean() < 0.9 and len({tuple(row) for row in local}) > 1 and len(set(local[:, 0])) == 2
  np.testing.assert_array_equal(out.counters.target_calls, (~local).sum(1))
  np.testing.assert_array_equal(np.asarray(out.report.scores) <= 0.6, local)
  assert np.all(np.asarray(out.report.sent) == (~local[:, 1:]).sum(1))  # token 0 needs nothing from the edge
  _follows(out)


def test_scores():
  """``mean(2 r) std(2 r)``, of the noise or of the next state; 0 without radii."""
  keys, weight = jax.random.split(jax.random.key(0), 2), jnp.asarray([0.5, 2.0])
  x = jnp.zeros((2, 4))
  radius = jnp.asarray([[1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0]])
  np.testing.assert_allclose(interval_score(Prediction(x, x, radius), weight, keys), [8.0, 0.0], atol=1e-6)
  np.testing.assert_allclose(weighted_score(Prediction(x, x, radius[::-1]), weight, keys), [0.0, 32.0], atol=1e-6)
  for score in (interval_score, weighted_score):
    np.testing.assert_array_equal(score(Prediction(x, x), weight, keys), [0.0, 0.0])
  found = random_score(Prediction(x, x), weight, keys)
  assert found[0] != found[1] and np.all((found >= 0) & (found < 1))


def test_the_weight_of_the_noise_of_a_step():
  """The coefficient of the noise in the mean of a step, of DDPM (arXiv 2006.11239, eq. 11) and of DDIM."""
  tables, index = NETWORK.tables, jnp.arange(STEPS)[:, None]
  wanted = tables.betas / np.sqrt((1 - tables.betas) * (1 - tables.alphas_cumprod))
  np.testing.assert_allclose(NETWORK.noise_weight(index)[:, 0], wanted, rtol=1e-4)
  of_ddim = lambda eta: dataclasses.replace(NETWORK, ddim_eta=eta).noise_weight(index)[:, 0]
  np.testing.assert_allclose(of_ddim(1.0), wanted, rtol=1e-4)
  now, before = tables.alphas_cumprod, tables.alphas_cumprod_prev
  np.testing.assert_allclose(of_ddim(0.0), np.sqrt(before / now * (1 - now)) - np.sqrt(1 - before), rtol=1e-4)


@pytest.mark.slow
def test_scores_of_a_chain_are_weighted_by_its_steps():
  """Without local steps both scores are of the same states."""
  config = dataclasses.replace(networks.DIT, radius=True)
  edge = Network(dit_fns(config), helpers.random_params(dit_fns(config), 2, scale=0.2), config)
  kwargs = dict(target=networks.states(1), draft=edge, sampling=DenoisingSampling(8))
  scores = [
    np.asarray(_draw(methods.StepCiar(tau=-1.0, score=name), **kwargs).report.scores) for name in ("interval", "weighted")
  ]
  weight = np.asarray(DenoisingSampling(8).bind(edge).noise_weight(jnp.arange(8)[:, None]))[::-1, 0]
  np.testing.assert_allclose(scores[1], weight**2 * scores[0], rtol=1e-3)


@pytest.mark.slow
def test_a_network_with_radii():
  """Predictions do not change; with guidance, radii are those of the condition. It decodes as the edge of a plain target."""
  config = dataclasses.replace(networks.DIT, radius=True)
  fns, bare = dit_fns(config), dit_fns(networks.DIT)
  params = helpers.random_params(fns, 2, scale=0.2)
  plain = {name: leaf for name, leaf in params.items() if name != "radius_layer"}
  x, labels = jax.random.normal(jax.random.key(1), (3, config.state_dim)), ClassLabels(jnp.arange(3))
  times, index = np.arange(0, 1000, 125), jnp.full((3, 1), 4)
  ours, theirs = fns.predictor(params, labels, times)(index, x), bare.predictor(plain, labels, times)(index, x)
  np.testing.assert_array_equal(ours.eps, theirs.eps)
  np.testing.assert_array_equal(ours.v, theirs.v)
  assert theirs.radius is None and ours.radius.shape == x.shape and np.all(ours.radius > 0)
  guided = fns.guided_predictor(params, labels, times, jnp.float32(3.0))(index, x)
  np.testing.assert_allclose(guided.radius, ours.radius, rtol=1e-5, atol=1e-6)
  assert np.any(np.abs(guided.eps - ours.eps) > 1e-3)
  level = float(np.median(interval_score(ours, None, None)))
  kwargs = dict(target=networks.states(1), draft=Network(fns, params, config), sampling=DenoisingSampling(8, 2.0))
  out = _draw(methods.StepCiar(tau=level), **kwargs)
  assert set(np.unique(out.origin)) >= {Origin.LOCAL, Origin.BONUS}


def test_bad_settings_are_errors():
  for make, words in (
    (lambda: CiarStepDrafter(NETWORK, interval_score, max_run=0), "max_run of at least 1"),
    (lambda: _draw(methods.StepCiar()), "tau for method step-ciar"),
    (lambda: CiarStepDrafter(NETWORK, interval_score, target_suffix=11), "target_suffix from 0 to 10, we instead got 11"),
    (lambda: methods.StepCiar(target_suffix=-0.1), "target_suffix of at least 0"),
    (lambda: methods.StepCiar(target_prefix=0.5, target_suffix=0.6), "at most 1 together, we instead got 1.1"),
    (lambda: methods.StepCiar(max_run=0), "max_run"),
    (lambda: methods.StepCiar(score="entropy"), "score"),
    (lambda: methods.StepCiar(target_prefix=1.5), "target_prefix"),
    (lambda: _draw(methods.StepCiar(), draft=None), "a draft network"),
    (lambda: _draw(methods.StepCiar(), draft=networks.states(1)), "a draft with state_dim 2"),
  ):
    with pytest.raises(ValueError, match=words) as caught:
      make()
    assert "\n" not in str(caught.value)
