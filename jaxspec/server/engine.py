"""What computes: the interface between the server's bookkeeping and the device that holds the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jaxspec.link.cloud import Opening, Profile, Resume


class StreamLost(Exception):
  """The engine does not have what a call needs (a stream it dropped, a distribution it did not keep): the edge resumes."""


class NotFinite(Exception):
  """The network answered a row with numbers that are none. Its stream is given up; others are not touched."""


class Engine(Protocol):
  """Computes replies. It is called from one thread only.

  `open` and `submit` may also raise what a row's result may be: a `MessageError`, `StreamLost` or `NotFinite`.
  A queued call gives exactly one result of a later `step`, unless its stream is closed before. A call is a function of the
  opening, the tokens that were committed, and its frame; when it ends in an error, it has changed nothing.

  Attributes:
    profiles: what is compiled.
    model: SHA-256 of family, config and weights.
    numerics: digest of the output bits of a fixed probe.
    max_len: most tokens of a row.
    max_condition: most ids of a prompt, or bytes of a caption.
  """

  profiles: Sequence[Profile]
  model: bytes
  numerics: bytes
  vocab: int
  max_len: int
  max_condition: int
  end_ids: Sequence[int]

  def open(self, stream: bytes, opening: Opening, resume: Resume | None = None) -> None:
    """Queues a prefill; its result is the frame of token 0. With ``resume`` the tokens are read again, not drawn."""
    ...

  def submit(self, stream: bytes, part: int, frame: bytes) -> None:
    """Queues one call of an open stream."""
    ...

  def step(self, now: float) -> list[tuple[bytes, bytes | Exception]]:
    """Runs one batch.

    Returns:
      Streams with their reply frames or errors: a `MessageError` for a frame that is not valid, `StreamLost`, `NotFinite`.
    Raises:
      Exception: when the engine can compute no more. The process ends then.
    """
    ...

  def close(self, stream: bytes) -> None:
    """Forgets a stream with what is queued for it; an unknown one too."""
    ...
