"""Runs of programs as bytes: what one process of a group tells the others.

Head: program, kind of stream (1 byte each), size, length of the rest (4 bytes each, big-endian). The rest is the numbers of
all arrays, one after the other. Types and shapes are not sent: both ends have them from the first three
(`Programs.arrays_like`).
"""

from __future__ import annotations

import struct

import jax
import numpy as np

from jaxspec.serving.server.server_programs import Call, Op, Programs

_HEAD = struct.Struct(">BBII")
HEAD_BYTES = _HEAD.size
END = _HEAD.pack(0, 0, 0, 0)  # nothing more will be run


def write_call(call: Call) -> bytes:
  """The bytes of a call."""
  rest = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(call.arrays))
  return _HEAD.pack(call.op, call.number, call.size, len(rest)) + rest


def length_after(head: bytes) -> int:
  """How many bytes follow a head."""
  return _HEAD.unpack(head)[3]


def read_call(message: bytes, programs: Programs) -> Call | None:
  """The call of some bytes; None for `END`.

  Args:
    programs: the same as those of the sender.
  Raises:
    ValueError: for bytes that are no call of these programs.
  """
  if message == END:
    return None
  op, number, size, length = _HEAD.unpack_from(message)
  call = Call(Op(op), number, size)
  like, position = programs.arrays_like(call), HEAD_BYTES
  wanted = sum(leaf.nbytes for leaf in jax.tree.leaves(like))
  if length != wanted or len(message) != HEAD_BYTES + wanted:
    raise ValueError(f"Must have {wanted} bytes of arrays for {call.op.name}, we instead got {length}")

  def read(leaf: np.ndarray) -> np.ndarray:
    nonlocal position
    position += leaf.nbytes
    return np.frombuffer(message, leaf.dtype, leaf.size, position - leaf.nbytes).reshape(leaf.shape)

  return call._replace(arrays=jax.tree.map(read, like))
