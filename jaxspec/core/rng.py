"""Named random streams.

Every random number of a decode is drawn from ``fold_in(fold_in(fold_in(row_key, stream), round), offset)``. Streams
have names because the key-reuse checker of jax does not detect two `fold_in` calls with the same number. A step repeated in
the same round gives the same result. Retries over a network are therefore safe, and the fused loop, the Python loop and two
machines give the same tokens.
"""

from __future__ import annotations

import enum
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, HostArray, Key
from jaxspec.errors import OptionError

_KIND = "threefry2x32"  # of all keys of a decode, for any default of JAX
_KIND_OF_WORDS = {2: _KIND, 4: "rbg"}  # by the length of the key data


class Stream(enum.IntEnum):
  """Purposes of random numbers; the values are part of the reproducibility contract and never change."""

  DRAFT = 1
  VERIFY = 2
  NOISE = 3
  RESIDUAL = 4
  FIRST = 5
  ORDER = 6  # generation orders
  DENOISE = 7  # noise of the denoising steps; NOISE is the noise of their first state
  OPEN = 8  # token 0, if the draft side draws it
  REFINE = 9  # the remaining denoising steps of tokens
  MEASURE = 10  # decodes that are only measured, each number another one


def row_keys(key: Key | int, num_rows: int) -> Key:
  """One key per row ``[B]``: a scalar key is folded with the row number, a ``[B]`` array is returned unchanged.

  Args:
    key: a typed key or ``[B]`` of them, the numbers of either (`jax.random.key_data`), or a seed: ``3`` is
      ``jax.random.key(3)``. Keys of other generators become keys of threefry: rows of ``rbg`` and ``unsafe_rbg`` are not
      independent of their neighbours under `jax.vmap`.
  Raises:
    ValueError: if ``key`` is an array of another length, or not a key.
  """
  key = _typed(key)
  if key.ndim == 0:
    return _fold_rows(key, num_rows)
  if key.shape != (num_rows,):
    raise ValueError(f"Must have one key or {num_rows} row keys, we instead got shape {key.shape}")
  return key


@functools.partial(jax.jit, static_argnums=1)  # one small program: a batch of prompts does not wait for its parts
def _fold_rows(key: Key, num_rows: int) -> Key:
  return jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(num_rows))


# Number of the second sample of a prompt; above every `Stream`, whose keys are folded from the key of the first sample.
_SAMPLE = 1 << 24


def sample_key(key: Key, prompt: Array | int, sample: Array | int) -> Key:
  """The row key of one sample of one prompt, independent of the batch; the first sample has the key of `row_keys`."""
  first = jax.random.fold_in(key, prompt)
  other = jax.random.key_data(jax.random.fold_in(first, _SAMPLE + sample))
  data = jnp.where(jnp.asarray(sample) == 0, jax.random.key_data(first), other)
  return jax.random.wrap_key_data(data, impl=jax.random.key_impl(key))


def row_key_data(key: Key | int, num_rows: int) -> Array:
  """The data ``[B, 2]`` uint32 of `row_keys`, for arguments of programs; `of_key_data` is the inverse.

  Raises:
    ValueError: as `row_keys`.
  """
  return jax.random.key_data(row_keys(key, num_rows))


def of_key_data(data: HostArray) -> Key:
  """Keys of `row_key_data`."""
  return jax.random.wrap_key_data(jnp.asarray(data), impl=_KIND)


def _is_seed(key: Any) -> bool:
  """Whether this is an integer: of Python, or an array ``[]``."""
  if hasattr(key, "dtype"):
    return key.ndim == 0 and jnp.issubdtype(key.dtype, jnp.integer)
  return isinstance(key, int) and not isinstance(key, bool)


def _is_known(key: Any) -> bool:
  """Whether jax can read the dtype of a key or seed: those of other libraries it cannot."""
  return isinstance(key, (int, np.generic, np.ndarray, jax.Array))


