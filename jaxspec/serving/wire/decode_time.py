"""The time to decode the largest frame of an edge on this machine: decoding blocks the engine's thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from jaxspec.codecs.bit_costs import HALF_UNIT
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.types import Cursor, Draft
from jaxspec.serving.wire.arrays import distributions_of_records, host_array
from jaxspec.serving.wire.distribution_bits import Limits, Record
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.round_codec import RoundCodec

_REPEATS = 4


def decode_seconds(codec: RoundCodec, max_len: int) -> float:
  """Seconds to decode the largest frame of a codec, the minimum of a few runs.

  Args:
    max_len: tokens of a row.
  """
  if max_len < 2:
    return 0.0  # a row of one token has no rounds
  draft, edge = largest_draft(codec, max_len)
  frame, _ = codec.encode_draft(draft, edge, max_len)
  agreement = Agreement(max_len)
  seconds = _fastest(lambda: codec.decode_draft(frame, _cursor(1), agreement))
  if codec.may_request and int(draft.num_drafted[0]):
    sent = codec.decode_draft(frame, _cursor(1), agreement).draft
    requested, _ = codec.encode_distribution(draft, 0, 0)
    seconds = max(seconds, _fastest(lambda: codec.decode_distribution(requested, sent, 0, 0)))
  return seconds


def largest_draft(codec: RoundCodec, max_len: int) -> tuple[Draft, Cursor]:
  """A draft whose frame takes the longest time to decode, and the edge's cursor; leaves ``[1, ...]`` on the host.

  All positions of the row but the last one are pending tokens or drafts.
  """
  limits, generator = codec.limits, np.random.default_rng(0)
  number = max(0, min(limits.max_drafts, max_len - 2))
  records = [largest_record(generator, limits) for _ in range(number)]
  tokens = np.zeros((1, limits.max_drafts), np.int32)
  tokens[0, :number] = [record.need_token() for record in records]
  proposal = ()
  if codec.max_sent:
    size = max((len(record.ids) for record in records), default=1)
    proposal = distributions_of_records(records, limits.max_drafts, size)
  features = np.ones((1, max_len, codec.feature_width), np.float32) if codec.feature_width else ()
  payload = PendingTokens(host_array(np.zeros((1, max_len), np.int32)), host_array(np.zeros(1, np.int32)), features)
  draft = Draft.chain(host_array(tokens), proposal, number, 0, payload=payload)
  return draft, _cursor(max(1, max_len - 1 - number))


def _cursor(length: int) -> Cursor:
  """The cursor of round 0 of a row of ``length`` tokens 0."""
  zero, lengths, live = np.zeros(1, np.int32), np.full(1, length, np.int32), np.ones(1, bool)
  return Cursor(host_array(zero), host_array(lengths), host_array(live), host_array(np.int32(0)))


def _fastest(call: Callable[[], object]) -> float:
  times = []
  for _ in range(_REPEATS):
    began = time.perf_counter()
    call()
    times.append(time.perf_counter() - began)
  return min(times)


def largest_record(generator: np.random.Generator, limits: Limits) -> Record:
  """A distribution of the largest support, and a token of positive count."""
  size = min(limits.max_support, limits.vocab)
  if limits.coding in ("trimmed", "dense", "lazy"):  # these send tokens of positive count only
    size = min(size, limits.ell)
  ids = np.sort(generator.choice(limits.vocab, size, replace=False)).tolist()
  if limits.coding == "half":
    unit = HALF_UNIT >> 16
    return Record(tuple(ids), (unit,) * size, unit * size, ids[0])
  counts = [int(position < limits.ell) for position in range(size)]
  counts[0] += limits.ell - sum(counts)
  return Record(tuple(ids), tuple(counts), limits.ell, ids[0])
