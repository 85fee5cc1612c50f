"""Named random streams.

Every random number of a decode is drawn from ``fold_in(fold_in(fold_in(row_key, stream), round), offset)``. Streams
have names because the key-reuse checker of jax does not detect two `fold_in` calls with the same number. A step that is
called again in the same round gives the same answer. Retries over a network are therefore safe, and the fused loop, the
Python loop and two machines give the same tokens.
"""

from __future__ import annotations

import enum
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.types import Array, Key


class Stream(enum.IntEnum):
  """Purposes of random numbers; the values are part of the reproducibility contract and never change."""

  DRAFT = 1
  VERIFY = 2
  NOISE = 3
  RESIDUAL = 4
  FIRST = 5
  ORDER = 6  # generation orders
  DENOISE = 7  # noise of the denoising steps; NOISE is the noise of their first state
  OPEN = 8  # token 0, where the draft side draws it
  REFINE = 9  # the last denoising steps of tokens that were drawn without them


def row_keys(key: Key | int, num_rows: int) -> Key:
  """One key per row ``[B]``: a scalar key is folded with the row number, a ``[B]`` array is returned unchanged.

  An int is a seed: ``3`` is ``jax.random.key(3)``.

  Raises:
    ValueError: if ``key`` is an array of another length, or is not a typed key.
  """
  if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
    key = jax.random.key(int(key))
  dtype = getattr(key, "dtype", None)
  if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
    found = f"a {type(key).__name__}" if dtype is None else f"dtype {dtype}"
    raise ValueError(f"Must have a typed key (jax.random.key(seed)), we instead got {found}")
  if key.ndim == 0:
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(num_rows))
  if key.shape != (num_rows,):
    raise ValueError(f"Must have one key or {num_rows} row keys, we instead got shape {key.shape}")
  return key


# Number of the second sample of a prompt; above every `Stream`, whose keys are folded from the key of the first sample.
_SAMPLE = 1 << 24


def sample_key(key: Key, prompt: Array | int, sample: Array | int) -> Key:
  """The row key of one sample of one prompt, whatever the batch; the first is that of `row_keys`."""
  first = jax.random.fold_in(key, prompt)
  other = jax.random.key_data(jax.random.fold_in(first, _SAMPLE + sample))
  data = jnp.where(jnp.asarray(sample) == 0, jax.random.key_data(first), other)
  return jax.random.wrap_key_data(data, impl=jax.random.key_impl(key))


def row_key_data(key: Key | int, num_rows: int) -> Array:
  """The data ``[B, 2]`` uint32 of `row_keys`, as programs take it; `of_key_data` makes keys of it.

  Keys of other generators become keys of threefry: rows of ``rbg`` and ``unsafe_rbg`` are not independent of their
  neighbours under `jax.vmap`.

  Raises:
    ValueError: as `row_keys`.
  """
  keys = row_keys(key, num_rows)
  if jax.random.key_impl(keys) == jax.random.key_impl(of_key_data(np.zeros(2, np.uint32))):
    return jax.random.key_data(keys)
  data = jax.random.key_data(keys)  # [B, words]
  fold = lambda row, words: functools.reduce(jax.random.fold_in, words, row)
  return jax.random.key_data(jax.vmap(fold)(of_key_data(data[:, :2]), data[:, 2:]))


def of_key_data(data: Array) -> Key:
  """Keys of `row_key_data`."""
  return jax.random.wrap_key_data(data, impl="threefry2x32")


def stream_keys(keys: Key, stream: Stream, round_: Array) -> Key:
  """Keys ``[B]`` of one stream in one round.

  Args:
    keys: ``[B]`` row keys.
    round_: ``[]`` int32, or ``[B]`` where every row is in a round of its own.
  """
  fold = lambda key, number: jax.random.fold_in(jax.random.fold_in(key, int(stream)), number)
  return jax.vmap(fold, in_axes=(0, 0 if jnp.ndim(round_) else None))(keys, round_)


def of_token(keys: Key, index: int | Array) -> Key:
  """Keys ``[B]`` of the token at one index of every row, whatever round draws it.

  Rounds of rows that keep one length may draw a token again; it is then the same token, with the same decision.

  Args:
    keys: ``[B]`` of one stream.
  """
  return jax.vmap(lambda key: jax.random.fold_in(key, index))(keys)


def uniforms(keys: Key, num: int) -> Array:
  """``[B, num]`` float32 uniforms in [0, 1), one per (row, offset); entry i does not depend on ``num``."""

  def one_row(key: Key) -> Array:
    return jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i)))(jnp.arange(num))

  return jax.vmap(one_row)(keys)


def uniform(keys: Key, offset: Array | int) -> Array:
  """``[B]`` float32, column ``offset`` of `uniforms`."""
  return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, offset)))(keys)


# Offset of the keys of scores that draw; above every offset of `uniforms`, below `_FINAL`.
_SCORE = 1 << 19


def score_keys(keys: Key, offset: Array | int) -> Key:
  """Keys ``[B]`` of an uncertainty score at one offset."""
  return jax.vmap(lambda key: jax.random.fold_in(key, _SCORE + offset))(keys)


def integer(keys: Key, offset: Array | int, below: Array) -> Array:
  """``[B]`` int32 uniform on ``0 .. below - 1``, one for each row, at one offset.

  Args:
    below: ``[B]`` int32, at least 1.
  """
  draw = lambda key, most: jax.random.randint(jax.random.fold_in(key, offset), (), 0, most, dtype=jnp.int32)
  return jax.vmap(draw)(keys, below)


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
