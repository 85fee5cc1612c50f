"""Blocks of one draft pass: rows equal to those of one long pass, exact sequences of a transformer, errors."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.core import rounds
from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.drafters.block_drafter import BlockDrafter
from jaxspec.models.conditions import ClassLabels, Context, Prefixed
from jaxspec.models.feature_levels import with_levels
from jaxspec.models.heads.block_head import MASK, BlockHeadConfig, block_head_fns
from jaxspec.models.heads.feature_head import attach
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig
from jaxspec.testing import assert_same_distribution, fast_keys
from jaxspec.testing.toys import softmax
from jaxspec.training.distillation.block_head_student import block_inputs
from tests.helpers import CAPTIONS, TARGET, eagle_condition, markov_fns, random_params

N, WINDOW = 16, 3


@functools.cache
def decoder(name: str, *, guided: bool = True, temperature: float = 2.0, scale: float = 2.0) -> Decoder:
  """A random target and head; ``captions`` are guided, ``classes`` are not, ``guided`` is whether the head is."""
  config = dataclasses.replace(CAPTIONS if name == "captions" else TARGET, num_layers=2)  # with levels 0 and 1
  host, of_head = llamagen_fns(config), BlockHeadConfig.of(config)
  head = block_head_fns(of_head)
  sampling = SamplingConfig(cfg_scale=scale if name == "captions" else 1.0, temperature=temperature)
  return Decoder(
    Network(host, random_params(host, 2), config, name="host"), methods.BlockHead(gamma=WINDOW),
    draft=Network(head, random_params(head, 3, scale=0.15), of_head, {"guided": guided}, name="head"),
    sampling=sampling, space=TokenSpace(vocab_size=13, num_tokens=N, grid=(4, 4)),
  )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name,guided", [("classes", True), ("captions", True), ("captions", False)])
def test_rows_are_those_of_one_pass_over_the_committed_features(name, guided):
  """Whatever was accepted and rejected before: the context holds the target's features, each at its position."""
  parts, rows = decoder(name, guided=guided).parts, 3
  drafter, verifier = parts.pair()
  pair, condition = dict(drafter=drafter, verifier=verifier), eagle_condition(name, rows)
  state = jax.jit(functools.partial(rounds.start, max_len=N, **pair))(parts.params, fast_keys(1, rows), condition)
  step = jax.jit(functools.partial(rounds.decode_round, **pair))
  for _ in range(3):
    state = step(parts.params, state)
  edge = state.draft_side
  lengths = edge.cursor.length
  assert len(set(np.asarray(lengths).tolist())) > 1 and edge.counters.accepted.sum() > 0
  draft = jax.jit(functools.partial(rounds.draft_round, drafter=drafter))(parts.params.draft, edge).draft

  host, head, params = verifier.model, drafter.head, parts.params
  prefix = host.prefix_len(condition)

  @jax.jit
  def anew(params, condition, tokens, lengths):
    cache = host.init_cache(rows, prefix + N)
    first, cache = host.apply(params.target.model, condition, cache, positions=jnp.arange(prefix)[None])
    rest, _ = host.apply(params.target.model, tokens, cache, positions=prefix + jnp.arange(N)[None])
    features = jnp.concatenate([first.features, rest.features], axis=1)
    own = head.init_cache(rows, prefix + N + WINDOW)
    _, own = head.apply(params.draft.model, Context(features), own, positions=jnp.arange(prefix + N)[None])
    newest = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)
    inputs = jnp.concatenate([newest, jnp.full((rows, WINDOW - 1), MASK)], axis=1)
    positions = (prefix + lengths - 1)[:, None] + jnp.arange(WINDOW)[None]
    output, _ = head.apply(params.draft.model, inputs, own, positions=positions)
    return drafter.warp(output.need_logits(), params.draft.sampling)

  np.testing.assert_allclose(draft.proposal, anew(params, condition, edge.tokens, lengths), atol=2e-4)


