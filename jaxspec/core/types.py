"""The contracts of the library: models, drafters, verifiers and acceptance rules.

Letters used in every docstring: ``B`` rows of a batch, ``N`` tokens of one result, ``K`` draft window, ``V`` vocabulary,
``T`` inputs of one forward pass, ``P`` positions of the condition, ``S`` cache slots. Positions are absolute positions in
the sequence, including the condition.

One round of decoding is draft -> verify -> commit::

    draft, drafter_state, trace = drafter.draft(params.draft, keys, drafter_state, cursor)
    verdict, verifier_state     = verifier.verify(params.target, keys, verifier_state, cursor, draft)
    drafter_state               = drafter.commit(params.draft, drafter_state, cursor, draft, trace, verdict)
    cursor                      = advance(cursor, draft, verdict, max_len)

The draft side and the target side only exchange `Draft` and `Verdict`. They may live in one compiled loop, in a Python
loop, or on two machines. On two machines, each side keeps its own `Cursor` and advances it by the same pure function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
HostArray = jax.Array | np.ndarray  # also numpy arrays that are not on a device yet
Key = jax.Array
PyTree = Any
Params = Any
Cache = Any


class Intervals(NamedTuple):
  """An interval for the logit of every token, from ``H`` heads on one trunk (CIAR, arXiv 2603.25463, eq. 3).

  They describe a set of distributions: the softmax of any logits between ``centre - radius`` and ``centre + radius``.

  Attributes:
    centre: ``[..., H, V]`` float32.
    radius: ``[..., H, V]`` float32, at least 0.
    lens: ``[..., L - 1, V]`` float32, logits of the output matrix for each layer below the last; None without them.
  """

  centre: Array
  radius: Array
  lens: Array | None = None


class ModelOutput(NamedTuple):
  """Result of one forward pass.

  Attributes:
    logits: ``[B, T, V]`` float32, logits of the token after each input; None if a head reads the features instead.
    features: ``[B, T, D]`` hidden state after the final norm, the input of the output head; with guidance both halves, ``2
      D``.
    intervals: leaves ``[B, T, H, V]``, of networks with an Inter-Head (`jaxspec.models.heads.inter_head`); else None.
  """

  logits: Array | None
  features: Array
  intervals: Intervals | None = None

  def need_logits(self) -> Array:
    """The logits.

    Raises:
      ValueError: for a network without an output matrix.
    """
    if self.logits is None:
      raise ValueError("Must have a network with logits, we instead got one whose head reads the features")
    return self.logits

  def need_intervals(self) -> Intervals:
    """The intervals.

    Raises:
      ValueError: for a network without an Inter-Head.
    """
    if self.intervals is None:
      raise ValueError("Must have a network with an Inter-Head, we instead got one without intervals")
    return self.intervals


class ApplyFn(Protocol):
  """Forward pass of one network.

  Args:
    params: parameters.
    inputs: tokens ``[B, T]`` int32 (or ``[B, T, C]`` float), or the family's condition pytree (prefill).
    cache: the family's cache; ``None`` runs without one (teacher forcing).
    positions: ``[B, T]`` int32 absolute positions of the inputs, or ``[1, T]`` when all rows share them (cheaper). None: a
      full sequence without a cache. Input t goes to cache slot ``slot[b] + t``: consecutive also for draft trees, whose
      positions are depths. With `jaxspec.core.packing.PackedPositions` the inputs ``[1, P]`` are those of all rows, and
      so are the outputs; only networks with `ModelFns.packs` take them.
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
    positions: PyTree,
    mask: Array | None = None,
    inject: Array | None = None,
    logits_at: Array | None = None,
    slot: Array | None = None,
  ) -> tuple[ModelOutput, Cache]: ...


class Layers(NamedTuple):
  """One network in three parts, which `ModelFns.apply` composes::

      x, context = layers.embed(params, inputs, cache, positions=positions)
      x, cache = layers.blocks(params, x, context, cache, 0, layers.num_layers)
      output = layers.head(params, x)

  Early exits, features of several levels and pipelines call `blocks` for a part of the blocks at a time. Each function reads
  the parameters of its own part only.

  Attributes:
    embed: ``(params, inputs, cache, *, positions, mask, inject, slot) -> (x, context)``, with the arguments of `ApplyFn`:
      the hidden states ``[B, T, D]`` below the first block, and the blocks' common inputs (positions, masks, angles). It
      reads only the cache's number of slots and mask of padding.
    blocks: ``(params, x, context, cache, first, last) -> (x, cache)``, the blocks ``first .. last - 1``, both static. Only
      the cache entries of these blocks are read and replaced; others may be None.
    head: ``(params, x, logits_at=None) -> ModelOutput`` of hidden states above any block.
    num_layers: number of blocks ``L``.
  """

  embed: Callable[..., tuple[Array, PyTree]]
  blocks: Callable[[Params, Array, PyTree, Cache | None, int, int], tuple[Array, Cache | None]]
  head: Callable[..., ModelOutput]
  num_layers: int


