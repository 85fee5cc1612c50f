"""The contracts of the library: what a model, a drafter, a verifier and a rule are.

No maths lives here. Letters used in every docstring: ``B`` rows of a batch, ``N`` tokens of one result, ``K`` draft
window, ``V`` vocabulary, ``T`` inputs of one forward pass, ``P`` condition (prefix) positions, ``S`` cache slots.
Positions are absolute sequence positions, the condition included.

One round of decoding is propose -> verify -> commit::

    draft, drafter_state   = drafter.propose(params.draft, keys, drafter_state, cursor)
    verdict, verifier_state = verifier.verify(params.target, keys, verifier_state, cursor, draft)
    drafter_state          = drafter.commit(params.draft, drafter_state, cursor, draft, verdict)
    cursor                 = advance(cursor, draft, verdict)

The three calls only exchange `Draft` and `Verdict`, so the two sides may live in one compiled loop, in a Python loop,
or on two machines; both sides keep their own `Cursor` and move it by the same pure function.
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
  """Logits with an error bar, of ``H`` heads on one trunk: each law is softmax of something in ``centre +- radius``."""

  centre: Array  # [..., H, V] float32
  radius: Array  # [..., H, V] float32, at least 0
  lens: Array | None = None  # [..., L - 1, V] float32, logits that the output matrix reads off the layers below the last


class ModelOutput(NamedTuple):
  """What one forward pass returns."""

  logits: Array | None  # [B, T, V] float32, the law of the token after each input; None: the features say it
  features: Array  # [B, T, D] hidden state after the final norm (what the output head reads); guided: both halves, 2 D
  intervals: Intervals | None = None  # leaves [B, T, H, V], of networks with an Inter-Head (`jaxspec.models.inter_head`)
  lens: Array | None = None  # [B, T, L - 1, V] logits read off the layers below the last, of networks that are asked to


class ApplyFn(Protocol):
  """Forward pass of one network.

  Args:
    params: parameters.
    inputs: token ids ``[B, T]`` int32, or the family's condition pytree (prefill).
    cache: the family's cache; ``None`` runs without one (teacher forcing).
    positions: ``[B, T]`` int32 absolute positions of the inputs, or ``[1, T]`` when all rows share them (cheaper).
      Input t goes to cache slot ``slot[b] + t``: consecutive also for draft trees, whose positions are depths.
    mask: optional ``[B, T, W]`` bool, True where an input may look; replaces causality among the newest ``W >= T`` slots,
      the last of which is that of the last input. Every slot before those is seen (draft trees).
    inject: optional ``[B, T, D]`` added to the input embeddings.
    logits_at: optional ``[B]`` or ``[1]`` int32, the one input whose logits are wanted (``[B, 1, V]``); saves the
      output matrix on the others. Features are those of all inputs.
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
  """One network as pure functions; the loop never sees modules."""

  init: Callable[[Key], Params]
  init_cache: Callable[[int, int], Cache]  # (batch, max_len) -> empty cache
  apply: ApplyFn
  prefix_len: Callable[[PyTree], int]  # condition -> number of cache slots it takes (static)
  null_condition: Callable[[Params, PyTree], PyTree] | None = None  # the unconditional partner, for guidance
  # (cache, slot [B], path [B, L]) -> cache: moves the entries of slots ``slot + path`` to ``slot, slot + 1, ...``. None:
  # the network scores chains only.
  compact: Callable[[Cache, Array, Array], Cache] | None = None


class Cursor(NamedTuple):
  """Where each row stands; both ends of a split keep one."""

  last: Array  # [B] int32 (or [B, C] float), the newest committed token
  length: Array  # [B] int32 committed tokens
  live: Array  # [B] bool, False once a row is finished
  round: Array  # [] int32
  end: Array | int = -1  # [] or [E] int32, tokens that end a row (end of sequence); -1: rows end at their length only


class Backlog(NamedTuple):
  """What a verifier missed while rows settled tokens by themselves, and where it has to go on."""

  tokens: Array  # [B, N] int32 committed tokens by place; those before ``read`` are known already
  read: Array  # [B] int32 places the verifier has read
  length: Array  # [B] int32 committed tokens before this round
  round: Array  # [] int32


