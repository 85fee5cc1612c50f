"""Between the arrays of a round and the messages of its rows; a finished row sends nothing (None)."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jaxspec.codecs.sparse_law import SparseLaw
from jaxspec.link.bitstream import require
from jaxspec.link.message import REPLY, Reply, read_drafts, read_reply, write_drafts, write_law, write_reply
from jaxspec.link.records import Limits, Record
from jaxspec.types import Cursor, Draft, Verdict

Frames = list[bytes | None]


def record_of(law: SparseLaw, row: int, place: int, token: int | None) -> Record:
  """One record out of laws ``[B, K]`` that were brought to the host."""
  size = int(law.size[row, place])
  ids, counts = law.ids[row, place, :size].tolist(), law.counts[row, place, :size].tolist()
  return Record(tuple(ids), tuple(counts), int(law.total[row, place]), token)


def frames_of_drafts(draft: Draft, cursor: Cursor, limits: Limits) -> tuple[Frames, np.ndarray]:
  """Messages of all live rows, and their payload bits ``[B]``."""
  law, tokens = SparseLaw(*map(np.asarray, draft.proposal)), np.asarray(draft.tokens)
  live, number, round_ = np.asarray(cursor.live), np.asarray(draft.num_drafted), int(cursor.round)
  frames: Frames = [None] * len(live)
  bits = np.zeros(len(live), np.int64)
  for row in np.flatnonzero(live):
    records = [record_of(law, row, place, int(tokens[row, place])) for place in range(number[row])]
    frames[row], bits[row] = write_drafts(round_, records, limits)
  return frames, bits


def draft_of_frames(frames: Frames, cursor: Cursor, limits: Limits, max_sent: int) -> Draft:
  """The draft that the messages describe, laws with ``max_sent`` entries.

  Raises:
    MessageError: if a live row has no valid message for this round.
  """
  rows, window = len(frames), limits.max_drafts
  tokens, number = np.zeros((rows, window), np.int32), np.zeros(rows, np.int32)
  ids = np.zeros((rows, window, max_sent), np.int32)
  law = SparseLaw(ids, np.zeros_like(ids), np.zeros_like(tokens), np.zeros_like(tokens))
  live = np.asarray(cursor.live)
  for row, data in enumerate(frames):
    if data is None:
      require(not live[row], "order", f"row {row} is alive and sent nothing")
      continue
    message = read_drafts(data, limits)
    require(message.round == int(cursor.round), "order", f"round {message.round}, waiting for {int(cursor.round)}")
    number[row] = len(message.records)
    for place, record in enumerate(message.records):
      tokens[row, place] = record.token
      put_law(law, (row, place), record)
  true = jnp.ones((rows,), bool)
  law = SparseLaw(*map(jnp.asarray, law))
  return Draft(jnp.asarray(tokens), law, jnp.asarray(number), jnp.zeros((rows,), jnp.int32), true)


def put_law(law: SparseLaw, at: tuple, record: Record) -> None:
  """Writes a record into host arrays, in place; what does not fit has no weight (checked)."""
  pairs = list(zip(record.ids, record.counts))
  if len(pairs) > law.ids.shape[-1]:
    pairs = [pair for pair in pairs if pair[1] > 0]
  size = len(pairs)
  law.ids[at][:size], law.counts[at][:size] = zip(*pairs)
  law.size[at], law.total[at] = size, record.total


def frames_of_reply(verdict: Verdict, cursor: Cursor, limits: Limits, *, first: bool = False) -> Frames:
  """Replies to all rows that ``cursor`` (before the verdict) says are alive; all rows for the ``first`` token."""
  accepted, token, live = map(np.asarray, (verdict.num_accepted, verdict.next_token, cursor.live))
  row_frame = lambda row: write_reply(int(cursor.round), int(accepted[row]), int(token[row]), limits, first=first)
  return [row_frame(row) if first or live[row] else None for row in range(len(live))]


def replies_of_frames(
  frames: Frames, round_: int, num_drafted: Sequence[int], limits: Limits, *, expected: int = REPLY
) -> list[Reply | None]:
  """Decoded replies of the kind that is waited for.

  Raises:
    MessageError: if one is not valid.
  """
  read = lambda data, number: read_reply(data, limits, round_=round_, num_drafted=int(number), expected=expected)
  return [None if data is None else read(data, number) for data, number in zip(frames, num_drafted)]


def arrived(data: bytes | None) -> bytes:
  """What a channel handed over.

  Raises:
    MessageError: if that is nothing.
  """
  require(data is not None, "length", "no message arrived")
  return data


def verdict_of(replies: Sequence[Reply | None]) -> Verdict:
  """The verdict that replies describe; rows without one stand still."""
  accepted = [0 if reply is None else reply.num_accepted for reply in replies]
  tokens = [0 if reply is None or reply.next_token is None else reply.next_token for reply in replies]
  return Verdict(jnp.asarray(accepted, jnp.int32), jnp.asarray(tokens, jnp.int32))


def frame_of_law(draft: Draft, row: int, place: int, round_: int, limits: Limits) -> tuple[bytes, int]:
  """The law of one place of a draft, as the answer to a request."""
  law = SparseLaw(*map(np.asarray, draft.proposal))
  return write_law(round_, place, record_of(law, row, place, None), limits)