class ModelFns(NamedTuple):
  """One network as pure functions.

  Attributes:
    init: ``(key) -> params``, random parameters.
    init_cache: ``(batch, max_len) -> cache``, an empty cache with these numbers of rows and slots, both static.
    apply: the forward pass, see `ApplyFn`.
    prefix_len: ``(condition) -> int``, the number of cache slots that a condition takes; static.
    null_condition: ``(params, condition) -> condition``, the unconditional partner, for guidance; None: no guidance.
    compact: ``(cache, slot [B], path [B, L]) -> cache``, moves the entries of slots ``slot + path`` to ``slot, slot + 1,
      ...``. None: the network scores chains only.
    take: ``(cache, slots [M]) -> cache`` of these rows, see `jaxspec.models.nn.kv_cache.take`; for caches whose rows are
      slots of a table. None: no table holds its caches.
    put: the reverse, see `PutFn`.
    layers: the parts of the network; None if it cannot be divided. The parts of a guided network are guided.
    packs: whether it takes packed inputs.
  """

  init: Callable[[Key], Params]
  init_cache: Callable[[int, int], Cache]
  apply: ApplyFn
  prefix_len: Callable[[PyTree], int]
  null_condition: Callable[[Params, PyTree], PyTree] | None = None
  compact: Callable[[Cache, Array, Array], Cache] | None = None
  take: Callable[[Cache, Array], Cache] | None = None
  put: PutFn | None = None
  layers: Layers | None = None
  packs: bool = False

  def __repr__(self) -> str:
    return f"<ModelFns of {self.init.__qualname__.partition('.')[0]}>"


class PutFn(Protocol):
  """Writes rows of a cache into slots of another cache.

  Args:
    cache: the table, to be donated.
    rows: a cache of ``M`` rows.
    slots: ``[M]`` int32 rows of the table; repeated ones hold garbage afterwards.
    start: ``[M]`` int32, the first written cache slot of each row; None writes full rows.
    width: static number of written cache slots.
  Returns:
    The table, otherwise unchanged.
  """

  def __call__(
    self, cache: Cache, rows: Cache, slots: Array, start: Array | None = None, width: int | None = None
  ) -> Cache: ...


class Condition(Protocol):
  """A family's condition: a pytree of arrays with its number of rows."""

  @property
  def batch_size(self) -> int: ...


class Cursor(NamedTuple):
  """Progress of each row. On two machines, each side keeps one.

  Rows of one decode share end tokens, and the round unless `Drafter.keeps_rounds_open`. Rows of many decodes
  (`jaxspec.serving.server`) have separate ones.

  Attributes:
    last: ``[B]`` int32 (or ``[B, C]`` float), the newest committed token.
    length: ``[B]`` int32, number of committed tokens; 1 after the prefill. The next token has this index in its row.
    live: ``[B]`` bool, False once a row is finished.
    round: ``[]`` int32, or ``[B]``; 0 in the first round after the prefill.
    end_tokens: ``[]``, ``[E]`` or ``[B, E]`` int32, tokens that end a row (EOS); -1: rows end at their length only.
  """

  last: Array
  length: Array
  live: Array
  round: Array
  end_tokens: Array | int = -1


