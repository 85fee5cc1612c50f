"""A device that plays a trace: the calls of a finished decode once more, with its pauses, against any cloud. No JAX.

Nothing is computed: frames are those of the trace, and a reply that is not the recorded one ends the decode, for what would
be asked next is no longer true. A stream that a server lost is resumed as an edge would.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.server.trace import Trace
from jaxspec.serving.edge.reliable_stream import Session
from jaxspec.serving.wire.cloud import STREAM_BYTES, Cloud, Profile, shown


class Played(NamedTuple):
  """What became of a trace.

  Attributes:
    open_s: seconds of the opening; attempts and pauses between them included.
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
  for name, theirs, own in (("networks", served.model, trace.opening.model), ("numerics", served.numerics, trace.numerics)):
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
  clock: Callable[[], float] = time.monotonic,
  sleep: Callable[[float], None] = time.sleep,
  **options: Any,
) -> Played:
  """Plays a trace.

  Args:
    clock: seconds, growing.
    sleep: waits so many seconds.
    options: others of `Session`.
  Raises:
    CloudError: for a call that is refused, or not answered however often it is tried.
    ValueError: as `fitting`.
  """
  session = Session(cloud, clock=clock, sleep=sleep, **options)
  opening = trace.opening._replace(stream=secrets.token_bytes(STREAM_BYTES), profile=fitting(trace, cloud))
  times: list[float] = []

  def answer_to(index: int) -> bytes:
    """The reply to a call; to the opening where ``index`` is -1."""
    began = clock()
    if index < 0:
      reply = session.open(opening)
    else:
      call = trace.calls[index]
      ask = session.complete if call.part else session.verify
      reply = ask(call.frame, lambda next_seq: trace.resume_at(index))
    times.append(clock() - began)
    return reply.data

  def found(differing: int | None) -> Played:
    think_s = sum(call.think_s for call in trace.calls[: len(times) - 1])
    num_tokens = trace.num_tokens if differing is None else 0
    return Played(times[0], tuple(times[1:]), think_s, differing, num_tokens, session.retries, session.resumes)

  def differing() -> int | None:
    """Plays until the end, or until a reply is another one; then the number of its call."""
    if answer_to(-1) != trace.first:
      return 0
    for index, call in enumerate(trace.calls):
      sleep(call.think_s)
      if answer_to(index) != call.reply:
        return call.seq
    return None

  outcome = found(differing())
  session.close()
  return outcome


def _agreed(profile: Profile) -> Profile:
  """What both ends must have the same of; how long a frame may be is the server's."""
  return profile._replace(id=0, max_frame=0)
