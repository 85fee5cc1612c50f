"""The interface of an engine, and the errors of its rows. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jaxspec
from jaxspec.serving.wire.cloud import Description, Profile
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import PROTOCOL, Handshake, Resume


class StreamLost(Exception):
  """The engine has lost the stream, or the first part of a call: the edge must resume."""


class NotFinite(Exception):
  """The network's output of a row is not finite. Its stream is closed; others continue."""


class NoRoom(Exception):
  """The engine has no room for another stream."""


class StreamExists(NoRoom):
  """The engine has a stream of this name that its server does not know. The server closes it; the edge retries."""


ROW_ERRORS = (StreamLost, NotFinite, NoRoom)


class Engine(Protocol):
  """Computes replies. One thread at a time calls it.

  `open` and `submit` may also raise the errors of a row: a `MessageError` or one of `ROW_ERRORS`. A queued call has exactly
  one result in a later `step`, unless its stream is closed before. A reply is a function of the handshake, the committed
  tokens and the frame. A call that ends in an error has changed nothing.

  Attributes:
    profiles: descriptions of the compiled profiles.
    model: SHA-256 of family, config and weights.
    numerics: digest of the determinism check.
    max_len: most tokens of a row.
    max_condition: most ids of a prompt, or bytes of a text.
    max_known: most known streams.
    end_ids: default end tokens of a row.
    replay_in_chunks: whether tokens of a resumed stream are read in other passes than before.
    rows_of_step: verified and forced rows of the newest `step`; 0 if it ran no program of rows.
  """

  @property
  def profiles(self) -> Sequence[Profile]: ...

  @property
  def model(self) -> bytes: ...

  @property
  def numerics(self) -> bytes: ...

  @property
  def vocab(self) -> int: ...

  @property
  def max_len(self) -> int: ...

  @property
  def max_condition(self) -> int: ...

  @property
  def max_known(self) -> int: ...

  @property
  def end_ids(self) -> Sequence[int]: ...

  @property
  def replay_in_chunks(self) -> bool: ...

  @property
  def rows_of_step(self) -> int: ...

  def open(self, stream: bytes, handshake: Handshake, resume: Resume | None = None, *, tenant: str = "") -> None:
    """Queues a prefill; its result is the frame of token 0. With ``resume`` the tokens are replayed, not drawn."""
    ...

  def submit(self, stream: bytes, part: int, frame: Frame) -> None:
    """Queues one call of an open stream."""
    ...

  def step(self, now: float) -> list[tuple[bytes, bytes | Exception]]:
    """Runs one batch.

    Args:
      now: seconds, on one clock that never goes back.
    Returns:
      Streams with their reply frames or errors: a `MessageError` for an invalid frame, or one of `ROW_ERRORS`.
    Raises:
      Exception: if the engine has failed. The process ends then.
    """
    ...

  def close(self, stream: bytes) -> None:
    """Closes a stream and drops its queued call; does nothing for an unknown stream."""
    ...


def description_of(engine: Engine) -> Description:
  """The reply of `Describe` of a server with this engine."""
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
