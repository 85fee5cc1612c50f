"""Continuous tokens in the shared loop: drivers agree, rows are independent, limits hold, one compilation serves many
calls."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import loop, orders, rng, rounds
from jaxspec.core.network import Network
from jaxspec.core.state import Origin, SpecParams
from jaxspec.diffusion.chain import token_noise
from jaxspec.drafters.continuous_model import ContinuousModelDrafter
from jaxspec.methods import masked_decode
from jaxspec.models.conditions import ClassLabels, OrderedLabels, Prefixed
from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.models.mar.mar import MARConfig, mar_fns
from jaxspec.models.mar.masked_network import masked_network
from jaxspec.rules.path_coupling import PathCoupling
from jaxspec.rules.path_ratio import PathRatio
from jaxspec.sampling import ContinuousSampling
from jaxspec.verifiers.continuous_target import ContinuousVerifier
from tests.helpers import random_params

# The noisiest step in use is 800. Random heads multiply states and rounding errors by 1 / sqrt(A), which is 20,000 at the
# last step.
N, C, STEPS = 9, 3, "ddim5"
MAR = MARConfig(
  num_tokens=N, latent_channels=C, num_classes=3, buffer_size=2, encoder_dim=8, encoder_depth=1, encoder_heads=2,
  decoder_dim=12, decoder_depth=1, decoder_heads=2, diffloss_width=8, diffloss_depth=1,
)  # fmt: skip
CAUSAL = CausalTokensConfig(
  num_tokens=N, latent_channels=C, num_classes=3, dim=16, num_layers=1, num_heads=2, diffloss_width=8, diffloss_depth=1
)
LABELS = ClassLabels(jnp.asarray([0, 2, 1]))
STOPPED = ContinuousSampling(STEPS, stop=1, temperature=0.9)


def _keys():
  """The same keys every time; each may be consumed once."""
  return rng.row_keys(jax.random.key(7), 3)


def _ordered():
  return OrderedLabels(LABELS.labels, orders.random_order(_keys(), N))


@jax.jit
def _scaled(tree, factor):
  return jax.tree.map(lambda leaf: leaf * factor, tree)


def _pair(family: str, sampling: ContinuousSampling, rule, gamma: int = 3, same: bool = False, num_buckets: int = 2):
  """``(params, kwargs of speculate, condition)`` of a random pair."""
  if family == "causal":
    head, condition = causal_token_fns(CAUSAL), LABELS
  else:
    head, condition = masked_network(mar_fns(MAR), num_buckets=num_buckets), _ordered()
  block = getattr(rule, "block", False)
  judge = masked_network(mar_fns(MAR), num_buckets=num_buckets, common_prefix=True) if block else head
  target = random_params(head.network, 0, scale=0.3)
  # Small variances of a random head make rounding errors visible; a last layer with small weights avoids them.
  linear = target["diffloss"]["final_layer"]["linear"]
  target["diffloss"]["final_layer"]["linear"] = _scaled(linear, 0.1)
  # The draft is close to its target; unrelated random heads would accept no draft.
  draft = target if same else _scaled(target, 1.001)
  params = SpecParams(sampling.side(Network(head, draft)), sampling.side(Network(head, target)))
  drafter = ContinuousModelDrafter(sampling.bind(head), rule, window=gamma)
  verifier = ContinuousVerifier(sampling.bind(judge), rule)
  return params, dict(drafter=drafter, verifier=verifier, max_len=N), condition


# Equal settings in a test below share one compiled program.
CASES = [
  ("causal", STOPPED, PathCoupling(2, "split"), 0),
  ("masked", ContinuousSampling(STEPS, cfg_scale=1.5), PathRatio("released", inner_temperature=42.0), 4),
  ("masked", ContinuousSampling(STEPS, cfg_scale=1.5), PathRatio("released", block=True), 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("family, sampling, rule, target_prefix", CASES)
def test_drivers_agree_and_rows_are_independent(family, sampling, rule, target_prefix):
  params, kwargs, condition = _pair(family, sampling, rule)
  kwargs["target_prefix"] = target_prefix
  fused = jaxspec.speculate(params, _keys(), condition, **kwargs)
  # Every row alone, by the other driver; the two programs are compiled apart.
  for row in range(3):
    part = lambda leaf, row=row: leaf[row : row + 1]
    one = jax.tree.map(part, condition)
    alone = jaxspec.speculate(params, _keys()[row : row + 1], one, **kwargs, loop="host")
    chex.assert_trees_all_close(alone.tokens, part(fused.tokens), rtol=2e-3, atol=2e-3)
    chex.assert_trees_all_equal(alone.origin, part(fused.origin))
    chex.assert_trees_all_equal(alone.counters, jax.tree.map(part, fused.counters))
  chex.assert_shape(fused.tokens, (3, N, C))
  np.testing.assert_array_equal(fused.lengths, N)
  if getattr(rule, "block", False):
    _check_blocks(fused)
  else:
    np.testing.assert_array_equal(1 + fused.counters.accepted + fused.counters.rounds, N)
  assert (np.asarray(fused.counters.rounds) >= max(target_prefix - 1, 0)).all() and np.isfinite(fused.tokens).all()
  assert int(fused.counters.accepted.sum()) > 0


def _check_blocks(out):
  """Blocks of three after two tokens of the target: all tokens are judged by themselves, and the last one has no draft."""
  np.testing.assert_array_equal(out.commit_round, np.broadcast_to([0, 1, 2, 2, 2, 3, 3, 3, 4], (3, N)))
  origin, replaced = np.asarray(out.origin), int(Origin.REPLACED)
  np.testing.assert_array_equal(origin[:, [0, 1, 8]], np.broadcast_to([Origin.FIRST, Origin.BONUS, Origin.BONUS], (3, 3)))
  assert set(np.unique(origin[:, 2:8])) == {int(Origin.DRAFT), replaced}
  follows = (origin[:, 3:8] == Origin.DRAFT) & (origin[:, 2:7] == replaced) & (np.diff(out.commit_round[:, 2:8]) == 0)
  assert follows.any()  # accepted after a rejection in the same block
  np.testing.assert_array_equal(out.metrics.tries > 0, origin == replaced)


@pytest.mark.parametrize(
  ("sampling", "num_buckets"),
  [(ContinuousSampling(STEPS), 1), pytest.param(CASES[2][1], 2, marks=pytest.mark.slow)],
  ids=["plain", "guided"],
)
def test_both_caches_hold_the_tokens_that_replace_drafts_inside_a_block(sampling, num_buckets):
  params, kwargs, condition = _pair("masked", sampling, CASES[2][2], num_buckets=num_buckets)
  max_len = kwargs.pop("max_len")
  state = jax.jit(functools.partial(rounds.start, max_len=max_len, **kwargs))(params, _keys(), condition)
  state = jax.jit(functools.partial(rounds.decode_round, **kwargs))(params, state)
  side = state.draft_side
  assert (np.asarray(side.origin)[:, 1:3] == Origin.REPLACED).any()  # before the last token, which every pass reads
  for cache in (state.verifier.cache, side.drafter.cache):
    np.testing.assert_array_equal(cache.tokens[:3, 1:4], side.tokens[:, 1:4])


@pytest.mark.slow
def test_a_draft_equal_to_the_target_is_always_accepted():
  """By the program of the test above. tests/rules has every rule, and tests below the features of both networks."""
  params, kwargs, condition = _pair(*CASES[0][:3], same=True)
  out = jaxspec.speculate(params, _keys(), condition, **kwargs)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  np.testing.assert_array_equal(out.counters.rounds, 2)  # 1 + 4 + 4


@functools.partial(jax.jit, static_argnames="steps")
def _noise_of_a_plain_decode(keys, order, *, steps):
  """The noise of every token by its raster position; token 0 has a separate stream, the others one round each."""
  draw = lambda stream, j: token_noise(rng.stream_keys(keys, stream, j), jnp.zeros((1, 1), jnp.int32), steps, C)
  first = draw(rng.Stream.FIRST, jnp.int32(0))
  rest = jax.vmap(lambda j: draw(rng.Stream.VERIFY, j))(jnp.arange(N - 1))  # [N - 1, B, 1, ...]
  together = lambda a, b: jnp.concatenate([a, jnp.moveaxis(b[:, :, 0], 0, 1)], axis=1)
  return jax.tree.map(lambda a, b: orders.to_raster(together(a, b), order), first, rest)


@pytest.mark.slow
def test_plain_decoding_of_a_masked_network_equals_mar_token_by_token():
  """Compares the loop without a drafter with `generate_masked` with as many iterations as tokens, on the same noise: guided,
  with a stop."""
  scale, stop = 1.7, 1
  sampling = ContinuousSampling(STEPS, stop, cfg_scale=scale)
  params, kwargs, condition = _pair("masked", sampling, PathRatio())
  out = jaxspec.autoregress(params, _keys(), condition, verifier=kwargs["verifier"], max_len=N)
  noise = _noise_of_a_plain_decode(_keys(), condition.order, steps=5 - stop)
  weights = params.target.model.model
  expected = masked_decode.generate_masked(
    mar_fns(MAR), weights, _keys(), LABELS, num_iter=N, num_steps=STEPS, order=condition.order, noise=noise, stop=stop,
    scale=scale, num_buckets=1,
  )  # fmt: skip
  np.testing.assert_allclose(out.tokens, expected.tokens, rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_a_causal_network_scores_all_prefixes_in_one_pass():
  """Features of one pass over a draft equal those of feeding it token by token, and those of teacher forcing."""
  head = causal_token_fns(CAUSAL)
  start = np.ones((3, 1), np.int32)

  @jax.jit
  def both_ways(params, tokens):
    apply = lambda *args, **kwargs: head.network.apply(params, *args, **kwargs)
    whole, _ = apply(Prefixed(LABELS, tokens[:, :-1]))
    first, cache = apply(LABELS, head.network.init_cache(3, N + 1), positions=jnp.zeros((1, 1), jnp.int32))
    some, cache = apply(tokens[:, :4], cache, positions=start + np.arange(4)[None])
    last, _ = apply(tokens[:, 4:5], cache, positions=start + 4, logits_at=jnp.zeros((3,), jnp.int32))
    return whole.features, (first.features, some.features, last.features)

  tokens = jax.random.normal(jax.random.key(0), (3, N, C))
  whole, parts = both_ways(random_params(head.network, 0, scale=0.3), tokens)
  for part, slots in zip(parts, (slice(0, 1), slice(1, 5), slice(5, 6)), strict=True):
    np.testing.assert_allclose(part, whole[:, slots], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_masked_network_scores_every_prefix_by_itself():
  """Features after several inputs equal MAR's for each prefix, with any content of the buffer after it."""
  head = masked_network(mar_fns(MAR), num_buckets=2)
  params, condition = random_params(head.network, 0, scale=0.3), _ordered()
  tokens = jax.random.normal(jax.random.key(0), (3, N, C))
  cache = head.network.init_cache(3, N + 4)._replace(condition=condition)
  cache = cache._replace(tokens=cache.tokens.at[:, :N].set(tokens).at[:, N:].set(7.0))
  start = jnp.asarray([1, 3, 5])  # positions; the first input is token start - 1
  inputs = jax.vmap(lambda row, at: jax.lax.dynamic_slice_in_dim(row, at - 1, 4))(tokens, start)
  dirty = cache._replace(tokens=cache.tokens + 3.0 * (jnp.arange(N + 4)[None, :, None] >= start[:, None, None]))
  output, after = jax.jit(head.network.apply)(params, inputs, dirty, positions=start[:, None] + jnp.arange(4)[None])
  whole = jax.jit(lambda known: mar_fns(MAR).condition(params, tokens, condition.order, known, condition, known, 1))
  for offset in range(4):
    np.testing.assert_allclose(output.features[:, offset], whole(start + offset)[:, 0], rtol=1e-4, atol=1e-4)
  for row in range(3):
    np.testing.assert_array_equal(after.tokens[row, : start[row] + 3], tokens[row, : start[row] + 3])


