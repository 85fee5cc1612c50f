"""Several processes that serve together: process 0 has streams, scheduler and network, all of them have the devices.

1. Every process calls `jax.distributed.initialize`, loads the same networks, and probes the same programs.
2. Process 0 tells the others over sockets which programs to run, and with which arrays (`jaxspec.serving.server.plan_wire`).
   So all run the same programs in the same order.
3. When process 0 ends, so do the others. When any of them is lost, all end: devices open their streams again when the group
   is started again.

The sockets are not encrypted, like the exchanges between the devices: the processes belong on a network of their own. A
random number, which goes to the others by way of the devices, keeps anything else from being taken for one of the group.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from jaxspec.serving.server.engine import Engine
from jaxspec.serving.server.plan_wire import END, HEAD_BYTES, length_after, read_call, write_call
from jaxspec.serving.server.server_programs import Call, Programs, State
from jaxspec.serving.wire.address import Address

_LOG = logging.getLogger(__name__)
_SECRET_BYTES = 16
_JOIN_S = 60.0
_SILENT_S, _SILENCES = 10, 3  # seconds between questions to a silent machine, and how many go unanswered


def join(mesh: Mesh | None, host: str) -> Leader | Link | None:
  """Connects the processes of this program; all of them must call it.

  Args:
    mesh: the devices that serve.
    host: name or address of the machine of process 0, where it waits for the others.
  Returns:
    A `Leader` in process 0, a `Link` in the others; None where there is one process, or each serves by itself (no mesh).
  Raises:
    ValueError: if the mesh leaves a process out.
    OSError: if the others do not come.
  """
  number = jax.process_count()
  if mesh is None or number == 1:
    return None
  found = {device.process_index for device in mesh.devices.flat}
  if len(found) < number:
    raise ValueError(
      f"Must have a mesh with devices of all {number} processes, we instead got one with those of {len(found)}"
    )
  if jax.process_index() == 0:
    where = Address(host, 0)
    with socket.create_server(where, family=where.resolve()[0][0]) as waiting:
      secret = secrets.token_bytes(_SECRET_BYTES)
      _told(secret + waiting.getsockname()[1].to_bytes(2))
      return Leader(_others(waiting, secret, number - 1))
  told = _told(bytes(_SECRET_BYTES + 2))
  other = socket.create_connection((host, int.from_bytes(told[_SECRET_BYTES:])), timeout=_JOIN_S)
  other.sendall(told[:_SECRET_BYTES])
  return Link(_set_up(other))


class Leader:
  """Process 0's end: tells the others what to run."""

  def __init__(self, others: list[socket.socket]):
    self._others = others
    self._lock = threading.Lock()

  def tell(self, call: Call) -> None:
    """Tells the others to run a program.

    Raises:
      OSError: if one of them is lost.
    """
    message = write_call(call)
    with self._lock:
      for other in self._others:
        other.sendall(message)

  def check(self) -> None:
    """Raises a ConnectionError if one of the others is lost; they never say anything while they live."""
    with self._lock:
      if not self._others or select.select(self._others, [], [], 0)[0]:
        raise ConnectionError("a process of the group is lost")

  def end(self, has_failed: bool) -> None:
    """Ends the others, which take it for a loss if this process has failed."""
    with self._lock:
      for other in self._others:
        try:
          other.sendall(b"" if has_failed else END)
        except OSError:
          _LOG.warning("A process of the group was lost before the end")
        other.close()
      self._others = []


class Link:
  """The end of every other process: hears what to run."""

  def __init__(self, leader: socket.socket):
    self._leader = leader

  def calls(self, programs: Programs) -> Iterator[Call]:
    """What is to be run, until process 0 ends.

    Raises:
      OSError: if process 0 is lost.
    """
    while True:
      head = _received(self._leader, HEAD_BYTES)
      call = read_call(head + _received(self._leader, length_after(head)), programs)
      if call is None:
        return
      yield call


class Follower:
  """What a process other than 0 runs; as a context it runs in a thread.

  Args:
    engine: made as in process 0.
    link: what `join` returned.

  Attributes:
    address: empty; clients connect to process 0.
  """

  address = ""

  def __init__(self, engine: Engine, link: Link):
    self._engine, self._link = engine, link
    self._thread = threading.Thread(target=self.run, name="jaxspec-follower", daemon=True)

  def __enter__(self) -> Follower:
    self._thread.start()
    return self

  def __exit__(self, *_) -> None:
    self._thread.join()

  def run(self, ready: Callable[[], None] = lambda: None) -> int:
    """Runs what process 0 tells until it ends. SIGTERM is left to process 0.

    Args:
      ready: called before the first program; this process listens to process 0 alone.
    Returns:
      The exit status: 0 if process 0 ended, 1 after a failure of it or here.
    """
    if threading.current_thread() is threading.main_thread():
      signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    programs, state = self._engine.programs, State(self._engine.table)
    try:
      with self._engine.precision():
        for call in self._link.calls(programs):
          state, _ = programs.run(call, state)
    except (Exception, KeyboardInterrupt):  # a lost process 0, or devices that fail: there is no table any more
      _LOG.exception("The group is lost")
      return 1
    return 0


def _told(message: bytes) -> bytes:
  """What process 0 says, in all processes."""
  said = multihost_utils.broadcast_one_to_all(np.frombuffer(message, np.uint8).astype(np.int32))
  return np.asarray(said).astype(np.uint8).tobytes()


def _others(waiting: socket.socket, secret: bytes, number: int) -> list[socket.socket]:
  """The connections of the other processes."""
  found: list[socket.socket] = []
  waiting.settimeout(_JOIN_S)
  while len(found) < number:
    other, _ = waiting.accept()
    other.settimeout(_JOIN_S)
    try:
      is_one = hmac.compare_digest(_received(other, _SECRET_BYTES), secret)
    except OSError:
      is_one = False
    if is_one:
      found.append(_set_up(other))
    else:
      other.close()
  return found


def _set_up(connection: socket.socket) -> socket.socket:
  connection.settimeout(None)
  connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
  connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
  for name, value in (("TCP_KEEPIDLE", _SILENT_S), ("TCP_KEEPINTVL", _SILENT_S), ("TCP_KEEPCNT", _SILENCES)):
    if hasattr(socket, name):
      connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
  return connection


def _received(connection: socket.socket, size: int) -> bytes:
  """Exactly so many bytes."""
  parts = bytearray()
  while len(parts) < size:
    if not (part := connection.recv(size - len(parts))):
      raise ConnectionError("the other process is lost")
    parts += part
  return bytes(parts)