@pytest.mark.slow
def test_training_reads_what_a_decode_reads():
  """One pass over features and the blocks of several anchors gives each block the rows of a decode at that length."""
  config = BlockHeadConfig.of(TARGET)
  head, generator = block_head_fns(config), np.random.default_rng(0)
  tables = {
    name: {"weight": jnp.asarray(generator.normal(size=(13, 32)), jnp.float32)} for name in ("tok_embeddings", "output")
  }
  params = attach(random_params(head, 3, scale=0.15), tables)
  features = jnp.asarray(generator.normal(size=(2, 8, config.feature_dim)), jnp.float32)
  tokens = jnp.asarray(generator.integers(0, 13, (2, 8)), jnp.int32)
  anchors = jnp.asarray([[0, 5, 2], [3, 3, 6]])
  ids, positions, mask = block_inputs(tokens, anchors, WINDOW, 1, 8)

  @jax.jit
  def both(params, features, ids):
    whole, _ = head.apply(params, Prefixed(Context(features), ids), None, positions=positions, mask=mask)
    blocks = []
    for number in range(3):
      cache = head.init_cache(2, 8 + WINDOW + 1)
      _, cache = head.apply(params, Context(features), cache, positions=jnp.arange(8)[None])
      start = 1 + anchors[:, number]
      block = ids[:, number * WINDOW : (number + 1) * WINDOW]
      output, _ = head.apply(params, block, cache, positions=start[:, None] + jnp.arange(WINDOW)[None])
      blocks.append(output.logits)
    return whole.logits, jnp.concatenate(blocks, axis=1)

  whole, blocks = both(params, features, ids)
  np.testing.assert_allclose(whole, blocks, atol=1e-5)


@pytest.mark.slow
def test_sequences_follow_the_target_s_distribution():
  """The first three tokens of a transformer, committed by rounds of three drafts, against its joint distribution."""
  rows, vocab, bound = 4096, TARGET.vocab_size, decoder("classes", temperature=3.0)
  out = bound(ClassLabels(jnp.ones((rows,), jnp.int32)), key=fast_keys(7, rows), max_len=3)
  assert out.counters.accepted.sum() > rows / 4
  pairs = np.stack(np.meshgrid(np.arange(vocab), np.arange(vocab), indexing="ij"), -1).reshape(-1, 2)
  inputs = Prefixed(ClassLabels(jnp.ones((len(pairs),), jnp.int32)), jnp.asarray(pairs, jnp.int32))
  apply = jax.jit(
    lambda weights, inputs: bound.target.fns.apply(weights, inputs, None, positions=jnp.arange(3)[None])[0].logits
  )
  probs = softmax(np.asarray(apply(bound.target.params, inputs)) / 3.0)  # [V * V, 3, V]
  joint = probs[:, 2].reshape(vocab, vocab, vocab) * probs[:, 1].reshape(vocab, vocab, vocab)[:, 0][:, :, None]
  assert_same_distribution(np.asarray(out.tokens), joint * probs[0, 0][:, None, None])


def test_what_does_not_fit_is_named():
  head = block_head_fns(BlockHeadConfig.of(TARGET))
  with pytest.raises(ValueError, match="window of at least 1"):
    BlockDrafter(head, window=0, warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="num_layers of at least 1"):
    BlockHeadConfig(num_layers=0)
  for levels in ((2.5, 4), ("a", 1), "ab", 3, (4, 2), (True, 2)):  # of a damaged file
    with pytest.raises(ValueError, match="Must have ascending whole numbers as levels, we instead got"):
      BlockHeadConfig(levels=levels)
  with pytest.raises(ValueError, match="ascending levels from 0 to 1, we instead got .1, 3."):
    with_levels(llamagen_fns(TARGET), (1, 3))
  with pytest.raises(ValueError, match="whose layers can be read one by one"):
    with_levels(markov_fns(3), (0,))
  bound = decoder("classes")
  one = dataclasses.replace(bound.draft, config=dataclasses.replace(bound.draft.config, levels=(1,)))
  with pytest.raises(ValueError, match="width 96 in a block head, we instead got 64"):  # the target gives two levels
    jax.eval_shape(
      lambda: dataclasses.replace(bound, draft=one)(ClassLabels(jnp.ones((1,), jnp.int32)), key=jax.random.key(0))
    )
