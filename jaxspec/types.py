"""The contracts of the library: what a model, a drafter, a verifier and an acceptance rule are.

No maths lives here. Letters used in every docstring: ``B`` rows of a batch, ``N`` tokens of one result, ``K`` draft
window, ``V`` vocabulary, ``T`` inputs of one forward pass, ``P`` positions of the condition, ``S`` cache slots.
Positions are absolute positions in the sequence, the condition included.

One round of decoding is draft -> verify -> commit::

    draft, drafter_state, trace = drafter.draft(params.draft, keys, drafter_state, cursor)
    verdict, verifier_state     = verifier.verify(params.target, keys, verifier_state, cursor, draft)
    drafter_state               = drafter.commit(params.draft, drafter_state, cursor, draft, trace, verdict)
    cursor                      = advance(cursor, draft, verdict, max_len)

The draft side and the target side only exchange `Draft` and `Verdict`. They may live in one compiled loop, in a Python
loop, or on two machines. When they are apart, each side keeps its own `Cursor` and moves it by the same pure function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

Array = jax.Array
Key = jax.Array
PyTree = Any
Params = Any
Cache = Any


class Intervals(NamedTuple):
  """An interval for the logit of every token, from ``H`` heads on one trunk (CIAR, arXiv 2603.25463, eq. 3).

  They describe a set of distributions: the softmax of any logits between ``centre - radius`` and ``centre + radius``.
  """

  centre: Array  # [..., H, V] float32
  radius: Array  # [..., H, V] float32, at least 0
  lens: Array | None = None  # [..., L - 1, V] float32, logits that the output matrix gives for each layer below the last


class ModelOutput(NamedTuple):
  """What one forward pass returns."""

  logits: Array | None  # [B, T, V] float32, logits of the token after each input; None: a head reads the features instead
  features: Array  # [B, T, D] hidden state after the final norm (what the output head reads); guided: both halves, 2 D
  intervals: Intervals | None = None  # leaves [B, T, H, V], of networks with an Inter-Head (`jaxspec.models.inter_head`)
  lens: Array | None = None  # [B, T, L - 1, V] logits of each layer below the last, of networks that return them


class ApplyFn(Protocol):
  """Forward pass of one network.

  Args:
    params: parameters.
    inputs: token ids ``[B, T]`` int32 (or vectors ``[B, T, C]``), or the family's condition pytree (prefill).
    cache: the family's cache; ``None`` runs without one (teacher forcing).
    positions: ``[B, T]`` int32 absolute positions of the inputs, or ``[1, T]`` when all rows share them (cheaper).
      Input t goes to cache slot ``slot[b] + t``: consecutive also for draft trees, whose positions are depths.
    mask: optional ``[B, T, W]`` bool, True where an input may attend. It replaces the causal mask for the newest ``W >= T``
      slots, which end with the slot of the last input. Every earlier slot is visible. Draft trees need it.
    inject: optional ``[B, T, D]`` added to the input embeddings.
    logits_at: optional ``[B]`` or ``[1]`` int32, the only input whose logits are computed (``[B, 1, V]``). This saves the
      output matrix for the others. Features are those of all inputs.
    slot: optional ``[B]`` or ``[1]`` int32 cache slot of the first input; ``positions[:, 0]`` by default.
  Returns:
    `ModelOutput` and the new cache.
  """

  def __call__(
    self,
    params: Params,
    inputs: PyTree,
    cache: Cache | None,
    *,
    positions: Array,
    mask: Array | None = None,
    inject: Array | None = None,
    logits_at: Array | None = None,
    slot: Array | None = None,
  ) -> tuple[ModelOutput, Cache]: ...


class ModelFns(NamedTuple):
  """One network as pure functions."""

  init: Callable[[Key], Params]
  init_cache: Callable[[int, int], Cache]  # (batch, max_len) -> empty cache
  apply: ApplyFn
  prefix_len: Callable[[PyTree], int]  # condition -> number of cache slots it takes (static)
  null_condition: Callable[[Params, PyTree], PyTree] | None = None  # the unconditional partner, for guidance
  # (cache, slot [B], path [B, L]) -> cache: moves the entries of slots ``slot + path`` to ``slot, slot + 1, ...``. None:
  # the network scores chains only.
  compact: Callable[[Cache, Array, Array], Cache] | None = None
  # Rows of a cache as slots of a table, see `jaxspec.models.kv_cache.take` and `put`. None: no table holds its caches.
  take: Callable[[Cache, Array], Cache] | None = None  # (cache, slots [M]) -> cache of these rows
  put: PutFn | None = None


class PutFn(Protocol):
  """Writes rows of a cache into slots of another cache.

  Args:
    cache: the table, to be donated.
    rows: a cache of ``M`` rows.
    slots: ``[M]`` int32 rows of the table; those that occur more than once hold garbage afterwards.
    start: ``[M]`` int32, the first cache slot that is written in each row; None writes whole rows.
    width: static, how many cache slots are written.
  Returns:
    The table. All else in it stays.
  """

  def __call__(
    self, cache: Cache, rows: Cache, slots: Array, start: Array | None = None, width: int | None = None
  ) -> Cache: ...


class Condition(Protocol):
  """What a family is conditioned on: a pytree of arrays that knows its number of rows."""

  @property
  def batch_size(self) -> int: ...


class Cursor(NamedTuple):
  """Progress of each row. When the two sides are apart, each side keeps one.

  Rows of one decode share their round and their end tokens. Rows of many decodes (`jaxspec.server`) have their own.
  """

  last: Array  # [B] int32 (or [B, C] float), the newest committed token
  length: Array  # [B] int32, number of committed tokens
  live: Array  # [B] bool, False once a row is finished
  round: Array  # [] int32, or [B]
  end_tokens: Array | int = -1  # [], [E] or [B, E] int32, tokens that end a row (EOS); -1: rows end at their length only


class Draft(NamedTuple):
  """A proposal for the next tokens of every row: what the draft side sends to the target side.

  Locally accepted tokens come first, then the tokens to be verified. An acceptance rule only sees the latter.
  """

  tokens: Array  # [B, K] int32, or [B, K, C] float
  proposal: PyTree  # what the tokens to be verified were drawn from, as the rule reads it: logits [B, K, V], counts, chains
  num_drafted: Array  # [B] int32, the most tokens that may be accepted (valid tokens, or levels of a tree); 0 is legal
  parents: Array | None = None  # [B, K] int32, parent of each node of a draft tree (`jaxspec.trees`); None: a chain
  num_local: Array | None = None  # [B] int32, leading tokens that the draft side accepted by itself; None: 0
  needs_verify: Array | None = None  # [B] bool; None: every row does
  num_calls: Array | None = None  # [B] int32, passes of the draft network; None: `Drafter.calls_per_round`
  payload: PyTree = ()  # what one kind of verifier needs besides, for example `jaxspec.drafters.interval.Unread`


class Verdict(NamedTuple):
  """What the target side decided about a `Draft`."""

  num_accepted: Array  # [B] int32, leading tokens of the draft (or of `path`) that are accepted
  next_token: Array  # [B] int32 (or [B, C]), the token after them; with `num_next` a block [B, M] (or [B, M, C])
  path: Array | None = None  # [B, L] int32, accepted nodes of a tree from the root on, L <= K; None: a chain
  feedback: PyTree = ()  # target features or logits, at [last, draft ...] (prefill: at the condition)
  metrics: PyTree = ()  # what a rule reports about each committed token, leaves [B, K + M] ([B, L + M] with a path)
  num_next: Array | None = None  # [B] int32, valid tokens of the block in `next_token`; None: `next_token` is one token
  # [B] bool, `next_token` is an accepted draft that ends the round: an end token (`jaxspec.drafts.stop_at_end_token`), or
  # where rows keep one length (`Verifier.at`). None: read off the draft
  is_drafted_end: Array | None = None


class FirstToken(NamedTuple):
  """What a drafter decides about token 0."""

  token: Array  # [B] int32
  is_local: Array  # [B] bool, the drafter accepted its own token; else the token is that of the target's prefill
  state: PyTree  # the drafter's state after this decision


class Drafter(NamedTuple):
  """Source of proposals: five pure functions and static numbers.

  ``init(params, keys, condition, max_len, prefill) -> (state, first)`` gets the verdict of the target's prefill (token 0
  and the feedback about the condition). ``first`` is a `FirstToken` of a drafter that may decide about token 0, else None.

  ``read(params, state, cursor) -> state`` reads the newly committed tokens and drafts nothing. The loop calls it instead of
  ``draft`` while the target draws its ``target_prefix``; ``commit`` then gets an empty draft and the trace ``()``.

  ``draft(params, keys, state, cursor) -> (Draft, state, trace)`` reads the newly committed tokens and drafts. ``trace`` is
  what ``commit`` needs to roll back; it never leaves the draft side.

  ``commit(params, state, cursor, draft, trace, verdict) -> state`` gets the cursor from before the round.

  ``report(state)`` returns what a drafter counted by itself (bits, thresholds); it becomes `DecodeResult.report`.

  A drafter with ``may_accept_locally`` may commit tokens without the target: where `Draft.needs_verify` is False, the first
  ``num_local`` tokens are committed and nothing is exchanged. If no row needs verification, the target does not run.
  """

  init: Callable[[Params, Key, PyTree, int, Verdict], tuple[PyTree, FirstToken | None]]
  read: Callable[[Params, PyTree, Cursor], PyTree]
  draft: Callable[[Params, Key, PyTree, Cursor], tuple[Draft, PyTree, PyTree]]
  commit: Callable[[Params, PyTree, Cursor, Draft, PyTree, Verdict], PyTree]
  window: int  # static size K of every draft; 0: plain decoding
  calls_per_round: int  # passes of the draft network in one round (the most, where it varies)
  report: Callable[[PyTree], PyTree] | None = None
  may_accept_locally: bool = False
  # Whether its network reads what is committed: a pass of its own for the condition, and one a round while the target draws
  # its prefix.
  has_cache: bool = True
  # (length, max_len) -> the drafter of rounds in which every row has this length, with ``read`` and ``draft`` of its own
  # shapes. None: one drafter for all lengths. See `Verifier.at`.
  at: Callable[[int, int], Drafter] | None = None

  @property
  def calls_to_read(self) -> int:
    """Passes of the draft network that read the condition, or a token of the target's prefix."""
    return int(self.calls_per_round > 0 and self.has_cache)


