"""The loop: one `jax.lax.while_loop` for every method.

1. `start`: the target prefills the condition and draws token 0; the drafter prefills.
2. For the first ``target_prefix`` tokens: `prefix_round`. The target draws alone and the drafter only reads.
3. Until every row is finished: `decode_round`, which is `draft_round`, `verify_round`, `commit_reply`.

Rows are computed together but advance independently: each has its own length, acceptance and end token
(`jaxspec.core.commits`). The fused loop, a Python loop and two machines run these same functions and give the same tokens.
If shapes depend on the length (scales of growing resolution), rows keep one length, and rounds are compiled once per length
(`sweep`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.control_flow import run_if
from jaxspec.core.no_draft import NO_DRAFTER
from jaxspec.core.options import LARGEST_INT, check_length, plain
from jaxspec.core.precision import in_32_bits
from jaxspec.core.rounds import decode_round, prefix_round, prefix_rounds, round_at, start
from jaxspec.core.state import DecodeResult, DecodeState, DraftSide, Origin, SpecParams, result
from jaxspec.core.types import Array, Drafter, Key, PyTree, Verifier

EndTokens = int | tuple[int, ...] | None
Loop = Literal["while", "fixed", "host"]


def sweep(
  params: SpecParams, state: DecodeState, *, drafter: Drafter, verifier: Verifier, max_len: int, target_prefix: int
) -> DecodeState:
  """All rounds of rows that keep one length (`Verifier.at`): each length once, skipped at run time if no row stops there."""
  for length in range(1, max_len):
    sizes = dict(length=length, max_len=max_len, target_prefix=target_prefix)
    body = functools.partial(round_at, params, drafter=drafter, verifier=verifier, **sizes)
    cursor = state.draft_side.cursor
    state = run_if(jnp.any(cursor.live & (cursor.length == length)), body, state)
  return state


@functools.partial(jax.jit, static_argnames=("drafter", "verifier", "max_len", "loop", "target_prefix"))
def _run(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  end_token: Array,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  loop: Loop,
  target_prefix: int,
) -> DecodeResult:
  kwargs: dict[str, Any] = dict(drafter=drafter, verifier=verifier)
  state = start(params, key, condition, max_len=max_len, end_token=end_token, target_prefix=target_prefix, **kwargs)
  if verifier.in_step:
    return result(sweep(params, state, max_len=max_len, target_prefix=target_prefix, **kwargs).draft_side, drafter)
  if rounds := prefix_rounds(target_prefix, max_len):
    prefix = functools.partial(prefix_round, params, **kwargs)
    state = jax.lax.fori_loop(0, rounds, lambda _, s: prefix(s), state)
  body = functools.partial(decode_round, params, **kwargs)
  if loop == "fixed":
    state = jax.lax.fori_loop(0, max_len - 1 - rounds, lambda _, s: body(s), state)
  else:
    state = jax.lax.while_loop(lambda s: jnp.any(s.draft_side.cursor.live), body, state)
  return result(state.draft_side, drafter)


@in_32_bits
def speculate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: EndTokens = None,
  loop: Loop | None = None,
  target_prefix: int = 0,
) -> DecodeResult:
  """Generates ``max_len`` tokens for every row by speculative decoding, in one compiled program.

  Args:
    params: `SpecParams` for the two sides.
    key: one typed key (row r uses ``fold_in(key, r)``) or ``[B]`` row keys; consumed. A row depends on its own key and
      condition only, so it decodes to the same tokens alone and in any batch.
    condition: the family's condition pytree with ``B`` rows.
    drafter: source of proposals, static.
    verifier: judge of proposals, static.
    max_len: tokens ``N`` of every row, static.
    end_token: the token that ends a row (EOS), or several; None: rows end at their length only. Positions of a row after
      its end token stay 0, and ``lengths`` counts the others.
    loop: ``while`` ends after the round that finishes the last row. ``fixed`` has ``max_len - 1`` rounds, for which a GPU
      does not wait for the host; the number of rounds must not vary, so there is no drafter, no end token, and no
      `Verifier.in_step`. ``host`` calls each round from Python. None: ``fixed`` if possible, else ``while``.
    target_prefix: number of leading tokens of every row that the target draws alone, static; the drafter only reads them.
  Returns:
    `DecodeResult`.
  Raises:
    ValueError: if ``max_len`` is not positive, ``target_prefix`` is negative, the key has the wrong type or shape, or
      ``loop`` does not fit.

  Example:
    >>> import jax, jax.numpy as jnp, jaxspec
    >>> from jaxspec.models.conditions import ClassLabels
    >>> from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
    >>> fns = llamagen_fns(LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=4, num_classes=3))
    >>> side = jaxspec.ModelParams(fns.init(jax.random.key(0)), jaxspec.sampling_params())
    >>> out = jaxspec.speculate(
    ...   jaxspec.SpecParams(side, side), jax.random.key(1), ClassLabels(jnp.array([0, 2])),
    ...   drafter=jaxspec.SmallModelDrafter(fns, window=2, warp=jaxspec.Warp()),
    ...   verifier=jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp()), max_len=4)
    >>> out.tokens.shape, out.lengths.tolist()
    ((2, 4), [4, 4])
  """
  max_len, key = check_length(max_len), rng.row_keys(key, condition.batch_size)
  prefix_rounds(target_prefix, max_len)
  end, loop = end_array(end_token), _loop_of(loop, drafter, verifier, end_token)
  kwargs: dict[str, Any] = dict(drafter=drafter, verifier=verifier, max_len=max_len, target_prefix=target_prefix)
  if loop == "host":
    for state in _states(params, key, condition, end, **kwargs):
      last = state
    return result(last.draft_side, drafter)
  return _run(params, key, condition, end, **kwargs, loop=loop)


def _loop_of(loop: Loop | None, drafter: Drafter, verifier: Verifier, end_token: EndTokens) -> Loop:
  """The loop of a decode; errors as in `speculate`."""
  varies = "a drafter" if drafter.window else "an end token" if end_tuple(end_token) else None
  varies = "rows in step" if varies is None and verifier.in_step else varies
  if loop not in (None, "while", "fixed", "host"):
    raise ValueError(f"Must have 'while', 'fixed' or 'host' as loop, we instead got {loop!r}")
  if loop == "fixed" and varies is not None:
    raise ValueError(f"Must have a constant number of rounds for loop 'fixed', we instead got {varies}")
  return loop or ("fixed" if varies is None else "while")


def autoregress(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  verifier: Verifier,
  max_len: int,
  end_token: EndTokens = None,
) -> DecodeResult:
  """Plain decoding, one token per pass: the same loop without a drafter.

  Arguments as in `speculate`; ``params.draft`` is not read.
  """
  params = SpecParams((), params.target)
  return speculate(params, key, condition, drafter=NO_DRAFTER, verifier=verifier, max_len=max_len, end_token=end_token)


def end_tuple(end_token: EndTokens) -> tuple[int, ...]:
  """End tokens as a tuple, empty for none.

  Raises:
    ValueError: for values that are not ids.
  """
  found = plain(end_token)
  tokens = () if found is None else [plain(token) for token in found] if isinstance(found, Iterable) else [found]
  for token in tokens:
    if not isinstance(token, int) or isinstance(token, bool) or token > LARGEST_INT:
      raise ValueError(f"Must have an id, or several, as end_token, we instead got {end_token!r}")
  return tuple(token for token in tokens if token >= 0)


def end_array(end_token: EndTokens) -> Array:
  """End tokens in the form of a cursor: ``[]`` or ``[E]`` int32, -1 for none."""
  tokens = end_tuple(end_token)
  return jnp.asarray(-1 if not tokens else tokens if isinstance(plain(end_token), Iterable) else tokens[0], jnp.int32)


_start = jax.jit(start, static_argnames=("drafter", "verifier", "max_len", "target_prefix"))
_prefix_round = jax.jit(prefix_round, static_argnames=("drafter", "verifier"), donate_argnames=("state",))
_round = jax.jit(decode_round, static_argnames=("drafter", "verifier"), donate_argnames=("state",))
_round_at = jax.jit(
  round_at,
  static_argnames=("drafter", "verifier", "length", "max_len", "target_prefix"),
  donate_argnames=("state",),
)


def _states(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  end_token: Array,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  target_prefix: int,
) -> Iterator[DecodeState]:
  """The state after the prefill and after every round, with one call per round."""
  kwargs: dict[str, Any] = dict(drafter=drafter, verifier=verifier)
  state = _start(params, key, condition, max_len=max_len, end_token=end_token, target_prefix=target_prefix, **kwargs)
  yield state
  in_step = verifier.in_step
  for _ in range(0 if in_step else prefix_rounds(target_prefix, max_len)):
    state = _prefix_round(params, state, **kwargs)
    yield state
  while bool(jnp.any(state.draft_side.cursor.live)):
    if in_step:
      length = int(state.draft_side.cursor.length[0])
      state = _round_at(params, state, length=length, max_len=max_len, target_prefix=target_prefix, **kwargs)
    else:
      state = _round(params, state, **kwargs)
    yield state


def iterate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: EndTokens = None,
  target_prefix: int = 0,
) -> Iterator[DraftSide]:
  """Yields the `DraftSide` after the prefill and after every round; rounds and arguments are those of `speculate`.

  The next round reuses the buffers of a yielded state, so copy values before it.
  """
  sizes, key = dict(max_len=check_length(max_len), target_prefix=target_prefix), rng.row_keys(key, condition.batch_size)
  for state in _states(params, key, condition, end_array(end_token), drafter=drafter, verifier=verifier, **sizes):
    yield state.draft_side


def accepted_by_round(outcome: DecodeResult) -> Array:
  """Number of tokens ``[B, N]`` int32 that each round committed; column r is round r, column 0 is the prefill."""
  rows, max_len = outcome.commit_round.shape
  ones = (outcome.origin != int(Origin.EMPTY)).astype(jnp.int32)
  row = jnp.arange(rows)[:, None]
  return jnp.zeros((rows, max_len), jnp.int32).at[row, outcome.commit_round].add(ones)
