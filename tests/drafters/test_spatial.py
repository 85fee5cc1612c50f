"""Spatial heads: rows equal to those of one pass over all features, the exact distribution, and bad settings."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import jaxspec
from jaxspec import methods, testing
from jaxspec.core import rounds
from jaxspec.core.footprint import tree_bytes
from jaxspec.core.network import Network
from jaxspec.drafters.spatial_drafter import SpatialDrafter
from jaxspec.models.conditions import ClassLabels, Pairs, Prefixed
from jaxspec.models.guidance import guided
from jaxspec.models.heads.feature_head import attach
from jaxspec.models.heads.spatial_heads import SpatialConfig, SpatialHeads, known_above, spatial_fns
from jaxspec.models.language.llama import LlamaConfig
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.models.nn.call import call
from jaxspec.verifiers.target import target_features
from tests.helpers import CAPTIONS, TARGET, eagle_condition, random_params, side

N = 16


def _tiny(name="classes", *, window=3, num_rows=2, temperature=1.0, both=False):
  """A random target and heads, rows of 4 tokens; ``captions`` are guided, and with ``both`` the heads are too."""
  config = CAPTIONS if name == "captions" else TARGET
  host, heads = llamagen_fns(config), spatial_fns(SpatialConfig.of(config, num_places=window, num_rows=num_rows))
  host_params, scale = random_params(host, 2), 2.0 if name == "captions" else None
  weights = attach(random_params(heads, 3, scale=0.15), host_params), host_params
  sides = (side(w, scale=s, temperature=temperature) for w, s in zip(weights, (scale if both else None, scale)))
  if scale is not None:
    host = guided(host, features="both" if both else "combined")
    heads = guided(heads) if both else heads
  drafter = SpatialDrafter(heads, window=window, columns=4, warp=jaxspec.Warp())
  verifier = jaxspec.TargetVerifier(host, jaxspec.lossless, warp=jaxspec.Warp(), feedback_fn=target_features)
  return jaxspec.SpecParams(*sides), dict(drafter=drafter, verifier=verifier), host


@pytest.mark.slow
@pytest.mark.parametrize("name,window", [("captions", 3), ("classes", 3), ("classes", 6)])
def test_rows_are_those_of_one_pass_over_the_committed_features(name, window):
  """Whatever was accepted and rejected before; with windows longer than a row of the image too."""
  params, kwargs, host = _tiny(name, temperature=2.0, window=window)
  rows, condition = 3, eagle_condition(name, 3)
  state = jax.jit(functools.partial(rounds.start, max_len=N, **kwargs))(params, jax.random.key(1), condition)
  step = jax.jit(functools.partial(rounds.decode_round, **kwargs))
  draft_round = jax.jit(functools.partial(rounds.draft_round, drafter=kwargs["drafter"]))
  config = SpatialConfig.of(CAPTIONS if name == "captions" else TARGET, num_places=window)
  prefix = host.prefix_len(condition)
  positions = jnp.arange(prefix + N)[None]
  seen = set()

  @jax.jit
  def expected(tokens, length):
    inputs = Prefixed(condition, tokens)
    features = host.apply(params.target.model, inputs, None, positions=positions)[0].features[:, prefix - 1 : -1]
    states = call(SpatialHeads(config), params.draft.model, Pairs(tokens, features), method="states")
    above, known = known_above(config, length - 1, window)
    row = jnp.arange(rows)
    read = states[row[:, None, None], jnp.clip(above, 0, N - 1)]
    newest = states[row, length - 1][:, None]
    return call(SpatialHeads(config), params.draft.model, newest, read, known, method="places").logits, known

  for _ in range(4):
    edge = state.draft_side
    length = edge.cursor.length
    draft = draft_round(params.draft, edge).draft
    chex.assert_shape(draft.proposal, (rows, window, 13))
    logits, known = expected(edge.tokens, length)
    np.testing.assert_allclose(draft.proposal, jaxspec.Warp()(logits, params.draft.sampling), atol=2e-4)
    seen |= set(np.asarray(known).sum(axis=(1, 2)).tolist())
    state = step(params, state)
  assert edge.counters.accepted.sum() > 0 and max(seen) > window  # two rows above
  assert 0 in seen or window >= 4  # and none; a window as long as a row always has a token above one of its places


@pytest.mark.slow
def test_sequences_follow_the_target_s_distribution():
  """Chi-square of six tokens of a random transformer in rows of two, by the codes that they are."""
  rows, vocab, length = 4096, 3, 6
  config = dataclasses.replace(TARGET, vocab_size=vocab, num_tokens=4, dim=16)
  host, heads = llamagen_fns(config), spatial_fns(SpatialConfig.of(config, num_places=3, num_rows=1))
  host_params = random_params(host, 2, scale=0.3)
  params = jaxspec.SpecParams(side(attach(random_params(heads, 3, scale=0.1), host_params)), side(host_params))
  length = config.num_tokens
  drafter = SpatialDrafter(heads, window=3, columns=2, warp=jaxspec.Warp())
  verifier = jaxspec.TargetVerifier(host, jaxspec.lossless, warp=jaxspec.Warp(), feedback_fn=target_features)
  out = jaxspec.speculate(
    params, testing.fast_keys(7, rows), ClassLabels(jnp.ones((rows,), jnp.int32)), drafter=drafter, verifier=verifier,
    max_len=length,
  )  # fmt: skip
  assert rows / 4 < out.counters.accepted.sum() < out.counters.drafted.sum()
  every = np.stack(np.meshgrid(*[np.arange(vocab)] * (length - 1), indexing="ij"), -1).reshape(-1, length - 1)
  inputs = Prefixed(ClassLabels(jnp.ones((len(every),), jnp.int32)), jnp.asarray(every, jnp.int32))
  apply = jax.jit(lambda weights, inputs: host.apply(weights, inputs, None, positions=jnp.arange(length)[None])[0].logits)
  probs = softmax(np.asarray(apply(host_params, inputs), np.float64), axis=-1)  # [V^3, 4, V]
  joint = probs[:, length - 1].reshape((vocab,) * length)
  for index in range(length - 1):
    given = np.take_along_axis(probs[:, index], every[:, index : index + 1], axis=1)
    joint = joint * given.reshape(*(vocab,) * (length - 1), 1)
  testing.assert_same_distribution(np.asarray(out.tokens), joint / joint.sum())


@pytest.mark.slow
def test_greedy_decoding_gives_the_target_s_own_tokens():
  for both in (False, True):
    params, kwargs, _ = _tiny("captions", temperature=0.0, both=both)
    condition = eagle_condition("captions", 4)
    plain = jaxspec.autoregress(params, jax.random.key(0), condition, verifier=kwargs["verifier"], max_len=N)
    drafted = jaxspec.speculate(params, jax.random.key(1), condition, max_len=N, **kwargs)
    np.testing.assert_array_equal(plain.tokens, drafted.tokens)


@pytest.mark.slow
def test_exact():
  assert testing.check_exact(methods.Spatial(gamma=2), targets=("grid",)) > 1e-4


def test_the_pool_has_the_bytes_that_are_planned():
  params, kwargs, host = _tiny(num_rows=3)
  drafter = kwargs["drafter"]
  state = jax.eval_shape(
    lambda: rounds.start(params, jax.random.key(1), eagle_condition("classes", 5), max_len=N, **kwargs)
  ).draft_side.drafter
  assert tree_bytes(state) == tree_bytes(jax.eval_shape(lambda: drafter.head.init_cache(5, N))) == 5 * 12 * (4 + 4 * 32)


def test_bad_settings_are_named():
  for kwargs, words in (
    (dict(num_places=0), "num_places of at least 1"),
    (dict(num_rows=5), "num_rows from 1 to the 4 rows of an image, we instead got 5"),
    (dict(num_rows=0), "num_rows from 1 to the 4 rows"),
  ):
    with pytest.raises(ValueError, match=words):
      SpatialConfig.of(TARGET, **kwargs)
  with pytest.raises(ValueError, match="a target that draws images for spatial heads, we instead got a LlamaConfig"):
    SpatialConfig.of(LlamaConfig())
  with pytest.raises(ValueError, match="rows of equal length for spatial heads, we instead got 16 tokens and 5 columns"):
    SpatialConfig(num_tokens=16, columns=5)
  heads = spatial_fns(SpatialConfig.of(TARGET, num_places=3))
  with pytest.raises(ValueError, match="window of at least 1"):
    SpatialDrafter(heads, window=0, columns=4, warp=jaxspec.Warp())
  toy = testing.toys.prompt_toy()
  network = Network(heads, {}, SpatialConfig.of(TARGET, num_places=3))
  with pytest.raises(ValueError, match=r"Must have a grid \(to draft downward\) for method spatial"):
    methods.Spatial(gamma=3).build(toy.target, toy.draft, toy.context)
  for gamma, found in ((4, 4), ("auto", 7)):
    with pytest.raises(ValueError, match=f"gamma of at most the 3 places of the heads, we instead got {found}"):
      methods.Spatial(gamma=gamma).build(toy.target, network, toy.context)
  params, kwargs, _ = _tiny(window=3)
  wide = dataclasses.replace(kwargs["drafter"], window=4)
  with pytest.raises(ValueError, match="at most the 3 places of the heads, we instead got 4"):
    jaxspec.speculate(
      params, jax.random.key(0), eagle_condition("classes", 2), drafter=wide, verifier=kwargs["verifier"], max_len=N
    )
