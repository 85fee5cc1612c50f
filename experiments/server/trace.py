"""Traces of finished decodes: calls of an edge, replies, and the pauses between them.

A trace is a file of JSON. It holds all that a device needs to do the same decode again without a network and without JAX:
how the stream was opened, every frame, the seconds before it, and the reply. A server of the same numerics answers the same
bytes. The condition of the row is in it, so a trace is as private as the prompt.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.serving.wire.cloud import Profile
from jaxspec.serving.wire.handshake import DIGEST_BYTES, KEY_BYTES, Handshake, Resume

VERSION = 1


class TracedCall(NamedTuple):
  """One call of a decode, the handshake left out."""

  think_s: float  # from the reply before it
  seq: int
  part: int
  round: int  # as in `Resume`, before this call
  frame: bytes
  reply: bytes


class Trace(NamedTuple):
  """A finished decode of one row.

  Attributes:
    handshake: how its stream was opened; who plays it takes another name for it.
    profile: the server's, with number 0.
    numerics: the server's.
    first: the frame of token 0.
    calls: in order; part 1 of a call follows its part 0.
    resume: the edge's tokens before the newest call; those before an earlier call are a prefix of them.
    num_tokens: tokens of the row.
  """

  handshake: Handshake
  profile: Profile
  numerics: bytes
  first: bytes
  calls: tuple[TracedCall, ...]
  resume: Resume
  num_tokens: int

  def resume_at(self, index: int) -> Resume:
    """What the edge had before the call of this index."""
    call = self.calls[index]
    gained = self.resume.gained[: call.seq]
    return Resume(call.seq, call.round, self.resume.tokens[: sum(gained)], gained, self.resume.fed[: call.seq])


def write_trace(path: Path, trace: Trace) -> None:
  """Writes a file that `read_trace` reads."""
  document = {
    "trace": VERSION,
    "handshake": {name: _plain(value) for name, value in trace.handshake._asdict().items()},
    "profile": trace.profile._asdict(),
    "numerics": trace.numerics.hex(),
    "first": trace.first.hex(),
    "resume": {name: _plain(value) for name, value in trace.resume._asdict().items()},
    "num_tokens": trace.num_tokens,
    "calls": [{name: _plain(value) for name, value in call._asdict().items()} for call in trace.calls],
  }
  path.write_text(json.dumps(document) + "\n", encoding="utf-8")


def read_trace(path: Path) -> Trace:
  """Reads a trace.

  Raises:
    ValueError: in one line, for a file that is none.
  """
  try:
    document = json.loads(path.read_text(encoding="utf-8"))
    trace = _trace_of(document)
    _check(trace)
  except OSError as error:
    raise ValueError(f"Cannot read {path}: {error.strerror}") from error
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise ValueError(f"Must have a trace in {path}, we instead got {_reason(error)}") from error
  return trace


def read_traces(folder: Path) -> list[Trace]:
  """The traces of a folder, by name.

  Raises:
    ValueError: where there is none, or one that is damaged.
  """
  paths = sorted(folder.glob("*.json"))
  if not paths:
    what = "none in it" if folder.is_dir() else "no folder"
    raise ValueError(f"Must have traces (`python -m experiments.server.record`) in {folder}, we instead got {what}")
  return [read_trace(path) for path in paths]


def _plain(value: Any) -> Any:
  return value.hex() if isinstance(value, bytes) else value


def _trace_of(document: dict[str, Any]) -> Trace:
  if document.get("trace") != VERSION:
    raise ValueError(f"version {document.get('trace')} where this is {VERSION}")
  handshake = dict(document["handshake"])
  for name in ("stream", "model", "key", "need_numerics"):
    handshake[name] = bytes.fromhex(handshake[name])
  handshake["end_ids"] = tuple(handshake["end_ids"])
  if isinstance(handshake["condition"], list):
    handshake["condition"] = tuple(handshake["condition"])
  resume = {name: tuple(value) if isinstance(value, list) else value for name, value in document["resume"].items()}
  resume["replies"] = bytes.fromhex(resume.get("replies", ""))
  calls = tuple(
    TracedCall(**(call | {name: bytes.fromhex(call[name]) for name in ("frame", "reply")})) for call in document["calls"]
  )
  numerics, first = (bytes.fromhex(document[name]) for name in ("numerics", "first"))
  agreed = Handshake(**handshake), Profile(**document["profile"]), numerics, first
  return Trace(*agreed, calls, Resume(**resume), document["num_tokens"])


def _check(trace: Trace) -> None:
  """What no file that was written by `write_trace` lacks."""
  if (len(trace.handshake.key), len(trace.handshake.model)) != (KEY_BYTES, DIGEST_BYTES):
    raise ValueError("a key or a model of another length")
  seqs = [(call.seq, call.part) for call in trace.calls]
  if sorted(set(seqs)) != seqs or {seq for seq, part in seqs if part == 0} != set(range(1, trace.resume.next_seq + 1)):
    raise ValueError("calls that do not follow each other")
  if not all(math.isfinite(call.think_s) and call.think_s >= 0 for call in trace.calls):
    raise ValueError("a time that is none")
  numbers = (*trace.resume.tokens, *trace.resume.gained, *trace.resume.fed, *(call.round for call in trace.calls))
  if not all(isinstance(number, int) and number >= 0 for number in (*numbers, trace.num_tokens)):
    raise ValueError("a number that is no count")
  if sum(trace.resume.gained) != len(trace.resume.tokens) or len(trace.resume.gained) != trace.resume.next_seq:
    raise ValueError("tokens that do not add up")


def _reason(error: Exception) -> str:
  if isinstance(error, json.JSONDecodeError):
    return "no JSON"
  return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
