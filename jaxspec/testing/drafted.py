"""Checks of a draft before verification: the clauses ``draft`` and ``proposal`` of the contract."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import rng, rounds, trees
from jaxspec.core.precision import in_32_bits
from jaxspec.core.state import SpecParams
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, PyTree
from jaxspec.methods.method import Parts
from jaxspec.testing.compare import on_host, require, short


def check_draft(parts: Parts, keys: Key, condition: PyTree, max_len: int) -> None:
  """Drafts once after the tokens that the target draws alone, and checks the drafter's output.

  Args:
    keys: ``[B]`` row keys.
    condition: ``B`` rows.
  Raises:
    AssertionError: one line that begins with ``draft`` or ``proposal``.
  """
  length = max(parts.target_prefix, 1)
  if length >= max_len:
    return
  own, verifier = parts.pair()
  drafter = rounds.at_length(own, length, max_len)

  @jax.jit
  @in_32_bits
  def first_draft(params: SpecParams, keys: Key, condition: PyTree) -> tuple[Draft, Cursor]:
    prefix = parts.target_prefix
    state = rounds.start(params, keys, condition, drafter=own, verifier=verifier, max_len=max_len, target_prefix=prefix)
    if not verifier.in_step:
      alone = functools.partial(rounds.prefix_round, params, drafter=own, verifier=verifier)
      state = jax.lax.fori_loop(0, length - 1, lambda _, state: alone(state), state)
    else:
      for before in range(1, length):
        state = rounds.round_at(
          params, state, drafter=own, verifier=verifier, length=before, max_len=max_len, target_prefix=prefix
        )
    side = state.draft_side
    keys = rng.stream_keys(side.keys, rng.Stream.DRAFT, side.cursor.round)
    return _draft_of(drafter.draft(params.draft, keys, side.drafter, side.cursor)), side.cursor

  draft, cursor = first_draft(parts.params, keys, condition)
  require_draft(draft, drafter, cursor)


def _draft_of(returned: Any) -> Draft:
  """The draft of what `Drafter.draft` returned."""
  values = returned if type(returned) is tuple else (returned,)
  fits = len(values) == 3 and isinstance(values[0], Draft)
  got = ", ".join(type(value).__name__ for value in values)
  require(fits, "draft", "a Draft, the state and a trace from draft", got)
  return values[0]


def require_draft(draft: Draft, drafter: Drafter, cursor: Cursor) -> None:
  """Checks one draft of concrete arrays; finished rows are skipped.

  Args:
    drafter: that of this round (`jaxspec.core.types.Drafter.at`).
    cursor: the cursor before the draft.
  Raises:
    AssertionError: one line that begins with ``draft`` or ``proposal``.
  """
  _require_shapes(draft, drafter, cursor)
  draft, live = on_host(draft), np.asarray(cursor.live)
  if draft.tokens.shape[1] == 0 or not live.any():
    return
  draft = jax.tree.map(lambda leaf: leaf[live], draft)
  number, local = draft.num_drafted, np.asarray(draft.num_local)
  if not draft.is_tree:
    most, what = draft.tokens.shape[1], "tokens"
  else:
    node = np.arange(draft.parents.shape[1])
    in_order = (draft.parents >= -1) & (draft.parents < node)
    require(in_order.all(), "draft", "parents that are -1 or a node before their child", short(draft.parents[~in_order]))
    most, what = np.asarray(trees.depths(trees.ancestors(jnp.asarray(draft.parents)))).max(1), "levels"
  inside = (number >= 0) & (number <= most)
  bound = int(np.max(most))
  require(inside.all(), "draft", f"num_drafted from 0 to the {bound} {what} of the draft", short(number[~inside]))
  inside = (local >= 0) & (local <= number)
  require(inside.all(), "draft", "num_local from 0 to num_drafted", short(local[~inside]))
  is_local = drafter.may_accept_locally or not local.any()
  require(is_local, "draft", "num_local of 0 from a drafter without may_accept_locally", short(local))
  late = np.asarray(cursor.round) if drafter.is_adaptive else 0  # tokens of rounds without drafts, read now
  inside = (draft.num_calls >= 0) & (draft.num_calls <= drafter.calls_per_round + late)
  wanted = f"num_calls from 0 to the {drafter.calls_per_round} of calls_per_round"
  require(inside.all(), "draft", wanted, short(draft.num_calls[~inside]))
  if draft.tokens.ndim > 2 or not np.issubdtype(draft.tokens.dtype, np.integer):
    return
  end = draft.tokens.shape[1] if draft.is_tree else number[:, None]  # later entries of a chain are padding
  tokens = draft.tokens[np.broadcast_to(np.arange(draft.tokens.shape[1])[None] < end, draft.tokens.shape)]
  require((tokens >= 0).all(), "draft", "tokens of the vocabulary, from 0 on", short(tokens[tokens < 0]))
  if _has_logits(draft):
    _require_logits(draft, local)


def _require_shapes(draft: Draft, drafter: Drafter, cursor: Cursor) -> None:
  last, tokens = cursor.last, draft.tokens
  shape = (last.shape[0], drafter.window, *last.shape[1:])
  require(tokens.shape == shape, "draft", f"tokens of shape {shape}: rows, then the window", tokens.shape)
  require(tokens.dtype == last.dtype, "draft", f"tokens of {last.dtype}, as those that are committed", tokens.dtype)
  rows = {"num_drafted": jnp.integer, "num_local": jnp.integer, "needs_verify": jnp.bool_, "num_calls": jnp.integer}
  for name, kind in rows.items():
    values = getattr(draft, name)
    fits = isinstance(values, Array) and values.shape == shape[:1] and jnp.issubdtype(values.dtype, kind)
    words = "bool" if kind is jnp.bool_ else "int32"
    require(fits, "draft", f"{name} of shape {shape[:1]} and {words}, a value for each row", _shape_of(values))
  if draft.is_tree:
    fits = draft.parents.shape == shape[:2] and jnp.issubdtype(draft.parents.dtype, jnp.integer)
    require(fits, "draft", f"parents of shape {shape[:2]} and int32, one for each node", _shape_of(draft.parents))
  if _has_logits(draft):
    fits = draft.proposal.ndim == 3 and draft.proposal.shape[0] == shape[0]
    # Locally accepted tokens have no proposal, so that fewer drafts need verification. A tree has a row for each level.
    width = draft.proposal.shape[1] if fits else -1
    fits = fits and (width <= shape[1] if drafter.may_accept_locally or draft.is_tree else width == shape[1])
    require(fits, "proposal", f"logits {(*shape[:2], 'V')}, a row for each draft", _shape_of(draft.proposal))


def _shape_of(values: Array | None) -> str:
  return f"{values.shape} of {values.dtype}" if isinstance(values, Array) else repr(values)


def _has_logits(draft: Draft) -> bool:
  """Whether the proposal is one array of floats, which is logits for discrete tokens. Counts and chains are several
  arrays."""
  is_array = isinstance(draft.proposal, (Array, np.ndarray)) and jnp.issubdtype(draft.proposal.dtype, jnp.floating)
  return is_array and draft.tokens.ndim == 2 and jnp.issubdtype(draft.tokens.dtype, jnp.integer)


def _require_logits(draft: Draft, local: np.ndarray) -> None:
  """Checks the logits of the verified drafts; the others are padding."""
  width, vocab = draft.proposal.shape[1:]
  if draft.is_tree:
    level = np.asarray(trees.depths(trees.ancestors(jnp.asarray(draft.parents)))) - 1  # [B, K]
    judged = level < draft.num_drafted[:, None]
    deepest = 1 + level[judged].max(initial=-1)  # none where all rows have ended
    require(deepest <= width, "proposal", f"a row for each of {deepest} levels", width)
    row, node = np.nonzero(judged)
    tokens, logits = draft.tokens[row, node], draft.proposal[row, level[row, node]].astype(np.float64)
  else:
    offset = np.arange(width)[None]
    asks = draft.needs_verify[:, None]
    judged = asks & (offset < (draft.num_drafted - local)[:, None])  # [B, W]
    at = np.minimum(local[:, None] + offset, draft.tokens.shape[1] - 1)
    tokens = np.take_along_axis(np.asarray(draft.tokens), np.asarray(at), axis=1)[judged]
    logits = draft.proposal[judged].astype(np.float64)
  if not len(tokens):
    return
  require((tokens < vocab).all(), "draft", f"tokens of the vocabulary, below {vocab}", short(tokens[tokens >= vocab]))
  broken = logits[np.isnan(logits) | (logits == np.inf)]
  require(not len(broken), "proposal", "logits that are finite, or -inf where a token is impossible", short(broken))
  is_law = vocab > 1 and (logits >= 0).all() and np.allclose(logits.sum(-1), 1.0, atol=1e-3)
  require(not is_law, "proposal", "logits", "probabilities, which add up to 1 (take their logarithm)")
  impossible = tokens[np.take_along_axis(logits, np.asarray(tokens)[:, None], axis=1)[:, 0] == -np.inf]
  wanted = "logits above -inf for the tokens that were drawn"
  require(not len(impossible), "proposal", wanted, f"-inf for {short(impossible)}")
