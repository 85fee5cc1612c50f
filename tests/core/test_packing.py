"""Passes whose inputs are packed equal those of every row alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rounds
from jaxspec.core.packing import PackedPositions, packed
from jaxspec.intervals.scores import Random
from jaxspec.models import guidance
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.verifiers import ciar_target
from tests.ciar_pair import keys_of, transformer_gated
from tests.helpers import TARGET, labels, random_params, slow_but

_packed = jax.jit(packed, static_argnums=(1, 2, 3))


def test_rows_take_inputs_in_their_order_while_there_is_room():
  found = _packed(jnp.array([2, 0, 9, 3, 5]), 8, 4, 5)
  np.testing.assert_array_equal(found.share, [2, 0, 4, 2, 0])
  np.testing.assert_array_equal(found.row, [0, 0, 2, 2, 2, 2, 3, 3])
  np.testing.assert_array_equal(found.number, [0, 1, 0, 1, 2, 3, 0, 1])
  x = jnp.arange(16).reshape(2, 8, 1)
  rows = found.unpack(x)
  assert rows.shape == (10, 4, 1)
  np.testing.assert_array_equal(rows[[0, 2, 3, 7], :, 0][:, :2], [[0, 1], [2, 3], [6, 7], [10, 11]])
  np.testing.assert_array_equal(found.pack(rows), x)
  padded = _packed(jnp.array([1, 0]), 4, 8, 2)
  np.testing.assert_array_equal(padded.share, [1, 0])
  assert padded.row.max() == 1 and padded.number.max() < 8 and padded.source.max() < 4


def test_few_rows_take_inputs_in_their_order():
  """Rows beyond the most wait for another pass."""
  found = _packed(jnp.array([0, 2, 0, 3, 1, 4]), 8, 4, 3)
  np.testing.assert_array_equal(found.share, [0, 2, 0, 3, 1, 0])
  np.testing.assert_array_equal(found.rows, [1, 3, 4])
  np.testing.assert_array_equal(found.row[:6], [1, 1, 3, 3, 3, 4])
  np.testing.assert_array_equal(found.seat[:6], [0, 0, 1, 1, 1, 2])
  x = jnp.arange(8)[None, :, None]
  rows = found.unpack(x)
  assert rows.shape == (3, 4, 1)
  np.testing.assert_array_equal(rows[1, :3, 0], [2, 3, 4])
  np.testing.assert_array_equal(found.pack(rows)[:, :6], x[:, :6])
  fewer = _packed(jnp.array([0, 0, 2, 0]), 4, 4, 2)
  np.testing.assert_array_equal(fewer.rows, [2, 3])
  assert fewer.share.sum() == 2 and fewer.seat.max() < 2


@pytest.mark.slow
@pytest.mark.parametrize("most_rows", [3, 4])
@pytest.mark.parametrize("is_guided", [False, True])
def test_a_packed_pass_is_that_of_every_row(is_guided, most_rows):
  """Logits, and caches as the next pass reads them; rows differ in length, and one has no inputs."""
  fns = llamagen_fns(dataclasses.replace(TARGET, num_layers=2))
  params = random_params(fns, 0)
  if is_guided:
    fns, params = guidance.guided(fns), guidance.Guided(params, jnp.float32(2.0))
  rows, width, share = 4, 4, jnp.array([3, 0, 4, 1])
  start = jnp.array([1, 4, 6, 3])
  tokens = jax.random.randint(jax.random.key(1), (rows, 16), 0, TARGET.vocab_size)

  @jax.jit
  def both(params):
    cache = fns.init_cache(rows, 24)
    _, cache = fns.apply(params, labels(rows), cache, positions=jnp.arange(1)[None])
    _, cache = fns.apply(params, tokens[:, :8], cache, positions=1 + jnp.arange(8)[None])
    index = start[:, None] + jnp.arange(width)[None]
    padded, after = fns.apply(params, jnp.take_along_axis(tokens, index, axis=1), cache, positions=1 + index)
    packing = packed(share, 10, width, most_rows)
    places = start[packing.row] + packing.number
    positions = PackedPositions(1 + places[None], 1 + start, packing)
    found, packed_after = fns.apply(params, tokens[packing.row, places][None], cache, positions=positions)
    step = lambda cache: fns.apply(params, tokens[:, :1], cache, positions=1 + (start + share)[:, None])[0].logits
    begin = jnp.cumsum(share) - share
    return padded.logits, found.logits, begin[:, None] + jnp.arange(width)[None], step(after), step(packed_after)

  padded, found, source, next_padded, next_packed = both(params)
  for row, number in enumerate(share.tolist()):
    np.testing.assert_allclose(found[0, source[row, :number]], padded[row, :number], atol=2e-5)
  np.testing.assert_allclose(next_packed, next_padded, atol=2e-5)


@pytest.mark.parametrize("guided", slow_but([False, True], [False]))
def test_rows_alone_have_the_tokens_of_a_batch(guided):
  """Rows of a batch share packed passes, and some rounds take several; a row alone has passes of its own."""
  params, kwargs = transformer_gated(cloud_layers=1, guided=guided)
  keys, prompts, rows = keys_of(5), labels(5).labels, 5
  decode = jax.jit(lambda keys, prompts: jaxspec.speculate(params, keys, ClassLabels(prompts), max_len=16, **kwargs))
  together = decode(keys, prompts)
  assert (together.counters.local > 0).any() and (together.counters.target_calls > 1).all()
  for row in range(rows):
    alone = decode(keys[row : row + 1], prompts[row : row + 1])
    np.testing.assert_array_equal(alone.tokens[0], together.tokens[row])
    np.testing.assert_array_equal(alone.commit_round[0], together.commit_round[row])


@pytest.mark.slow
def test_a_backlog_of_one_row_rarely_takes_a_pass_of_its_own(monkeypatch):
  """Rows with long runs of local tokens: the same tokens, in fewer passes than if a row had 8 inputs of a pass at most."""
  params, kwargs = transformer_gated(cloud_layers=1, window=1, max_run=14, tau=0.9)
  kwargs["drafter"] = dataclasses.replace(kwargs["drafter"], score_fn=Random())
  fns = kwargs["verifier"].model

  def apply(params, inputs, cache, **options):  # the cache counts the passes
    output, inner = fns.apply(params, inputs, cache[0], **options)
    return output, (inner, cache[1] + 1)

  init_cache = lambda batch, max_len: (fns.init_cache(batch, max_len), jnp.int32(0))
  model = fns._replace(apply=apply, init_cache=init_cache)
  tokens, passes = [], []
  for least in (ciar_target._SHARED_REACH, 0):
    monkeypatch.setattr(ciar_target, "_SHARED_REACH", least)
    parts = kwargs | dict(verifier=dataclasses.replace(kwargs["verifier"], model=model))
    decode = functools.partial(rounds.decode_round, params, **parts)
    loop = functools.partial(jax.lax.while_loop, lambda state: jnp.any(state.draft_side.cursor.live), decode)
    state = jax.jit(loop)(rounds.start(params, keys_of(6), labels(6), max_len=16, **parts))
    tokens.append(state.draft_side.tokens)
    passes.append(int(state.verifier.cache[1]))
  np.testing.assert_array_equal(*tokens)
  assert passes[0] < passes[1]
