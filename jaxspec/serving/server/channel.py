"""Letters between two processes of this machine, over a pair of connected sockets: length, then bytes.

A frame with its arrays has a few kilobytes, which a socket carries in some ten microseconds; a step takes milliseconds. So
there is no memory that two processes write to. What a side has not read yet is bounded: who sends waits for room.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">I")
MOST = 1 << 26  # bytes of a letter; nothing of that size is ever sent


class Channel(asyncio.Protocol):
  """One end.

  Args:
    receive: told each letter, in order.
    lost: told once that the other end is gone.
  """

  def __init__(self, receive: Callable[[bytes], None], lost: Callable[[], None]):
    self._receive, self._lost = receive, lost
    self._arrived = bytearray()
    self._transport: asyncio.Transport | None = None
    self._has_room = asyncio.Event()
    self._has_room.set()

  @classmethod
  async def over(cls, sock: socket.socket, receive: Callable[[bytes], None], lost: Callable[[], None]) -> Channel:
    """The end that a socket is, in the running loop."""
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(lambda: cls(receive, lost), sock=sock)
    return channel

  def send(self, letter: bytes) -> None:
    """Sends a letter, as far as the other end is there."""
    if not self._transport.is_closing():
      self._transport.write(_LENGTH.pack(len(letter)) + letter)

  async def room(self) -> None:
    """Waits until the other end has read most of what was sent."""
    await self._has_room.wait()

  def close(self) -> None:
    """Ends after what was sent."""
    self._transport.close()

  def connection_made(self, transport: asyncio.BaseTransport) -> None:
    self._transport = transport

  def data_received(self, data: bytes) -> None:
    self._arrived += data
    start, end = 0, len(self._arrived)
    while end - start >= _LENGTH.size:
      (length,) = _LENGTH.unpack_from(self._arrived, start)
      if length > MOST:
        self._transport.abort()
        return
      if end - start < _LENGTH.size + length:
        break
      start += _LENGTH.size
      self._receive(bytes(self._arrived[start : start + length]))
      start += length
    del self._arrived[:start]

  def pause_writing(self) -> None:
    self._has_room.clear()

  def resume_writing(self) -> None:
    self._has_room.set()

  def connection_lost(self, error: Exception | None) -> None:
    self._has_room.set()
    self._lost()