def _typed(key: Any) -> Key:
  """A key, or an array of keys, of `_KIND`; see `row_keys`."""
  if not _is_known(key):
    raise OptionError(f"Must have a key (jax.random.key(seed)) or its seed, we instead got a {type(key).__name__}")
  dtype = getattr(key, "dtype", None)
  if _is_seed(key):
    try:
      return jax.random.key(key, impl=_KIND)
    except OverflowError as error:
      raise OptionError(f"Must have a seed of at most 64 bits with its sign, we instead got {key}") from error
  if dtype == jnp.uint32 and key.ndim in (1, 2) and key.shape[-1] in _KIND_OF_WORDS:
    key = jax.random.wrap_key_data(jnp.asarray(key), impl=_KIND_OF_WORDS[key.shape[-1]])
  elif dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
    found = f"a {type(key).__name__}" if dtype is None else f"dtype {dtype} {list(key.shape)}"
    raise OptionError(f"Must have a key (jax.random.key(seed)) or its seed, we instead got {found}")
  if jax.random.key_impl(key) not in ("rbg", "unsafe_rbg"):
    return key
  data = jax.random.key_data(key)  # [..., 4]
  fold = jnp.vectorize(lambda first, *words: functools.reduce(jax.random.fold_in, words, first))
  return fold(of_key_data(data[..., :2]), data[..., 2], data[..., 3])


def stream_keys(keys: Key, stream: Stream, round_: Array) -> Key:
  """Keys ``[B]`` of one stream in one round.

  Args:
    keys: ``[B]`` row keys.
    round_: ``[]`` int32, or ``[B]`` with one round per row.
  """
  fold = lambda key, number: jax.random.fold_in(jax.random.fold_in(key, int(stream)), number)
  return jax.vmap(fold, in_axes=(0, 0 if jnp.ndim(round_) else None))(keys, round_)


def of_token(keys: Key, index: int | Array) -> Key:
  """Keys ``[B]`` of the token at one index of every row, independent of the round.

  Rounds of rows of equal length may draw a token again, with the same result.

  Args:
    keys: ``[B]`` of one stream.
  """
  return jax.vmap(lambda key: jax.random.fold_in(key, index))(keys)


def position_uniforms(keys: Key, positions: Array, size: int) -> Array:
  """``[B, K, size]`` float32 uniforms in [0, 1) of tokens at ``positions [B, K]`` of their rows, independent of the round.

  Args:
    keys: ``[B]`` of one stream.
  """
  one = lambda key, position: jax.random.uniform(jax.random.fold_in(key, position), (size,))
  return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(keys, positions)


def uniforms(keys: Key, num: int) -> Array:
  """``[B, num]`` float32 uniforms in [0, 1), one per (row, offset); entry i does not depend on ``num``."""

  def one_row(key: Key) -> Array:
    return jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i)))(jnp.arange(num))

  return jax.vmap(one_row)(keys)


def uniform(keys: Key, offset: Array | int) -> Array:
  """``[B]`` float32, column ``offset`` of `uniforms`; ``[]``, or ``[B]`` with one for each row."""
  return jax.vmap(jax.random.uniform)(_at_offset(keys, offset))


def _at_offset(keys: Key, offset: Array | int) -> Key:
  """Keys ``[B]`` of one offset, ``[]`` or ``[B]``."""
  return jax.vmap(jax.random.fold_in, in_axes=(0, 0 if jnp.ndim(offset) else None))(keys, offset)


# Offset of the keys of random scores; above every offset of `uniforms`, below `_FINAL`.
_SCORE = 1 << 19


def score_keys(keys: Key, offset: Array | int) -> Key:
  """Keys ``[B]`` of an uncertainty score at one offset, ``[]`` or ``[B]``."""
  return _at_offset(keys, _SCORE + offset)


def integer(keys: Key, offset: Array | int, below: Array) -> Array:
  """``[B]`` int32 uniform on ``0 .. below - 1``, one for each row, at one offset, ``[]`` or ``[B]``.

  Args:
    below: ``[B]`` int32, at least 1.
  """
  draw = lambda key, most: jax.random.randint(key, (), 0, most, dtype=jnp.int32)
  return jax.vmap(draw)(_at_offset(keys, offset), below)


# Offset of the draw that ends a round; far above every offset of `uniforms`.
_FINAL = 1 << 20

# Offset of the first of many proposals for one token; above every offset of `uniforms` too.
_PROPOSAL = 1 << 22


def proposal_uniforms(keys: Key, number: Array, size: int) -> Array:
  """``[B, size]`` float32 uniforms in [0, 1) of one of many proposals, ``number`` from 0."""
  return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, _PROPOSAL + number), (size,)))(keys)


# Offset of the keys of imposed acceptance.
_IMPOSED = 1 << 21


def imposed_keys(keys: Key) -> Key:
  """Keys ``[B]`` of decisions that replace those of a rule (`jaxspec.verifiers.imposed`)."""
  return jax.vmap(lambda key: jax.random.fold_in(key, _IMPOSED))(keys)


def final_uniform(keys: Key) -> Array:
  """``[B]`` float32 uniforms in [0, 1) for the draw that ends a round (residual or bonus)."""
  return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, _FINAL)))(keys)
