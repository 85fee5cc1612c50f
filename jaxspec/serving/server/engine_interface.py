"""What computes, as the server's bookkeeping knows it: the interface of an engine, and how its rows fail. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jaxspec
from jaxspec.serving.wire.cloud import PROTOCOL, Description, Opening, Profile, Resume
from jaxspec.serving.wire.framing import Frame


class StreamLost(Exception):
  """The engine does not have what a call needs (a stream it dropped, a distribution it did not keep): the edge resumes."""


class NotFinite(Exception):
  """The network answered a row with numbers that are none. Its stream is given up; others are not touched."""


class NoRoom(Exception):
  """The engine holds as many streams as it may."""


class StreamExists(NoRoom):
  """The engine holds a stream of this name, of which its server does not know. The server has it closed; the edge comes
  again."""


ROW_ERRORS = (StreamLost, NotFinite, NoRoom)


class Engine(Protocol):
  """Computes replies. It is called from one thread at a time.

  `open` and `submit` may also raise what a row's result may be: a `MessageError` or one of `ROW_ERRORS`.
  A queued call gives exactly one result of a later `step`, unless its stream is closed before. A call is a function of the
  opening, the tokens that were committed, and its frame; when it ends in an error, it has changed nothing.

  Attributes:
    profiles: what is compiled.
    model: SHA-256 of family, config and weights.
    numerics: digest of the output bits of a fixed probe.
    max_len: most tokens of a row.
    max_condition: most ids of a prompt, or bytes of a text.
    max_held: most streams that it holds.
    end_ids: tokens that end a row where an edge has no others in mind.
    replay_in_chunks: whether tokens of a resumed stream are read in other cuts than before.
    rows_of_step: rows that the newest `step` computed, asked and forced ones; 0 where no program of rows ran.
  """

  profiles: Sequence[Profile]
  model: bytes
  numerics: bytes
  vocab: int
  max_len: int
  max_condition: int
  max_held: int
  end_ids: Sequence[int]
  replay_in_chunks: bool
  rows_of_step: int

  def open(self, stream: bytes, opening: Opening, resume: Resume | None = None, *, tenant: str = "") -> None:
    """Queues a prefill; its result is the frame of token 0. With ``resume`` the tokens are read again, not drawn."""
    ...

  def submit(self, stream: bytes, part: int, frame: Frame) -> None:
    """Queues one call of an open stream."""
    ...

  def step(self, now: float) -> list[tuple[bytes, bytes | Exception]]:
    """Runs one batch.

    Args:
      now: seconds, on one clock that never goes back.
    Returns:
      Streams with their reply frames or errors: a `MessageError` for a frame that is not valid, or one of `ROW_ERRORS`.
    Raises:
      Exception: when the engine can compute no more. The process ends then.
    """
    ...

  def close(self, stream: bytes) -> None:
    """Forgets a stream with what is queued for it; an unknown one too."""
    ...


def description_of(engine: Engine) -> Description:
  """What a server with this engine says about itself."""
  return Description(
    protocol_min=PROTOCOL,
    protocol_max=PROTOCOL,
    server=f"jaxspec {jaxspec.__version__}",
    model=engine.model,
    numerics=engine.numerics,
    vocab=engine.vocab,
    max_len=engine.max_len,
    max_condition=engine.max_condition,
    end_ids=tuple(engine.end_ids),
    profiles=tuple(engine.profiles),
    replay_in_chunks=engine.replay_in_chunks,
  )