class Draft(NamedTuple):
  """A proposal for the next tokens of every row.

  Settled tokens come first, then those to be verified; a rule only sees the latter.
  """

  tokens: Array  # [B, K] int32, or [B, K, C] float
  proposal: PyTree  # the law each token to be verified was really sampled from; leaves [B, K, ...] (behind settled ones)
  num_drafted: Array  # [B] int32 the most tokens that may be kept (valid entries of a chain, levels of a tree); 0 is legal
  num_settled: Array  # [B] int32 leading tokens that are already final
  needs_verify: Array  # [B] bool
  parents: Array | None = None  # [B, K] int32 parent of each node of a draft tree (`jaxspec.trees`); None = chain
  trace: PyTree = ()  # small drafter state before each position, leaves [B, K+1, ...]; stays on the drafting side
  aux: PyTree = ()  # whatever the verifier needs besides
  num_calls: Array | None = None  # [B] int32 draft passes this row needed, where that varies; None: `calls_per_round`
  backlog: Backlog | None = None  # set by the loop for drafters that may settle tokens (`Drafter.may_settle`)


class Verdict(NamedTuple):
  """What the verifier decided about a `Draft`."""

  num_accepted: Array  # [B] int32, leading tokens of the draft (or of `path`) that are kept
  next_token: Array  # [B] int32 (or [B, C]): replacement after a rejection, bonus after full acceptance
  path: Array | None = None  # [B, L] int32 accepted nodes of a tree from the root on, L <= K; None = chain
  feedback: PyTree = ()  # target features or laws a drafter may reuse, at [last, draft ...] (prefill: at the condition)
  metrics: PyTree = ()  # what a rule says about each token it commits, leaves [B, K+1] ([B, L+1] with a path); () = nothing


class Drafter(NamedTuple):
  """Source of proposals.

  ``init`` gets the verdict of the prefill: token 0 and the verifier's feedback about the condition. ``window`` is the
  static size ``K`` of every draft; 0 means that there is no drafter (plain decoding). ``report`` reads what a drafter
  counted by itself (bits, thresholds) out of its state; it becomes ``DecodeResult.report``.

  A drafter with ``may_settle`` may finish tokens alone: in a row with `Draft.needs_verify` False the ``num_settled`` tokens
  are committed and nothing is exchanged, and a round that no row needs verified does not run the verifier at all. Such a
  drafter may also decide about token 0 with ``open``: (params, keys, state, prefill) -> (token 0 ``[B]``, whether it settled
  it by itself ``[B]`` bool, state).
  """

  init: Callable[[Params, PyTree, int, Verdict], PyTree]  # (params, condition, max_len, prefill) -> state
  propose: Callable[[Params, Key, PyTree, Cursor], tuple[Draft, PyTree]]
  commit: Callable[[Params, PyTree, Cursor, Draft, Verdict], PyTree]
  window: int
  calls_per_round: int  # forward passes of the draft network in one round (the most, where it varies)
  report: Callable[[PyTree], PyTree] | None = None  # state -> counts of the drafter, leaves [B]
  may_settle: bool = False
  open: Callable[[Params, Key, PyTree, Verdict], tuple[Array, Array, PyTree]] | None = None
  # The same drafter (same state) while the verifier draws alone: it reads what is committed and drafts nothing, window 0.
  following: Drafter | None = None


class Verifier(NamedTuple):
  """Judge of proposals.

  ``init`` runs the prefill and samples token 0, which no draft precedes: a `Verdict` that accepts nothing. A window may
  touch as many cache slots beyond ``max_len`` as it has tokens.
  """

  init: Callable[[Params, Key, PyTree, int, int], tuple[Verdict, PyTree]]  # (params, keys, condition, max_len, window)
  verify: Callable[[Params, Key, PyTree, Cursor, Draft], tuple[Verdict, PyTree]]


class AcceptFn(Protocol):
  """A verification rule: no model, no loop.

  Args:
    tables: arrays the rule reads (``ModelParams.rule`` of the target side), ``()`` if it needs none.
    keys: ``[B]`` random keys; consumed.
    draft: the `Draft`.
    target: processed target logits ``[B, K+1, V]`` (row i judges draft i, row K is the bonus row).
  """

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: PyTree) -> Verdict: ...


class WhileLoopFn(Protocol):
  """`jax.lax.while_loop` or anything with its interface (a Python loop, a loop of fixed length)."""

  def __call__(self, cond_fun: Callable, body_fun: Callable, init_val: PyTree) -> PyTree: ...
