"""One contract for all methods: what the loop promises, checked clause by clause."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import drafts, rng
from jaxspec.decode import loop
from jaxspec.decode.state import DecodeResult, DraftSide, Origin, SpecParams, TargetSide, result
from jaxspec.methods.base import Parts
from jaxspec.types import Array, Cursor, Draft, Key, PyTree, Verdict, Verifier

_EndTokens = tuple[int, ...] | None  # as `jaxspec.speculate` takes end tokens


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
  wire: Any = None,
) -> DecodeResult:
  """Checks what the loop promises of every method; the message of an error begins with the clause that is broken.

  * ``equal parts``: building again gives equal drafter and verifier, which are static arguments of compiled programs.
  * ``one trace``: other keys and other values of the parameters run the program that is there.
  * ``counters``: they add up, and are what the origins of the tokens say; every round commits a token.
  * ``prefix``: the first ``parts.target_prefix`` tokens are the target's, one a round.
  * ``end token``: rows end after their first end token and are otherwise what they would have been.
  * ``after the end``: everything there is 0.
  * ``rows``: rows do not depend on their neighbours; a row alone, by two ends with a cursor each that run separate compiled
    steps from Python, is the row of the batch in the fused loop. Finished rows that wait for others so stand still.
  * ``rollback``: wherever a round began, the target judges and the draft side drafts as after reading the same tokens one
    by one.
  * ``drivers``: `jaxspec.host_while_loop` and `jaxspec.iterate` give the tokens of the fused loop.
  * ``wire``: so do two endpoints that exchange bytes.

  Args:
    parts: of a method; better a function that builds them, so that it can be called twice.
    condition: ``B`` rows; two or more.
    max_len: tokens of a row. At least three, or there is little to check.
    end_token: the id that ends rows where ends are checked; None takes one that the first row draws half-way.
    key: one key or ``[B]`` row keys; `fast_keys` save time.
    num_alone: how many rows are decoded alone. Where rows keep one length (`Verifier.at`), only the tokens of a row must be
      those of the batch.
    history_free: whether drafts depend on the committed tokens and the keys alone; False for drafters that keep more from
      round to round (Jacobi windows, thresholds), whose drafts are not compared under ``rollback``.
    drivers: check that clause; it compiles one more program.
    wire: a `jaxspec.link` wire for these parts (needs JAX's own keys); None checks no endpoints.
  Returns:
    The result of the batch, without end tokens.
  Raises:
    AssertionError: one line that names the clause.

  Example:
    >>> import jax, jaxspec
    >>> from jaxspec import methods, testing
    >>> from jaxspec.decoder import Decoder
    >>> from jaxspec.models.conditions import ClassLabels
    >>> from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
    >>> from jaxspec.network import Network
    >>> fns = llamagen_fns(LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=4, num_classes=3))
    >>> network = Network(fns, fns.init(jax.random.key(0)))
    >>> build = lambda: Decoder(network, methods.Speculative(draft=network, gamma=2)).parts
    >>> out = testing.check_contract(build, ClassLabels(jax.numpy.array([0, 2])), max_len=4)
    >>> out.tokens.shape
    (2, 4)
  """
  if callable(parts):
    parts, again = parts(), parts()
    same = [getattr(again, name) == getattr(parts, name) for name in ("drafter", "verifier", "decode", "target_prefix")]
    _require(all(same), "equal parts", "drafter, verifier and decode that are equal when they are built again")
  rows, everything = condition.batch_size, slice(None)
  keys = _Keys(rng.row_keys(jax.random.key(0) if key is None else key, rows))
  if parts.decode is not None:
    return _check_whole(parts, condition, keys, max_len=max_len, num_alone=num_alone)
  first = _first_token(parts, keys.take(everything), condition, max_len)
  draws_ids = first.ndim == 1 and jnp.issubdtype(first.dtype, jnp.integer)
  never = (-1,) if draws_ids else None  # as many end tokens in all calls: one program

  fused = _Fused(parts, condition, max_len)
  free = fused(keys.take(everything), never)
  _check_counters(free, parts)
  traces, order = fused.num_traces, np.arange(rows)[::-1]
  moved = fused(keys.take(order), never, _as_arrays(parts.params), jax.tree.map(lambda leaf: leaf[order], condition))
  more = fused.num_traces - traces
  _require(more == 0, "one trace", "no new trace for other keys and values", f"{more} (Python numbers among the params?)")
  _check_same(jax.tree.map(lambda leaf: leaf[order], free), moved, "rows", "all rows as in another order")
  decodes = [(free, never)]
  if draws_ids:
    end_tokens = (int(free.tokens[0, max_len // 2]) if end_token is None else end_token,)
    ended = fused(keys.take(everything), end_tokens)
    _check_ends(free, ended, end_tokens)
    _check_counters(ended, parts)
    decodes.append((ended, end_tokens))

  two_ends = _TwoEnds(parts, max_len, first, never)
  for row in range(min(num_alone, rows)):
    one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], condition)
    for out, end_tokens in decodes:
      alone, exchanges = two_ends.decode(keys.take(slice(row, row + 1)), one, end_tokens)
      same = _check_same if parts.verifier.at is None else _check_same_tokens
      same(_row(out, row), _row(alone, 0), "rows", f"row {row} of the batch as it decodes alone")
      if end_tokens == never:
        two_ends.check_rollback(keys.take(slice(row, row + 1)), one, alone, exchanges, history_free=history_free)
  if drivers:
    _check_drivers(parts, keys.take, condition, free, never, max_len)
  if wire is not None:
    _check_wire(parts, keys, condition, free, max_len, wire, max(num_alone, 1))
  return free


def _first_token(parts: Parts, keys: Key, condition: PyTree, max_len: int) -> jax.ShapeDtypeStruct:
  """Shape and type of token 0 of all rows."""
  init = lambda params, keys, condition: parts.verifier.init(params, keys, condition, max_len, parts.drafter.window)
  return jax.eval_shape(init, parts.params.target, keys, condition)[0].next_token


class _Keys:
  """Row keys that may be used again and again: a key array may be consumed once."""

  def __init__(self, keys: Key):
    self._impl, self._data = jax.random.key_impl(keys), jax.random.key_data(keys)

  def take(self, rows: Any) -> Key:
    """The keys of some rows, given by anything that indexes an array."""
    return jax.random.wrap_key_data(self._data[rows], impl=self._impl)


class _Fused:
  """The fused loop of all rows, with a count of its traces."""

  def __init__(self, parts: Parts, condition: PyTree, max_len: int):
    self._parts, self._condition, self._max_len, self.num_traces = parts, condition, max_len, 0

    def draft(*args):
      self.num_traces += 1
      return parts.drafter.draft(*args)

    self._drafter = parts.drafter._replace(draft=draft)

  def __call__(
    self, keys: Key, end_tokens: _EndTokens, params: SpecParams | None = None, condition: PyTree | None = None
  ) -> DecodeResult:
    parts = self._parts
    params = parts.params if params is None else params
    condition = self._condition if condition is None else condition
    kwargs = dict(verifier=parts.verifier, max_len=self._max_len, target_prefix=parts.target_prefix)
    out = loop.speculate(params, keys, condition, drafter=self._drafter, end_token=end_tokens, **kwargs)
    return _on_host(out)


def _require(holds: Any, clause: str, wanted: str, got: Any = "others") -> None:
  if not holds:
    raise AssertionError(f"{clause}: Must have {wanted}, we instead got {got}")


def _on_host(tree: PyTree) -> PyTree:
  return jax.tree.map(np.asarray, tree)


def _row(out: DecodeResult, row: int) -> DecodeResult:
  return jax.tree.map(lambda leaf: leaf[row], out)


def _differs(wanted: np.ndarray, got: np.ndarray) -> bool:
  if wanted.shape != got.shape:
    return True
  if np.issubdtype(wanted.dtype, np.floating):  # programs that were compiled apart may round differently
    return not np.allclose(wanted, got, rtol=2e-3, atol=2e-3, equal_nan=True)
  return not np.array_equal(wanted, got)


def _check_same(wanted: DecodeResult, got: DecodeResult, clause: str, words: str) -> None:
  """Compares all fields of two results (or of one row of each)."""
  for name in DecodeResult._fields:
    for (path, ours), theirs in zip(
      jax.tree_util.tree_leaves_with_path(getattr(wanted, name)), jax.tree.leaves(getattr(got, name)), strict=True
    ):
      where = name + jax.tree_util.keystr(path)
      _require(not _differs(ours, theirs), clause, f"{where} {_short(theirs)} for {words}", _short(ours))


def _check_same_tokens(wanted: DecodeResult, got: DecodeResult, clause: str, words: str) -> None:
  """Compares the tokens alone."""
  same = not _differs(wanted.tokens, got.tokens)
  _require(same, clause, f"tokens {_short(got.tokens)} for {words}", _short(wanted.tokens))


def _short(values: np.ndarray) -> str:
  return np.array2string(np.asarray(values), precision=3, threshold=24, separator=",").replace("\n", "")


def _as_arrays(tree: PyTree) -> PyTree:
  """The same values as new arrays."""
  return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def _check_counters(out: DecodeResult, parts: Parts) -> None:
  origin, rounds, lengths = out.origin, out.commit_round, out.lengths
  rows, max_len = origin.shape
  inside = np.arange(max_len)[None] < lengths[:, None]
  for name, values in (("tokens", out.tokens), ("origin", origin), ("commit_round", rounds)):
    beyond = values[~inside]
    _require(not beyond.any(), "after the end", f"zeros in {name} after the end of a row", _short(beyond))
  for leaf in jax.tree.leaves(out.metrics):
    _require(not np.any(leaf[~inside]), "after the end", "zeros in metrics after the end of a row")
  _require((origin[inside] != Origin.EMPTY).all(), "counters", "an origin for every token")
  _require(((lengths >= 1) & (lengths <= max_len)).all(), "counters", f"lengths from 1 to {max_len}", _short(lengths))
  steps = np.diff(np.where(inside, rounds, np.maximum.accumulate(rounds, axis=1)), axis=1)
  _require((rounds[:, 0] == 0).all() and (steps >= 0).all(), "counters", "rounds that do not go back along a row")

  count = lambda *kinds: np.isin(origin, kinds).sum(1)
  in_round = lambda number, kinds: (inside & (rounds == number) & np.isin(origin, kinds)).any(1)
  kinds = [int(kind) for kind in Origin]
  others = [kind for kind in kinds if kind != Origin.LOCAL]
  numbers = range(int(rounds.max()) + 1)
  committing = sum(in_round(number, kinds) for number in numbers if number).astype(int) if len(numbers) > 1 else 0 * lengths
  asking = sum(in_round(number, others) for number in numbers)
  wanted = dict(rounds=committing, accepted=count(Origin.DRAFT), local=count(Origin.LOCAL), target_calls=asking)
  for name, values in wanted.items():
    got = getattr(out.counters, name)
    _require(np.array_equal(values, got), "counters", f"{name} {_short(values)} as origins and rounds say", _short(got))
  own = count(Origin.FIRST, Origin.REPLACED, Origin.BONUS)
  total = out.counters.accepted + out.counters.local + own
  _require(
    np.array_equal(total, lengths), "counters", "accepted, local and the target's own tokens that add up", _short(total)
  )
  _require(np.array_equal(out.accepted_mask, origin == Origin.DRAFT), "counters", "accepted_mask where tokens were drafted")
  drafted = out.counters.drafted
  _require((drafted >= out.counters.accepted).all(), "counters", "at least as many drafts as accepted ones", _short(drafted))
  calls, most = out.counters.draft_calls, parts.drafter.calls_per_round
  least = parts.drafter.calls_to_read
  fits = (calls >= least) & (calls <= least + out.counters.rounds * most)
  _require(fits.all(), "counters", f"draft_calls from {least} to {most} more each round", _short(calls))

  prefix = np.minimum(lengths, parts.target_prefix)
  leading = np.arange(max_len)[None] < prefix[:, None]
  _require(np.isin(origin, (Origin.FIRST, Origin.BONUS))[leading].all(), "prefix", "leading tokens of the target alone")
  _require((rounds == np.arange(max_len)[None])[leading].all(), "prefix", "one leading token a round")


def _check_ends(free: DecodeResult, ended: DecodeResult, end_tokens: tuple[int, ...]) -> None:
  is_end = np.isin(free.tokens, end_tokens)
  max_len = free.tokens.shape[1]
  lengths = np.where(is_end.any(1), is_end.argmax(1) + 1, free.lengths)
  _require(np.array_equal(ended.lengths, lengths), "end token", f"lengths {_short(lengths)}", _short(ended.lengths))
  inside = np.arange(max_len)[None] < lengths[:, None]
  for name in ("tokens", "origin", "commit_round", "accepted_mask"):
    wanted, got = np.where(inside, getattr(free, name), 0), getattr(ended, name)
    _require(np.array_equal(wanted, got), "end token", f"{name} as without an end token, cut {_short(wanted)}", _short(got))


class _Replayed(NamedTuple):
  """Parameters of a verifier whose first tokens are given."""

  params: PyTree
  tokens: Array  # [B, N] or [B, N, C]
  known: Array  # [] int32, so many of them are given


def _replayed(verifier: Verifier) -> Verifier:
  """The verifier; where it draws alone, tokens that are known are drawn."""

  def init(params: _Replayed, keys: Key, condition: PyTree, max_len: int, window: int) -> tuple[Verdict, PyTree]:
    verdict, state = verifier.init(params.params, keys, condition, max_len, window)
    first = jnp.where(params.known > 0, params.tokens[:, 0], verdict.next_token)
    return verdict._replace(next_token=first.astype(verdict.next_token.dtype)), state

  def verify(params: _Replayed, keys: Key, state: PyTree, cursor: Cursor, draft: Draft) -> tuple[Verdict, PyTree]:
    verdict, state = verifier.verify(params.params, keys, state, cursor, draft)
    if draft.tokens.shape[1]:
      return verdict, state
    max_len = params.tokens.shape[1]
    token = jax.vmap(lambda row, at: row[at])(params.tokens, jnp.minimum(cursor.length, max_len - 1))
    is_known = cursor.length < params.known  # [B]
    along = lambda values: is_known.reshape(-1, *(1,) * (values.ndim - 1))
    if verdict.num_next is None:
      next_token = jnp.where(along(token), token, verdict.next_token)
      return verdict._replace(next_token=next_token.astype(verdict.next_token.dtype)), state
    block = jnp.where(along(verdict.next_token), token[:, None], verdict.next_token)
    return verdict._replace(next_token=block, num_next=jnp.where(is_known, 1, verdict.num_next)), state

  return Verifier(init, verify)


class _Exchange(NamedTuple):
  """What crossed in one round of one row."""

  length: int  # committed tokens before it
  round: int
  draft: Draft
  verdict: Verdict | None  # None where nothing was asked


class _Steps(NamedTuple):
  """The parts of a round, compiled."""

  draft_round: Callable
  read_round: Callable
  verify_round: Callable
  commit_reply: Callable


def _jitted(function: Callable, *static: str, **fixed: Any) -> Callable:
  return jax.jit(functools.partial(function, **fixed), static_argnames=static)


class _TwoEnds:
  """Decodes one row by the steps of both sides, each compiled by itself and called from Python.

  Args:
    first: shape and type of token 0.
    never: no end token, in as many tokens as the calls to come have.
  """

  def __init__(self, parts: Parts, max_len: int, first: jax.ShapeDtypeStruct, never: _EndTokens):
    self._parts, self._max_len, self._first, self._never = parts, max_len, first, never
    self._steps: dict[int, _Steps] = {}
    start = dict(max_len=max_len, window=parts.drafter.window)
    self._start_target = _jitted(loop.start_target, verifier=_replayed(parts.verifier), **start)
    self._start_draft = _jitted(loop.start_draft, "target_prefix", max_len=max_len, drafter=parts.drafter)

  def _at(self, cursor: Cursor) -> _Steps:
    """The steps of a round that begins here."""
    length = 0 if self._parts.verifier.at is None else int(cursor.length[0])
    if length not in self._steps:
      drafter, verifier = (
        loop.at_length(part, length, self._max_len) for part in (self._parts.drafter, self._parts.verifier)
      )
      self._steps[length] = _Steps(
        _jitted(loop.draft_round, drafter=drafter), _jitted(loop.read_round, drafter=drafter),
        _jitted(loop.verify_round, verifier=_replayed(verifier)), _jitted(loop.commit_reply, drafter=drafter),
      )  # fmt: skip
    return self._steps[length]

  def _start(
    self, keys: Key, condition: PyTree, end_tokens: _EndTokens, tokens: np.ndarray | None = None
  ) -> tuple[_Replayed, TargetSide, DraftSide]:
    """The target's parameters and both sides after the prefill; ``tokens [1, N]`` are those that are known."""
    parts, end = self._parts, loop.end_array(end_tokens)
    # A drafter that may decide about token 0 must not where it is known.
    prefix = max(parts.target_prefix, 1) if tokens is not None and parts.drafter.may_accept_locally else parts.target_prefix
    known = 0 if tokens is None else self._max_len
    if tokens is None:
      tokens = np.zeros((1, self._max_len, *self._first.shape[1:]), self._first.dtype)
    params = _Replayed(parts.params.target, jnp.asarray(tokens), jnp.int32(known))
    target, prefill = self._start_target(params, keys, condition, end_token=end)
    keys = jax.random.clone(keys)
    side = self._start_draft(parts.params.draft, keys, condition, prefill, end_token=end, target_prefix=prefix)
    return params, target, side

  def decode(self, keys: Key, condition: PyTree, end_tokens: _EndTokens) -> tuple[DecodeResult, list[_Exchange]]:
    """One row, and what crossed."""
    parts, exchanges = self._parts, []
    params, target, side = self._start(keys, condition, end_tokens)
    alone, calls = loop.prefix_rounds(parts.target_prefix, self._max_len), int(side.counters.draft_calls[0])
    while bool(side.cursor.live[0]):
      before, round_, steps = side.cursor, int(side.cursor.round), self._at(side.cursor)
      step = steps.read_round if round_ < alone else steps.draft_round
      waiting = step(parts.params.draft, side)
      draft = waiting.draft
      calls += parts.drafter.calls_per_round if draft.num_calls is None else int(draft.num_calls[0])
      asks = bool(drafts.needs_verify(draft)[0])
      if asks:
        target, verdict = steps.verify_round(params, target, draft)
      else:
        like = jax.eval_shape(steps.verify_round, params, target, draft)[1]
        verdict = loop.reply_to_nothing(draft, like)
      if round_ >= alone:
        exchanges.append(_Exchange(int(before.length[0]), round_, draft, verdict if asks else None))
      side = steps.commit_reply(parts.params.draft, waiting, verdict)
      if parts.drafter.may_accept_locally:  # the drafts bring what the target side's cursor lacks
        target = target.replace(cursor=side.cursor)
      agree = all(not _differs(np.asarray(a), np.asarray(b)) for a, b in zip(target.cursor, side.cursor))
      _require(agree, "rows", f"equal cursors on both sides after round {round_}")
    got = int(side.counters.draft_calls[0])
    _require(got == calls, "counters", f"{calls} draft_calls, as the drafts say", got)
    return _on_host(result(side, parts.drafter)), exchanges

  def check_rollback(
    self, keys: Key, condition: PyTree, out: DecodeResult, exchanges: list[_Exchange], *, history_free: bool
  ) -> None:
    """Reads the tokens of a decoded row one by one, and drafts and judges again wherever a round began."""
    draft_params = self._parts.params.draft
    params, target, side = self._start(keys, condition, self._never, out.tokens)
    for exchange in exchanges:
      while int(side.cursor.length[0]) < exchange.length:
        steps = self._at(side.cursor)
        waiting = steps.read_round(draft_params, side)
        target, verdict = steps.verify_round(params, target, waiting.draft)
        side = steps.commit_reply(draft_params, waiting, verdict)
      steps = self._at(side.cursor)
      here = lambda at, round_=exchange.round: at.replace(cursor=at.cursor._replace(round=jnp.int32(round_)))
      where = f"in round {exchange.round}, as after reading the same tokens one by one"
      if history_free:
        _check_drafts(exchange.draft, steps.draft_round(draft_params, here(side)).draft, where)
      if exchange.verdict is not None:
        verdict = steps.verify_round(params._replace(known=jnp.int32(0)), here(target), exchange.draft)[1]
        for name in ("num_accepted", "next_token"):
          wanted, got = np.asarray(getattr(verdict, name)), np.asarray(getattr(exchange.verdict, name))
          _require(not _differs(wanted, got), "rollback", f"{name} {_short(wanted)} {where}", _short(got))


