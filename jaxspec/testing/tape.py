"""Row keys with given random numbers, and exact enumeration by them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np

from jaxspec.core import rng
from jaxspec.core.types import Array, Key

# Address of a number: the values folded into a row key before the draw, (stream, round, offset), as in `jaxspec.core.rng`. A
# rule that is called alone gets keys of one round, whose numbers have the address (offset,).
Address = tuple[int, ...]

FINAL = rng._FINAL  # offset of the draw that ends a round
_SPLIT = 1 << 31  # children of a split key
_START, _FACTOR = np.uint32(0x811C9DC5), np.uint32(0x9E3779B1)  # of the code of an address


def first_draw() -> Address:
  """Address of the draw of token 0 by the target."""
  return (rng.Stream.FIRST, 0, FINAL)


def round_draws(round_: int, *, drafts: int = 0, tests: int = 0, final: bool = True) -> list[Address]:
  """Addresses of the draws of one round of a decode.

  Args:
    round_: number of the round, from 0.
    drafts: number of offsets of the draft side, one for each sampled token.
    tests: number of offsets of the acceptance tests.
    final: whether the draw that ends the round is included.
  """
  found: list[Address] = [(rng.Stream.DRAFT, round_, offset) for offset in range(drafts)]
  found += [(rng.Stream.VERIFY, round_, offset) for offset in range(tests)]
  return [*found, (rng.Stream.VERIFY, round_, FINAL)] if final else found


@dataclasses.dataclass(frozen=True, eq=False)
class Tape:
  """Given random numbers for many rows.

  Attributes:
    values: the numbers ``[R]`` of each address: floats in [0, 1) for uniform draws, integers for `jaxspec.core.rng.integer`
      (taken modulo the bound of the draw). All other addresses draw pseudo-random numbers, different for every row.
  """

  values: Mapping[Address, np.ndarray]

  def __post_init__(self):
    if len(sizes := {len(column) for column in self.values.values()}) != 1:
      raise ValueError(f"Must have one number of rows at all addresses, we instead got {sorted(sizes)}")

  @classmethod
  def all_outcomes(cls, uniforms: Mapping[Address, int], integers: Mapping[Address, int] | None = None) -> Tape:
    """All combinations of draws, as rows of equal probability.

    Midpoints of cells are exact for a program that is constant inside them: with probabilities in quarters, four cells of a
    uniform draw give all outcomes.

    Args:
      uniforms: number of cells of each uniform draw.
      integers: number of values of each draw of an integer, a multiple of its bound.
    """
    grids = {address: (np.arange(cells) + 0.5) / cells for address, cells in uniforms.items()}
    grids |= {address: np.arange(cells) for address, cells in (integers or {}).items()}
    columns = np.meshgrid(*grids.values(), indexing="ij")
    return cls({address: column.ravel() for address, column in zip(grids, columns)})

  @classmethod
  def of_rule(cls, uniforms: np.ndarray, final: np.ndarray | float = 0.5) -> Tape:
    """The tape of one call of an acceptance rule: tests ``[R, K]``, and the draw that ends the round ``[R]``."""
    uniforms = np.asarray(uniforms, np.float64)
    columns = {(offset,): uniforms[:, offset] for offset in range(uniforms.shape[1])}
    return cls(columns | {(FINAL,): np.broadcast_to(np.asarray(final, np.float64), uniforms.shape[:1])})

  @property
  def num_rows(self) -> int:
    """R."""
    return len(next(iter(self.values.values())))

  def keys(self) -> Key:
    """``[R]`` row keys for a decode (or a rule), in place of random ones; new ones at each call."""
    addresses, columns = [], []
    for address, column in self.values.items():
      column = np.asarray(column)
      if np.issubdtype(column.dtype, np.integer):  # `jax.random.randint` draws higher and lower bits from a split key
        addresses += [(*address, _SPLIT), (*address, _SPLIT + 1)]
        columns += [np.zeros(len(column), np.uint32), column.astype(np.uint32)]
      else:  # `jax.random.uniform` reads the upper 23 bits
        addresses.append(address)
        columns.append((np.floor(column * 2.0**23)).astype(np.uint32) << np.uint32(9))
    head = np.zeros((self.num_rows, 3), np.uint32)
    head[:, 0], head[:, 2] = np.arange(self.num_rows), _START
    data = np.concatenate([head, np.stack(columns, axis=1)], axis=1)
    codes = tuple(_code(address) for address in addresses)
    if len(set(codes)) < len(codes):
      raise ValueError(f"Must have addresses with different codes, we instead got {sorted(map(str, self.values))}")
    return jax.random.wrap_key_data(jnp.asarray(data), impl=_tape_impl(codes))


def _code(address: Address) -> int:
  """A number below 2^32 in place of an address; keys extend it with every value that is folded into them."""
  numbers = np.asarray([address], np.uint32).T  # [n, 1]: NumPy warns of overflow for single numbers
  return int(functools.reduce(_extended, numbers, np.asarray([_START]))[0])


def _extended(code: Any, number: Any) -> Any:
  """The code of an address with one more number; uint32 arrays of NumPy or JAX, of one shape."""
  return (code ^ number) * _FACTOR


def fast_keys(seed: int, num_rows: int) -> Key:
  """``[B]`` row keys of a small generator, which compiles faster than JAX's, for tests of many programs."""
  data = jnp.stack([jnp.arange(num_rows, dtype=jnp.uint32), jnp.full((num_rows,), seed, jnp.uint32)], axis=1)
  return jax.random.wrap_key_data(data, impl=_fast_impl())