class Verifier(NamedTuple):
  """Judge of proposals: two pure functions.

  ``init(params, keys, condition, max_len, window) -> (verdict, state)`` runs the prefill and draws token 0. No draft
  precedes token 0, so this `Verdict` accepts nothing. A pass over ``window`` drafts may write as many cache slots beyond
  ``max_len``.

  ``verify(params, keys, state, cursor, draft) -> (verdict, state)`` judges a draft, or draws one token if it is empty.

  ``at(length, max_len)`` is for tokens whose shapes depend on where they stand (maps of growing resolution): the verifier of
  rounds in which every row has this many tokens. It commits equally many tokens in all rows, so that rows keep one length.
  """

  init: Callable[[Params, Key, PyTree, int, int], tuple[Verdict, PyTree]]
  verify: Callable[[Params, Key, PyTree, Cursor, Draft], tuple[Verdict, PyTree]]
  at: Callable[[int, int], Verifier] | None = None


class AcceptFn(Protocol):
  """An acceptance rule. It judges a draft and draws the next token; it runs no network.

  Args:
    tables: arrays that the rule reads (``ModelParams.rule`` of the target side), ``()`` if it needs none.
    keys: ``[B]`` random keys; consumed.
    draft: the `Draft`.
    target: processed target logits ``[B, K+1, V]`` (row i judges draft i, row K is the bonus row).
  """

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: PyTree) -> Verdict: ...


class WhileLoopFn(Protocol):
  """`jax.lax.while_loop` or anything with its interface (a Python loop, a loop of fixed length)."""

  def __call__(self, cond_fun: Callable, body_fun: Callable, init_val: PyTree) -> PyTree: ...