def _check_drafts(got: Draft, wanted: Draft, where: str) -> None:
  """Compares what two drafts propose; padding may differ."""
  pairs = [("num_drafted", got.num_drafted, wanted.num_drafted)]
  if got.parents is None:
    number = int(wanted.num_drafted[0])
    pairs.append(("tokens", got.tokens[:, :number], wanted.tokens[:, :number]))
  else:
    pairs += [("tokens", got.tokens, wanted.tokens), ("parents", got.parents, wanted.parents)]
  for name, ours, theirs in pairs:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    _require(not _differs(theirs, ours), "rollback", f"{name} {_short(theirs)} drafted {where}", _short(ours))


def _check_drivers(
  parts: Parts, keys: Callable[[Any], Key], condition: PyTree, free: DecodeResult, never: _EndTokens, max_len: int
) -> None:
  everything = slice(None)
  kwargs = dict(drafter=parts.drafter, verifier=parts.verifier, max_len=max_len, target_prefix=parts.target_prefix)
  kwargs |= dict(end_token=never)
  host = loop.speculate(parts.params, keys(everything), condition, loop_fn=loop.host_while_loop, **kwargs)
  _check_same(free, _on_host(host), "drivers", "the fused loop as host_while_loop")
  for side in loop.iterate(parts.params, keys(everything), condition, **kwargs):
    tokens, counters = np.asarray(side.tokens), _on_host(side.counters)
  _require(not _differs(free.tokens, tokens), "drivers", "the tokens of the fused loop from iterate", _short(tokens))
  same = all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(free.counters), jax.tree.leaves(counters)))
  _require(same, "drivers", "the counters of the fused loop from iterate")