def _mix(words: Array, number: Array) -> Array:
  """Two 32-bit words ``[2]`` and a number, hashed to two words."""

  def hashed(x: Array) -> Array:  # multiply, xor-shift
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)

  first = hashed(words[0] + number * jnp.uint32(0x9E3779B9) + jnp.uint32(1))
  second = hashed(words[1] ^ (first + number))
  return jnp.stack([hashed(first + second), second])


def _each(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
  """``function(i)`` of all entries of a shape, in their order."""
  if shape == ():
    return function(jnp.uint32(0))
  values = jax.vmap(function)(jnp.arange(math.prod(shape), dtype=jnp.uint32))
  return values.reshape(*shape, *values.shape[1:])


def _impl(name: str, size: int, fold_in: Callable, random_bits: Callable):
  def seed(number: Array) -> Array:
    return jnp.zeros((size,), jnp.uint32).at[0].set(number.astype(jnp.uint32))

  def split(key: Array, shape: tuple[int, ...]) -> Array:
    return _each(lambda child: fold_in(key, child + jnp.uint32(_SPLIT)), shape)

  return jax.extend.random.define_prng_impl(
    key_shape=(size,), seed=seed, split=split, random_bits=random_bits, fold_in=fold_in, name=name, tag=name
  )


@functools.cache
def _fast_impl():
  def random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    _need_32(bit_width)
    return _each(lambda entry: _mix(key, entry ^ jnp.uint32(0xA5A5A5A5))[0], shape)

  return _impl("jaxspec-fast", 2, lambda key, number: _mix(key, number.astype(jnp.uint32)), random_bits)


@functools.cache
def _tape_impl(codes: tuple[int, ...]):
  """Keys are ``[2 words of a hash, the code of the address so far, the row's numbers]``."""
  table = np.asarray(codes, np.uint32)  # [S]

  def fold_in(key: Array, number: Array) -> Array:
    number = number.astype(jnp.uint32)
    return jnp.concatenate([_mix(key[:2], number), _extended(key[2], number)[None], key[3:]])

  def random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    _need_32(bit_width)

    def one(key: Array, entry: Array) -> Array:
      here = table == key[2]
      given = jnp.sum(jnp.where(here, key[3:], jnp.uint32(0)))
      return jnp.where(jnp.any(here), given, _mix(key[:2], entry ^ jnp.uint32(0xA5A5A5A5))[0])

    # Entry i of an array has the address of its key, then i.
    return one(key, jnp.uint32(0)) if shape == () else _each(lambda entry: one(fold_in(key, entry), entry), shape)

  # Tapes with equal addresses share programs; the tag distinguishes the others.
  return _impl(f"jaxspec-tape-{hash(codes):x}", 3 + len(codes), fold_in, random_bits)


def _need_32(bit_width: int) -> None:
  if bit_width != 32:
    raise ValueError(f"Must have draws of 32 bits from these keys, we instead got {bit_width}")


def enumerate_outcomes(decode: Callable[[Key], Array], tape: Tape, vocab_size: int) -> np.ndarray:
  """Exact joint distribution of the tokens of a decode.

  Args:
    decode: from row keys ``[R]`` to tokens ``[R, N]``, for example a call of `jaxspec.speculate` with R rows.
    tape: all outcomes of the draws that affect the tokens. A missing draw makes the result wrong.
    vocab_size: V.
  Returns:
    ``[V] * N`` float64.
  """
  tokens = np.asarray(decode(tape.keys()))
  joint = np.zeros((vocab_size,) * tokens.shape[1])
  np.add.at(joint, tuple(tokens.T), 1.0 / len(tokens))
  return joint
