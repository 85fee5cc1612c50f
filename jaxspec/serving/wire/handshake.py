"""How a stream is opened: what both ends agree on, the row keys, and the condition, as bytes.

Body of an `OPEN` envelope: the profile of the wire, rows, ``max_len``, ``target_prefix``, the end tokens, the kind of the
random keys, the kind of the condition, and then arrays (`jaxspec.serving.wire.named_arrays`): the data of the row keys and
the fields of the condition. Nothing is pickled. A target side has a `ConditionSpec` of what it accepts, and checks all sizes
before it makes an array.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core.loop import prefix_rounds
from jaxspec.core.types import Key, PyTree
from jaxspec.models.conditions import Caption, ClassLabels, Prompt
from jaxspec.serving.wire import named_arrays
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.cloud import MAX_END_TOKENS
from jaxspec.serving.wire.envelope import MAX_ROWS
from jaxspec.serving.wire.named_arrays import ArraySpec

_SIZES, _LENGTH, _END = struct.Struct(">IIIH"), struct.Struct(">H"), struct.Struct(">I")
_KEY_WORDS = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}  # 4-byte words of a key
_KEYS = "row keys"  # no name of a field
_MOST_PROFILE, _MOST_NAME = 1 << 10, 64
_MOST = 1 << 31


@dataclasses.dataclass(frozen=True)
class Agreement:
  """What both ends of a stream agreed on, besides the profile of the wire.

  Attributes:
    num_rows: rows B.
    max_len: tokens N of every row.
    end_tokens: tokens that end a row.
    target_prefix: leading tokens of every row that the target side draws alone.
  """

  num_rows: int
  max_len: int
  end_tokens: tuple[int, ...] = ()
  target_prefix: int = 0

  def __post_init__(self):
    if not 1 <= self.num_rows < MAX_ROWS:
      raise ValueError(f"Must have 1 to {MAX_ROWS - 1} rows, we instead got {self.num_rows}")
    if not 1 <= self.max_len < _MOST:
      raise ValueError(f"Must have max_len of at least 1, we instead got {self.max_len}")
    if not 0 <= self.target_prefix < _MOST:
      raise ValueError(f"Must have target_prefix of at least 0, we instead got {self.target_prefix}")
    if len(self.end_tokens) > MAX_END_TOKENS or not all(0 <= token < _MOST for token in self.end_tokens):
      raise ValueError(f"Must have at most {MAX_END_TOKENS} end tokens, we instead got {self.end_tokens}")

  def target_draws_alone(self, round_: int) -> bool:
    """Whether a round is one of those in which the draft side only reads."""
    return round_ < prefix_rounds(self.target_prefix, self.max_len)


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionSpec:
  """The conditions that a target side accepts: a named tuple of arrays.

  Attributes:
    condition_type: the named tuple; its name is sent.
    arrays: what each field must be.
    most: largest shared lengths, by name.
  """

  condition_type: Callable[..., Any]
  arrays: Mapping[str, ArraySpec]
  most: Mapping[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    if tuple(self.arrays) != getattr(self.condition_type, "_fields", None):
      raise ValueError(f"Must have a named tuple of the fields {', '.join(self.arrays)}, we instead got {self.name}")

  @property
  def name(self) -> str:
    """What messages call the kind of condition."""
    return self.condition_type.__name__

  @classmethod
  def like(cls, condition: PyTree) -> ConditionSpec:
    """Conditions of the type, array types and sizes of an example, with any number of rows."""
    fields = condition_arrays(condition)
    return cls(type(condition), {name: ArraySpec(str(array.dtype), array.shape[1:]) for name, array in fields.items()})

  @classmethod
  def labels(cls, num_classes: int) -> ConditionSpec:
    """`ClassLabels` below ``num_classes``."""
    return cls(ClassLabels, {"labels": ArraySpec("int32", below=num_classes)})

  @classmethod
  def prompts(cls, vocab: int, max_prompt: int) -> ConditionSpec:
    """`Prompt` of up to ``max_prompt`` tokens below ``vocab``."""
    return cls(Prompt, {"tokens": ArraySpec("int32", ("P",), vocab), "mask": ArraySpec("bool", ("P",))}, {"P": max_prompt})

  @classmethod
  def captions(cls, prefix_len: int, width: int, dtype: str = "float32") -> ConditionSpec:
    """`Caption` of ``prefix_len`` positions with ``width`` features each."""
    return cls(Caption, {"features": ArraySpec(dtype, (prefix_len, width)), "mask": ArraySpec("bool", (prefix_len,))})

  def max_opening_bytes(self, num_rows: int) -> int:
    """No valid opening of so many rows is longer, its envelope left out."""
    keys = {_KEYS: ArraySpec("uint32", (max(_KEY_WORDS.values()),))}
    texts = _MOST_PROFILE + 2 * _MOST_NAME + 3 * _LENGTH.size
    sizes = _SIZES.size + MAX_END_TOKENS * _END.size
    return texts + sizes + named_arrays.max_bytes(keys | dict(self.arrays), num_rows, self.most)


class DecodedOpening(NamedTuple):
  """A decoded opening."""

  agreement: Agreement
  keys: Key  # [B]
  condition: PyTree


def condition_arrays(condition: PyTree) -> dict[str, np.ndarray]:
  """The fields of a condition as host arrays.

  Raises:
    ValueError: for a condition that is no named tuple of arrays.
  """
  if not hasattr(condition, "_asdict"):
    raise ValueError(f"Must have a condition that is a named tuple of arrays, we instead got {type(condition).__name__}")
  return {name: np.asarray(leaf) for name, leaf in condition._asdict().items()}


def write_opening(profile: str, agreement: Agreement, keys: Key, condition: PyTree) -> bytes:
  """The body of an `OPEN` envelope.

  Args:
    keys: ``[B]`` typed row keys.
    condition: a named tuple of arrays with ``B`` rows.
  Raises:
    ValueError: for keys or conditions that no message has.
  """
  kind = str(jax.random.key_impl(keys))
  if kind not in _KEY_WORDS:
    raise ValueError(f"Must have keys of kind {', '.join(_KEY_WORDS)}, we instead got {kind}")
  parts = [_text(profile)]
  sizes = (agreement.num_rows, agreement.max_len, agreement.target_prefix, len(agreement.end_tokens))
  parts += [_SIZES.pack(*sizes), *(_END.pack(token) for token in agreement.end_tokens)]
  parts += [_text(kind), _text(type(condition).__name__)]
  arrays = {_KEYS: np.asarray(jax.random.key_data(keys))} | condition_arrays(condition)
  return b"".join(parts) + named_arrays.write_arrays(arrays)


def read_opening(body: bytes, profile: str, spec: ConditionSpec, *, max_rows: int, max_len: int) -> DecodedOpening:
  """Decodes the body of an `OPEN` envelope.

  Args:
    profile: that of the target side's wire; the draft side must have the same.
    max_rows: most rows that the target side takes; ``max_len`` the most tokens of a row.
  Raises:
    MessageError: if it is anything but an opening that the target side can serve.
  """
  position = 0

  def take(size: int) -> bytes:
    nonlocal position
    require(position + size <= len(body), "truncated", f"{size} bytes wanted, {len(body) - position} left")
    position += size
    return body[position - size : position]

  def take_text(most: int) -> str:
    (size,) = _LENGTH.unpack(take(_LENGTH.size))
    require(size <= most, "range", f"a text of {size} bytes")
    return take(size).decode("latin-1")

  theirs = take_text(_MOST_PROFILE)
  require(theirs == profile, "profile", f"{theirs[:200]!r} instead of {profile!r}")
  rows, length, prefix, ends = _SIZES.unpack(take(_SIZES.size))
  require(1 <= rows <= min(max_rows, MAX_ROWS - 1), "range", f"{rows} rows, 1 to {max_rows} allowed")
  require(1 <= length <= max_len, "range", f"{length} tokens, 1 to {max_len} allowed")
  require(prefix < _MOST, "range", f"a prefix of {prefix} tokens")
  require(ends <= MAX_END_TOKENS, "range", f"{ends} end tokens, {MAX_END_TOKENS} allowed")
  end_tokens = tuple(_END.unpack(take(_END.size))[0] for _ in range(ends))
  require(all(token < _MOST for token in end_tokens), "range", "an end token is too large")
  kind = take_text(_MOST_NAME)
  require(kind in _KEY_WORDS, "kind", f"{kind!r} is no kind of keys")
  name = take_text(_MOST_NAME)
  require(name == spec.name, "kind", f"a condition {name!r} instead of {spec.name}")
  specs = {_KEYS: ArraySpec("uint32", (_KEY_WORDS[kind],))} | dict(spec.arrays)
  arrays = named_arrays.read_arrays(body[position:], specs, num_rows=rows, most=spec.most)
  keys = jax.random.wrap_key_data(arrays.pop(_KEYS), impl=kind)
  return DecodedOpening(Agreement(rows, length, end_tokens, prefix), keys, spec.condition_type(**arrays))


def _text(text: str) -> bytes:
  data = text.encode("latin-1")
  return _LENGTH.pack(len(data)) + data
