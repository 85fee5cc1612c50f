"""The contract of all methods: guarantees of the loop, checked clause by clause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import loop, rng
from jaxspec.core.constructors import with_draft
from jaxspec.core.state import DecodeResult, Origin, SpecParams
from jaxspec.core.types import Key, PyTree
from jaxspec.methods.method import Parts
from jaxspec.testing.compare import as_arrays, check_same, check_same_tokens, differs, on_host, require, row_of, short
from jaxspec.testing.drafted import check_draft
from jaxspec.testing.two_ends import TwoEnds


def check_contract(
  parts: Parts | Callable[[], Parts],
  condition: PyTree,
  *,
  max_len: int,
  end_token: int | None = None,
  key: Key | None = None,
  num_alone: int = 2,
  history_free: bool = True,
  drivers: bool = True,
  codec: Any = None,
) -> DecodeResult:
  """Checks the guarantees of the loop for a method; an error message begins with the violated clause.

  * ``equal parts``: a second build gives equal drafter and verifier, because they are static arguments of compiled programs.
  * ``one trace``: other keys and other values of the parameters reuse the compiled program.
  * ``draft``: the first draft has the shapes, types and ranges of a `jaxspec.core.types.Draft`, also for rows that are
    decoded alone.
  * ``proposal``: logits are finite, not probabilities, and allow the drafted tokens.
  * ``counters``: they are consistent with each other and with the origins of the tokens; every round commits a token.
  * ``prefix``: the first ``parts.target_prefix`` tokens are the target's, one per round.
  * ``end token``: rows end after their first end token and are otherwise unchanged.
  * ``after the end``: all entries are 0.
  * ``rows``: rows do not depend on their neighbours. A row decoded alone, by two ends with separate cursors and separately
    compiled steps, equals the row of the batch in the fused loop. Finished rows therefore do not change. Rows of an adaptive
    drafter depend on their neighbours: there each row is also a batch of its own in the fused loop.
  * ``rollback``: at the start of every round, the target judges and the draft side drafts as after reading the same tokens
    one by one.
  * ``drivers``: ``loop="host"`` and `jaxspec.iterate` give the tokens of the fused loop.
  * ``codec``: so do two ends that exchange drafts and replies as frames of a codec.

  Args:
    parts: of a method; preferably a function that builds them, which can be called twice.
    condition: ``B`` rows; two or more.
    max_len: tokens of a row; at least three for a meaningful check.
    end_token: the end token of the clauses about ends; None takes a token from the middle of the first row.
    key: one key or ``[B]`` row keys; `fast_keys` save time.
    num_alone: number of rows that are decoded alone. If all rows have one length (`Verifier.at`), only their tokens are
      compared with the batch.
    history_free: whether drafts depend on the committed tokens and the keys alone. False for drafters with more state
      (Jacobi windows, thresholds), whose drafts are not compared under ``rollback``. Verdicts about drafts with interval
      features are not compared there either: the target reads them besides the tokens.
    drivers: checks that clause; it compiles one more program.
    codec: codec of these parts (`jaxspec.serving.wire.round_codec.RoundCodec`); None skips that clause.
  Returns:
    The result of the batch, decoded without an end token.
  Raises:
    AssertionError: one line that names the clause.
    ValueError: for ``parts`` of another type.

  Example:
    >>> import jax, jaxspec
    >>> from jaxspec import methods, testing
    >>> from jaxspec.run.decoder import Decoder
    >>> from jaxspec.models.conditions import ClassLabels
    >>> from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
    >>> from jaxspec.core.network import Network
    >>> fns = llamagen_fns(LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=4, num_classes=3))
    >>> network = Network(fns, fns.init(jax.random.key(0)))
    >>> build = lambda: Decoder(network, methods.Speculative(draft=network, gamma=2)).parts
    >>> out = testing.check_contract(build, ClassLabels(jax.numpy.array([0, 2])), max_len=4)
    >>> out.tokens.shape
    (2, 4)
  """
  build = parts if callable(parts) else None
  parts = _need_parts(parts if build is None else build())
  if build is not None:
    again = build()
    same = [getattr(again, name) == getattr(parts, name) for name in ("drafter", "verifier", "decode", "target_prefix")]
    require(all(same), "equal parts", "drafter, verifier and decode that are equal when they are built again")
  rows, everything = condition.batch_size, slice(None)
  keys = _Keys(rng.row_keys(jax.random.key(0) if key is None else key, rows))
  if parts.decode is not None:
    return _check_whole(parts, condition, keys, max_len=max_len, num_alone=num_alone)
  drafter, verifier = parts.pair()
  history_free = history_free and not drafter.is_adaptive
  check_draft(parts, keys.take(everything), condition, max_len)
  first = _first_token(parts, keys.take(everything), condition, max_len)
  draws_ids = first.ndim == 1 and jnp.issubdtype(first.dtype, jnp.integer)

  fused = _Fused(parts, condition, max_len)
  free = fused(keys.take(everything), None)
  _check_counters(free, parts)
  traces, order = fused.num_traces, np.arange(rows)[::-1]
  moved = fused(keys.take(order), None, as_arrays(parts.params), jax.tree.map(lambda leaf: leaf[order], condition))
  more = fused.num_traces - traces
  require(more == 0, "one trace", "no new trace for other keys and values", f"{more} (Python numbers among the params?)")
  check_same(jax.tree.map(lambda leaf: leaf[order], free), moved, "rows", "all rows as in another order")
  decodes: list[tuple[DecodeResult, int | None]] = [(free, None)]
  if draws_ids:  # one end token, which is a number as none is: programs are compiled once
    end = int(free.tokens[0, max_len // 2]) if end_token is None else end_token
    ended = fused(keys.take(everything), end)
    if not drafter.is_adaptive:
      _check_ends(free, ended, end)
    _check_counters(ended, parts)
    decodes.append((ended, end))

  two_ends = TwoEnds(parts, max_len, first)
  for row in range(min(num_alone, rows)):
    one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], condition)
    batch, index = decodes, row
    if drafter.is_adaptive:
      batch, index = [(fused(keys.take(slice(row, row + 1)), end, None, one), end) for _, end in decodes], 0
      for out, end in batch[1:]:
        _check_ends(batch[0][0], out, end)
    for out, end in batch:
      alone, exchanges = two_ends.decode(keys.take(slice(row, row + 1)), one, end)
      same = check_same if not verifier.in_step else check_same_tokens
      same(row_of(out, index), row_of(alone, 0), "rows", f"row {row} of the batch as it decodes alone")
      if codec is not None:
        far, _ = two_ends.decode(keys.take(slice(row, row + 1)), one, end, codec)
        check_same(row_of(out, index)._replace(metrics=()), row_of(far, 0), "codec", f"row {row} as its frames cross")
      if end is None:
        two_ends.check_rollback(keys.take(slice(row, row + 1)), one, alone, exchanges, history_free=history_free)
  if drivers:
    _check_drivers(parts, keys.take, condition, free, max_len)
  return free


def _need_parts(parts: Any) -> Parts:
  if not isinstance(parts, Parts):
    wanted = "Parts or a function that builds them, such as lambda: method.build(target, draft, context)"
    raise ValueError(f"Must have {wanted}, we instead got an object of type {type(parts).__name__}")
  return parts


def _first_token(parts: Parts, keys: Key, condition: PyTree, max_len: int) -> jax.ShapeDtypeStruct:
  """Shape and type of token 0 of all rows."""
  drafter, verifier = parts.pair()
  init = lambda params, keys, condition: verifier.init(params, keys, condition, max_len, drafter.window)[0].next_tokens[:, 0]
  return jax.eval_shape(init, parts.params.target, keys, condition)


class _Keys:
  """Row keys for repeated use; a key array itself may be consumed only once."""

  def __init__(self, keys: Key):
    self._impl, self._data = jax.random.key_impl(keys), jax.random.key_data(keys)

  def take(self, rows: Any) -> Key:
    """Keys of some rows; any index of an array is valid."""
    return jax.random.wrap_key_data(self._data[rows], impl=self._impl)


class _Fused:
  """The fused loop of all rows, with a count of its traces."""

  def __init__(self, parts: Parts, condition: PyTree, max_len: int):
    self._parts, self._condition, self._max_len, self.num_traces = parts, condition, max_len, 0

    drafter, self._verifier = parts.pair()

    def draft(*args):
      self.num_traces += 1
      return drafter.draft(*args)

    self._drafter = with_draft(drafter, draft)

  def __call__(
    self, keys: Key, end_token: int | None, params: SpecParams | None = None, condition: PyTree | None = None
  ) -> DecodeResult:
    parts = self._parts
    params = parts.params if params is None else params
    condition = self._condition if condition is None else condition
    out = loop.speculate(
      params,
      keys,
      condition,
      drafter=self._drafter,
      verifier=self._verifier,
      max_len=self._max_len,
      end_token=end_token,
      target_prefix=parts.target_prefix,
    )
    return on_host(out)


def _check_counters(out: DecodeResult, parts: Parts) -> None:
  origin, rounds, lengths = out.origin, out.commit_round, out.lengths
  rows, max_len = origin.shape
  inside = np.arange(max_len)[None] < lengths[:, None]
  for name, values in (("tokens", out.tokens), ("origin", origin), ("commit_round", rounds)):
    beyond = values[~inside]
    require(not beyond.any(), "after the end", f"zeros in {name} after the end of a row", short(beyond))
  for leaf in jax.tree.leaves(out.metrics):
    require(not np.any(leaf[~inside]), "after the end", "zeros in metrics after the end of a row")
  require((origin[inside] != Origin.EMPTY).all(), "counters", "an origin for every token")
  require(((lengths >= 1) & (lengths <= max_len)).all(), "counters", f"lengths from 1 to {max_len}", short(lengths))
  steps = np.diff(np.where(inside, rounds, np.maximum.accumulate(rounds, axis=1)), axis=1)
  require((rounds[:, 0] == 0).all() and (steps >= 0).all(), "counters", "rounds that do not go back along a row")

  count = lambda *kinds: np.isin(origin, kinds).sum(1)
  in_round = lambda number, kinds: (inside & (rounds == number) & np.isin(origin, kinds)).any(1)
  kinds = [int(kind) for kind in Origin]
  others = [kind for kind in kinds if kind != Origin.LOCAL]
  numbers = range(int(rounds.max()) + 1)
  committing = np.sum([in_round(number, kinds) & (number > 0) for number in numbers], axis=0)
  asking = np.sum([in_round(number, others) for number in numbers], axis=0)
  wanted = dict(rounds=committing, accepted=count(Origin.DRAFT), local=count(Origin.LOCAL), target_calls=asking)
  for name, values in wanted.items():
    got = getattr(out.counters, name)
    require(np.array_equal(values, got), "counters", f"{name} {short(values)} as origins and rounds say", short(got))
  own = count(Origin.FIRST, Origin.REPLACED, Origin.BONUS)
  total = out.counters.accepted + out.counters.local + own
  require(
    np.array_equal(total, lengths), "counters", "accepted, local and the target's own tokens that add up", short(total)
  )
  require(np.array_equal(out.accepted_mask, origin == Origin.DRAFT), "counters", "accepted_mask where tokens were drafted")
  drafted = out.counters.drafted
  require((drafted >= out.counters.accepted).all(), "counters", "at least as many drafts as accepted ones", short(drafted))
  drafter, _ = parts.pair()
  calls, most, least = out.counters.draft_calls, drafter.calls_per_round, drafter.calls_to_read
  fits = (calls >= least) & (calls <= least + out.counters.rounds * most)
  require(fits.all(), "counters", f"draft_calls from {least} to {most} more each round", short(calls))

  prefix = np.minimum(lengths, parts.target_prefix)
  leading = np.arange(max_len)[None] < prefix[:, None]
  require(np.isin(origin, (Origin.FIRST, Origin.BONUS))[leading].all(), "prefix", "leading tokens of the target alone")
  require((rounds == np.arange(max_len)[None])[leading].all(), "prefix", "one leading token a round")


def _check_ends(free: DecodeResult, ended: DecodeResult, end_token: int | None) -> None:
  is_end = free.tokens == end_token
  max_len = free.tokens.shape[1]
  lengths = np.where(is_end.any(1), is_end.argmax(1) + 1, free.lengths)
  require(np.array_equal(ended.lengths, lengths), "end token", f"lengths {short(lengths)}", short(ended.lengths))
  inside = np.arange(max_len)[None] < lengths[:, None]
  for name in ("tokens", "origin", "commit_round", "accepted_mask"):
    wanted, got = np.where(inside, getattr(free, name), 0), getattr(ended, name)
    require(np.array_equal(wanted, got), "end token", f"{name} as without an end token, cut {short(wanted)}", short(got))


def _check_drivers(parts: Parts, keys: Callable[[Any], Key], condition: PyTree, free: DecodeResult, max_len: int) -> None:
  everything = slice(None)
  drafter, verifier = parts.pair()
  host = loop.speculate(
    parts.params,
    keys(everything),
    condition,
    drafter=drafter,
    verifier=verifier,
    max_len=max_len,
    loop="host",
    target_prefix=parts.target_prefix,
  )
  check_same(free, on_host(host), "drivers", "the fused loop as loop='host'")
  for side in loop.iterate(
    parts.params,
    keys(everything),
    condition,
    drafter=drafter,
    verifier=verifier,
    max_len=max_len,
    target_prefix=parts.target_prefix,
  ):
    tokens, counters = np.asarray(side.tokens), on_host(side.counters)
  require(not differs(free.tokens, tokens), "drivers", "the tokens of the fused loop from iterate", short(tokens))
  same = all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(free.counters), jax.tree.leaves(counters)))
  require(same, "drivers", "the counters of the fused loop from iterate")


def _check_whole(parts: Parts, condition: PyTree, keys: _Keys, *, max_len: int, num_alone: int) -> DecodeResult:
  """The clauses for a decode without drafter and verifier."""
  traces, decode = 0, parts.decode
  assert decode is not None

  @jax.jit
  def run(params: SpecParams, keys: Key, condition: PyTree) -> DecodeResult:
    nonlocal traces
    traces += 1
    return decode(params, keys, condition, max_len, None)

  free = on_host(run(parts.params, keys.take(slice(None)), condition))
  values, order = as_arrays(parts.params), np.arange(condition.batch_size)[::-1]
  moved = on_host(run(values, keys.take(order), jax.tree.map(lambda leaf: leaf[order], condition)))
  check_same(jax.tree.map(lambda leaf: leaf[order], free), moved, "rows", "all rows as in another order")
  require(traces == 1, "one trace", "one trace for other keys and values", traces)
  for row in range(min(num_alone, condition.batch_size)):
    one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], condition)
    alone = on_host(run(parts.params, keys.take(slice(row, row + 1)), one))
    check_same(row_of(free, row), row_of(alone, 0), "rows", f"row {row} of the batch as row {row} decodes alone")
  calls = free.counters.target_calls
  require((free.lengths == max_len).all(), "counters", f"lengths of {max_len}", short(free.lengths))
  require((free.origin != Origin.EMPTY).all(), "counters", "an origin for every token")
  require((calls <= max_len).all(), "counters", "at most a pass a token", short(calls))
  return free