class Draft(NamedTuple):
  """A proposal for the next tokens of every row, the message of the draft side to the target side.

  Drafters make one with `Draft.chain` or `Draft.tree`. Locally accepted tokens come first, then the tokens to be verified.
  An acceptance rule only sees the latter.

  Attributes:
    tokens: ``[B, K]`` int32, or ``[B, K, C]`` float; entries after a row's drafts are padding.
    proposal: the distribution of the tokens to be verified, in the rule's form: logits ``[B, K, V]`` float32 (a single float
      array is always logits; -inf for impossible tokens), or a pytree of counts or chains. Of trees: logits ``[B, L, V]`` by
      level if candidates are sampled, ``()`` if they are certain.
    num_drafted: ``[B]`` int32, largest number of accepted tokens: valid tokens of a chain, including local ones, or levels
      of a tree; 0 is legal.
    num_calls: ``[B]`` int32, passes of the draft network in this round, at most `Drafter.calls_per_round` (of an
      adaptive drafter, one more for each earlier round).
    parents: ``[B, K]`` int32, parent of each node of a draft tree, an earlier node or -1 for the root
      (`jaxspec.core.trees`); ``[B, 0]``: a chain.
    num_local: ``[B]`` int32, leading tokens accepted locally by the draft side, 0 unless `Drafter.may_accept_locally`.
    needs_verify: ``[B]`` bool, whether the row needs the target, True unless `Drafter.may_accept_locally`.
    payload: other inputs of a kind of verifier, for example `jaxspec.core.payloads.PendingTokens`.
  """

  tokens: Array
  proposal: PyTree
  num_drafted: Array
  num_calls: Array
  parents: Array
  num_local: Array
  needs_verify: Array
  payload: PyTree

  @classmethod
  def chain(
    cls,
    tokens: Array,
    proposal: PyTree,
    num_drafted: Array | int,
    num_calls: Array | int,
    *,
    num_local: Array | int = 0,
    needs_verify: Array | bool = True,
    payload: PyTree = (),
  ) -> Self:
    """A chain of drafts. Arguments are the fields; a number applies to every row.

    Missing fields become numpy arrays if ``tokens`` is one.
    """
    return cls(
      tokens,
      proposal,
      _of_rows(tokens, num_drafted),
      _of_rows(tokens, num_calls),
      _full_like(tokens, (tokens.shape[0], 0), 0),
      _of_rows(tokens, num_local),
      _of_rows(tokens, needs_verify),
      payload,
    )

  @classmethod
  def tree(
    cls, tokens: Array, parents: Array, num_levels: Array | int, num_calls: Array | int, *, proposal: PyTree = ()
  ) -> Self:
    """A tree of candidates with ``num_drafted`` levels; otherwise like `chain`."""
    return cls.chain(tokens, proposal, num_levels, num_calls)._replace(parents=parents)

  @classmethod
  def empty(cls, last: Array) -> Self:
    """No drafts (``K = 0``) after tokens ``last [B]`` or ``[B, C]``: the verifier draws one token alone."""
    return cls.chain(last[:, None][:, :0], (), 0, 0)

  @property
  def is_tree(self) -> bool:
    """Whether the drafts are a tree; static, by the shape of ``parents``."""
    return self.parents.shape[-1] > 0


class Verdict(NamedTuple):
  """The target side's decision about a `Draft`.

  A verifier that adds one token makes one with `Verdict.one`.
  `jaxspec.core.commits.committed_block` joins the accepted drafts and the verifier's own tokens.

  Attributes:
    num_accepted: ``[B]`` int32, accepted leading tokens of the draft (or of ``path``), including local ones. 0 for a rule
      that judges every draft by itself: all its tokens are in ``next_tokens``.
    next_tokens: ``[B, M]`` int32 (or ``[B, M, C]``), the verifier's own tokens after them; M is at least 1.
    num_next: ``[B]`` int32, number of valid own tokens. 0 is legal: the row commits its accepted drafts only. A row that
      commits no tokens never ends.
    path: ``[B, L]`` int32, accepted nodes of a tree from the root, L <= K; ``[B, 0]`` for a chain.
    feedback: input of the drafter: target features or logits, at ``[last, draft ...]`` (prefill: at the condition).
    metrics: the rule's report about each committed token, leaves ``[B, K + M]`` (``[B, L + M]`` with a path).
    is_drafted: ``[B, M]`` bool, which of ``next_tokens`` are accepted drafts: an end token
      (`jaxspec.core.commits.stop_at_end_token`), the last token of rows that keep one length (`Verifier.in_step`), or drafts
      that are judged one by one. None: derived from the draft.
  """

  num_accepted: Array
  next_tokens: Array
  num_next: Array
  path: Array
  feedback: PyTree = ()
  metrics: PyTree = ()
  is_drafted: Array | None = None

  @classmethod
  def one(
    cls,
    num_accepted: Array,
    next_token: Array,
    *,
    path: Array | None = None,
    metrics: PyTree = (),
    is_drafted: Array | None = None,
  ) -> Self:
    """A verdict that adds one token ``[B]`` or ``[B, C]`` to every row.

    Other arguments are fields. Only verdicts about trees have a path.
    """
    path = _full_like(num_accepted, (num_accepted.shape[0], 0), 0) if path is None else path
    return cls(num_accepted, next_token[:, None], _of_rows(num_accepted, 1), path, (), metrics, is_drafted)


def _of_rows(like: Array, value: Array | bool | int) -> Array:
  """``[B]``: a number in every row, or the given array."""
  return _full_like(like, like.shape[:1], value) if isinstance(value, (bool, int)) else value


def _full_like(like: Array, shape: tuple[int, ...], value: bool | int) -> Array:
  """An array of int32 or bool, a numpy array if ``like`` is one."""
  full: Any = np.full if isinstance(like, np.ndarray) else jnp.full
  return full(shape, value, bool if isinstance(value, bool) else np.int32)


class FirstToken(NamedTuple):
  """A drafter's decision about token 0.

  Attributes:
    token: ``[B]`` int32.
    is_local: ``[B]`` bool, the drafter accepted its own token; else the token is the target's.
    state: the drafter's state after this decision.
  """

  token: Array
  is_local: Array
  state: PyTree