def _check_wire(
  parts: Parts, keys: _Keys, condition: PyTree, free: DecodeResult, max_len: int, wire: Any, num_rows: int
) -> None:
  from jaxspec.link.decode import decode_over_link

  some = lambda tree: jax.tree.map(lambda leaf: leaf[:num_rows], tree)
  far, _ = decode_over_link(
    parts.params, keys.take(slice(num_rows)), some(condition), drafter=parts.drafter, verifier=parts.verifier, wire=wire,
    max_len=max_len, target_prefix=parts.target_prefix,
  )  # fmt: skip
  _check_same(some(free)._replace(metrics=()), _on_host(far)._replace(metrics=()), "wire", "the fused loop as two endpoints")


def _check_whole(parts: Parts, condition: PyTree, keys: _Keys, *, max_len: int, num_alone: int) -> DecodeResult:
  """The clauses that a decode without a drafter and a verifier can be asked for."""
  traces = 0

  @jax.jit
  def run(params: SpecParams, keys: Key, condition: PyTree) -> DecodeResult:
    nonlocal traces
    traces += 1
    return parts.decode(params, keys, condition, max_len, None)

  free = _on_host(run(parts.params, keys.take(slice(None)), condition))
  values, order = _as_arrays(parts.params), np.arange(condition.batch_size)[::-1]
  moved = _on_host(run(values, keys.take(order), jax.tree.map(lambda leaf: leaf[order], condition)))
  _check_same(jax.tree.map(lambda leaf: leaf[order], free), moved, "rows", "all rows as in another order")
  _require(traces == 1, "one trace", "one trace for other keys and values", traces)
  for row in range(min(num_alone, condition.batch_size)):
    one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], condition)
    alone = _on_host(run(parts.params, keys.take(slice(row, row + 1)), one))
    _check_same(_row(free, row), _row(alone, 0), "rows", f"row {row} of the batch as row {row} decodes alone")
  calls = free.counters.target_calls
  _require((free.lengths == max_len).all(), "counters", f"lengths of {max_len}", _short(free.lengths))
  _require((free.origin != Origin.EMPTY).all(), "counters", "an origin for every token")
  _require((calls <= max_len).all(), "counters", "at most a pass a token", _short(calls))
  return free
