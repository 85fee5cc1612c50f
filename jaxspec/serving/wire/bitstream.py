"""Fields of bits, most significant first, and the error of everything that reads foreign bytes."""

from __future__ import annotations

import numpy as np


class MessageError(ValueError):
  """A message that violates the format or the negotiated limits; ``reason`` is a short fixed word for counting."""

  def __init__(self, reason: str, detail: str):
    super().__init__(f"{reason}: {detail}")
    self.reason = reason


def require(condition: bool, reason: str, detail: str) -> None:
  """Raises a `MessageError` unless the condition holds."""
  if not condition:
    raise MessageError(reason, detail)


class BitWriter:
  """Collects fields; linear in the number of bits (text of digits, converted once)."""

  def __init__(self):
    self._fields: list[str] = []
    self.length = 0  # bits so far

  def put(self, value: int, width: int) -> None:
    """Appends ``value`` as ``width`` bits; a field of width 0 holds 0."""
    if not 0 <= value < 1 << width:
      raise ValueError(f"Must have a value below 2^{width}, we instead got {value}")
    if width:
      self._fields.append(f"{value:0{width}b}")
      self.length += width

  def unary(self, value: int) -> None:
    """Appends ``value`` ones and a zero."""
    self._fields.append("1" * value + "0")
    self.length += value + 1

  def bytes(self) -> bytes:
    """All fields, filled up with zeros to whole bytes."""
    size = -(-self.length // 8)
    return int("".join(self._fields).ljust(8 * size, "0") or "0", 2).to_bytes(size)


class BitReader:
  """Reads what a `BitWriter` wrote; every violation is a `MessageError`. Needs about ten times the memory of the data."""

  def __init__(self, data: bytes):
    self._bits = f"{int.from_bytes(data):0{8 * len(data)}b}" if data else ""
    self.position = 0

  def take(self, width: int) -> int:
    """The next ``width`` bits."""
    end = self.position + width
    require(end <= len(self._bits), "truncated", f"{width} bits wanted, {len(self._bits) - self.position} left")
    value = int(self._bits[self.position : end] or "0", 2)
    self.position = end
    return value

  def halves(self, count: int) -> np.ndarray:
    """The next ``count`` fields of 16 bits, ``[count]`` uint16."""
    return np.frombuffer(self.take(16 * count).to_bytes(2 * count), ">u2").astype(np.uint16)

  def below(self, count: int, width: int, what: str) -> int:
    """The next ``width`` bits as a number that must be below ``count``."""
    value = self.take(width)
    require(value < count, "range", f"{what} is not below its number of cases")
    return value

  def unary(self) -> int:
    """Ones before the next zero."""
    zero = self._bits.find("0", self.position)
    require(zero >= 0, "truncated", "unary field without an end")
    value = zero - self.position
    self.position = zero + 1
    return value

  def finish(self) -> None:
    """Checks that nothing but padding is left: less than a byte, all zero."""
    rest = self._bits[self.position :]
    require(len(rest) < 8, "length", f"{len(rest)} bits after the last field")
    require("1" not in rest, "padding", "padding bits are not zero")