class Drafter:
  """Source of proposals: a frozen dataclass whose fields are static and whose methods are pure functions.

  Equal fields make equal drafters, so a program is compiled once for each setting. ``state`` is the drafter's own pytree,
  ``params`` the traced parameters of the draft side.

  A drafter with ``may_accept_locally`` may commit tokens without the target: if `Draft.needs_verify` is False, the first
  ``num_local`` tokens are committed without an exchange. If no row needs verification, the target does not run.

  Attributes:
    window: static size K of every draft; 0: plain decoding.
    calls_per_round: largest number of passes of the draft network in one round.
    may_accept_locally: see above.
    has_cache: whether its network reads committed tokens: one pass for the condition, and one per round while the target
      draws its prefix.
    keeps_rounds_open: whether `draft` may return before the round of a row ends. Such a row has no local tokens and needs
      no verification, so it commits nothing; the next call of `draft` continues its round. Only rows with
      rounds of their own (`Cursor.round`) have such rounds: a batch in one program.
    is_adaptive: whether the length of a draft follows earlier verdicts of all rows (`jaxspec.drafters.auto_length`). The
      tokens of a row then depend on the other rows, and its network may read the tokens of rounds without drafts later.
  """

  window: int
  calls_per_round: int
  may_accept_locally: bool = False
  has_cache: bool = True
  keeps_rounds_open: bool = False
  is_adaptive: bool = False

  def init(
    self, params: Params, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[PyTree, FirstToken | None]:
    """The state at the beginning of ``[B]`` rows.

    Args:
      keys: ``[B]``.
      prefill: the verdict of the target's prefill: token 0, and the feedback about the condition.
    Returns:
      The state, and a `FirstToken` if the drafter may decide about token 0; else None.
    """
    return (), None

  def read(self, params: Params, state: PyTree, cursor: Cursor) -> PyTree:
    """Reads the newly committed tokens without drafting.

    The loop calls it instead of `draft` while the target draws its ``target_prefix``; `commit` then gets an empty draft and
    the trace ``()``.
    """
    return state

  def draft(self, params: Params, keys: Key, state: PyTree, cursor: Cursor) -> tuple[Draft, PyTree, PyTree]:
    """Reads the newly committed tokens and drafts; ``keys [B]`` are consumed.

    Returns:
      The draft, the state, and a trace for the rollback in `commit`. The trace never leaves the draft side.
    """
    raise NotImplementedError

  def commit(self, params: Params, state: PyTree, cursor: Cursor, draft: Draft, trace: PyTree, verdict: Verdict) -> PyTree:
    """The state after a round; ``cursor`` is the one before the round."""
    return state

  def report(self, state: PyTree) -> PyTree:
    """The drafter's own counts (bits, thresholds), for `DecodeResult.report`."""
    return ()

  def at(self, length: int, max_len: int) -> Drafter:
    """The drafter of rounds in which every row has this length, for tokens whose shapes depend on their index."""
    return self

  @property
  def calls_to_read(self) -> int:
    """Passes of the draft network that read the condition, or a token of the target's prefix."""
    return int(self.calls_per_round > 0 and self.has_cache)


class Verifier:
  """Judge of proposals: a frozen dataclass whose fields are static and whose methods are pure functions.

  Attributes:
    in_step: whether rows keep one length, because the shapes of tokens depend on their index (`at`). Such a verifier commits
      the same number of tokens in all rows.
  """

  in_step: bool = False

  def init(self, params: Params, keys: Key, condition: PyTree, max_len: int, window: int) -> tuple[Verdict, PyTree]:
    """Runs the prefill and draws token 0. No draft precedes it, so this `Verdict` accepts nothing.

    Args:
      keys: ``[B]``; consumed.
      window: a pass over the window may write this number of cache slots beyond ``max_len``.
    Returns:
      The verdict, and the verifier's state.
    """
    raise NotImplementedError

  def verify(self, params: Params, keys: Key, state: PyTree, cursor: Cursor, draft: Draft) -> tuple[Verdict, PyTree]:
    """Judges a draft, or draws one token if it is empty; ``keys [B]`` are consumed."""
    raise NotImplementedError

  def at(self, length: int, max_len: int) -> Verifier:
    """The verifier of rounds in which every row has this length."""
    return self


class AcceptFn(Protocol):
  """An acceptance rule. It judges a draft and draws the next token; it runs no network.

  Args:
    tables: arrays for the rule (``ModelParams.rule`` of the target side), ``()`` for none.
    keys: ``[B]`` random keys; consumed.
    draft: the `Draft`.
    target: processed target logits ``[B, K+1, V]`` (row i judges draft i, row K is the bonus row).
  """

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: PyTree) -> Verdict: ...