@pytest.mark.slow
def test_slots_after_a_common_prefix_do_not_see_each_other():
  """Features equal those of MAR's parallel decoding, whatever the inputs after the first; also beyond the end of a row."""
  head = masked_network(mar_fns(MAR), num_buckets=2, common_prefix=True)
  params, condition = random_params(head.network, 0, scale=0.3), _ordered()
  tokens = jax.random.normal(jax.random.key(0), (3, N, C))
  cache = head.network.init_cache(3, N + 4)._replace(condition=condition)
  cache = cache._replace(tokens=cache.tokens.at[:, :N].set(tokens))
  start = jnp.asarray([1, 4, 7])
  inputs = jax.random.normal(jax.random.key(1), (3, 4, C))
  inputs = inputs.at[:, 0].set(tokens[jnp.arange(3), start - 1])
  output, _ = jax.jit(head.network.apply)(params, inputs, cache, positions=start[:, None] + jnp.arange(4)[None])
  whole = jax.jit(lambda known: mar_fns(MAR).condition(params, tokens, condition.order, known, condition))(start)
  for row in range(3):
    expected = whole[row, start[row] : start[row] + 4]
    np.testing.assert_allclose(output.features[row, : len(expected)], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_one_program_serves_other_keys_labels_temperatures_and_weights():
  params, kwargs, condition = _pair(*CASES[0][:3])
  programs = []
  for seed, temperature in ((0, 0.5), (1, 1.0)):
    sampling = jaxspec.sampling_params(temperature)
    moved = jaxspec.SpecParams(*(jax.tree.map(lambda leaf, s=seed: leaf + s, side) for side in params))
    moved = jaxspec.SpecParams(*(side._replace(sampling=sampling) for side in moved))
    keys = rng.row_keys(jax.random.key(seed), 3)
    jaxspec.speculate(moved, keys, ClassLabels(condition.labels + seed), **kwargs)
    programs.append(loop._run._cache_size())
  assert programs[0] == programs[1]
  again = _pair(*CASES[0][:3])[1]
  assert again["drafter"] == kwargs["drafter"] and again["verifier"] == kwargs["verifier"]


@pytest.mark.parametrize(
  "call, message",
  [
    (lambda: _pair("causal", ContinuousSampling(STEPS), PathCoupling()), "end with noise"),
    (lambda: _pair("causal", STOPPED, PathRatio(), gamma=0), "window of at least 1"),
    (lambda: masked_network(mar_fns(MAR), num_buckets=0), "at least one bucket"),
    (lambda: CausalTokensConfig(num_tokens=8), "square number"),
    (lambda: CausalTokensConfig(dim=0), "dim as an integer"),
  ],
)
def test_bad_arguments_are_errors(call, message):
  with pytest.raises(ValueError, match=message):
    call()
