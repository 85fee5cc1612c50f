"""A device that plays a trace: the calls of a finished decode once more, with its pauses, against any cloud. No JAX.

Nothing is computed: frames are those of the trace, and a reply that differs from the recorded one ends the decode, because
later calls would be wrong. A lost stream is resumed like by an edge.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from experiments.server.trace import Trace
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.reliable_stream import ReliableStream, RetrySettings
from jaxspec.serving.wire.cloud import Cloud, Profile, shown
from jaxspec.serving.wire.handshake import STREAM_BYTES


class Played(NamedTuple):
  """What became of a trace.

  Attributes:
    open_s: seconds of the handshake; attempts and pauses between them included.
    call_s: the same of every other call that was answered.
    think_s: seconds of the pauses of the edge.
    differing: sequence number of the call whose reply was another one; None where all were the recorded ones.
    num_tokens: tokens of the row; 0 where it was not finished.
  """

  open_s: float
  call_s: tuple[float, ...]
  think_s: float
  differing: int | None
  num_tokens: int
  retries: int
  resumes: int


def fitting(trace: Trace, cloud: Cloud) -> int:
  """The number of the server's profile that a trace was recorded with.

  Raises:
    ValueError: in one line, for a server whose replies cannot be those of the trace.
  """
  served = cloud.description
  own = trace.handshake.model
  for name, theirs, own in (("networks", served.model, own), ("numerics", served.numerics, trace.numerics)):
    if theirs != own:
      found = f"{theirs.hex()[:16]} where the trace has {own.hex()[:16]}"
      raise ValueError(f"Must have a server of the {name} that the trace was recorded with, we instead got {found}")
  for profile in served.profiles:
    if _agreed(profile) == _agreed(trace.profile):
      return profile.id
  has = ", ".join(map(shown, served.profiles))
  raise ValueError(f"Must have traces of what the server has ({has}), we instead got one of {shown(trace.profile)}")


def play(
  trace: Trace,
  cloud: Cloud,
  *,
  settings: RetrySettings | None = None,
  observer: Observer | None = None,
) -> Played:
  """Plays a trace.

  Args:
    settings, observer: as in `ReliableStream`; the pauses of the trace are on the clock of the settings.
  Raises:
    CloudError: for a call that is refused, or not answered however often it is tried.
    ValueError: as `fitting`.
  """
  settings = RetrySettings() if settings is None else settings
  handshake = trace.handshake._replace(stream=secrets.token_bytes(STREAM_BYTES), profile=fitting(trace, cloud))
  reliable, clock = ReliableStream(cloud, handshake, settings=settings, observer=observer), settings.clock
  times: list[float] = []

  def answer_to(index: int) -> bytes:
    """The reply to a call; to the handshake where ``index`` is -1."""
    began = clock()
    if index < 0:
      reply = reliable.open()
    else:
      call = trace.calls[index]
      ask = reliable.complete if call.part else reliable.verify
      reply = ask(call.frame, lambda: trace.resume_at(index))
    times.append(clock() - began)
    return reply.data

  def found(differing: int | None) -> Played:
    think_s = sum(call.think_s for call in trace.calls[: len(times) - 1])
    num_tokens = trace.num_tokens if differing is None else 0
    return Played(times[0], tuple(times[1:]), think_s, differing, num_tokens, reliable.retries, reliable.resumes)

  def differing() -> int | None:
    """Plays until the end, or until a reply is another one; then the number of its call."""
    if answer_to(-1) != trace.first:
      return 0
    for index, call in enumerate(trace.calls):
      settings.sleep(call.think_s)
      if answer_to(index) != call.reply:
        return call.seq
    return None

  outcome = found(differing())
  reliable.close()
  return outcome


def _agreed(profile: Profile) -> Profile:
  """What both ends must have the same of; how long a frame may be is the server's."""
  return profile._replace(id=0, max_frame=0)
