"""Fuzzes every reader of the link with hostile bytes.

Two minutes of one core; no JAX program runs.

Kinds of attack: a valid message with edited, truncated, repeated or appended bytes, with or without a corrected checksum;
any payload with a correct header and checksum; noise. Every input must give a message that is written back to the same
bytes, or a `MessageError`; anything else ends the run. Reported: inputs, rejections by reason, the slowest input, and the
peak memory of a sample of the inputs.
"""

from __future__ import annotations

import collections
import dataclasses
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from jaxspec.codecs.bit_costs import CODINGS
from jaxspec.serving.wire import framing as message
from jaxspec.serving.wire.distribution_bits import Limits, Record

ROUND, POSITION, DRAFTED = 7, 1, 3
SHAPES = ((8, 5, 4, False), (300, 100, 40, True), (50257, 100, 64, True), (2048, 100, 32, False))
KINDS = tuple(range(10)) + (message.REPLY, message.FIRST, message.REQUEST, message.DISTRIBUTION, 255)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FuzzLink(Experiment):
  """``number`` inputs to every reader."""

  number: int = 120_000
  seed: int = 0
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`.

    Raises:
      ValueError: with the bytes, if the result is neither a message nor a `MessageError`.
    """
    generator = np.random.default_rng(self.seed)
    agreed = make_limits()
    valid = [valid_messages(limits, generator) for limits in agreed]
    read_by = [readers(limits) for limits in agreed]
    accepted: collections.Counter[str] = collections.Counter()
    reasons = {name: collections.Counter() for name in read_by[0]}
    slowest, memory = (0.0, ""), (0, "")
    for index in range(self.number):
      which = int(generator.integers(len(agreed)))
      data, is_sampled = attack(valid[which], generator), index % 50 == 0
      for name, read in read_by[which].items():
        about = f"{agreed[which].coding}, V = {agreed[which].vocab}, {name}"
        if is_sampled:
          tracemalloc.start()
        started = time.perf_counter()
        try:
          again = read(data)
        except message.MessageError as error:
          reasons[name][error.reason] += 1
        except Exception as error:  # a bug
          raise ValueError(f"Must have a message or a MessageError of {about}: {data.hex()} gave {error!r}") from error
        else:
          accepted[name] += 1
          if again is not None and again != data:
            raise ValueError(f"Must have the same bytes when {about} writes what it read: {data.hex()}")
        seconds = time.perf_counter() - started
        if is_sampled:
          peak = tracemalloc.get_traced_memory()[1]
          tracemalloc.stop()
          memory = max(memory, (peak, f"{about}, valid messages up to {message.max_message_bytes(agreed[which])} bytes"))
        else:
          slowest = max(slowest, (seconds, about))
    words = lambda counts: ", ".join(f"{reason} {number:,}" for reason, number in counts.most_common())
    return {
      "head": ["reader", "accepted", "rejected, by reason"],
      "intro": f"{self.number:,} inputs, {self.number * len(reasons):,} reads, none of which ended in anything else.",
      "below": f"Slowest read {slowest[0] * 1e3:.1f} ms ({slowest[1]}); most memory of a fiftieth of the inputs "
      f"{memory[0]:,} bytes ({memory[1]}).",
      "rows": [{"cells": [name, f"{accepted[name]:,}", words(counts)]} for name, counts in reasons.items()],
    }


def make_limits() -> list[Limits]:
  """Possible agreements of the two ends: every coding at several sizes."""
  found = []
  for coding in CODINGS:
    for vocab, ell, support, sends_size in SHAPES:
      if coding != "dense":
        found.append(Limits(vocab, ell, coding, support, 4, sends_size))
      elif vocab < 10_000:
        found.append(Limits(vocab, ell, coding, vocab, 4, sends_size))
  return found


def random_record(limits: Limits, generator: np.random.Generator) -> Record:
  """A distribution within the limits and one of its tokens."""
  size = int(generator.integers(1, min(limits.max_support, 64) + 1))
  ids = np.sort(generator.choice(limits.vocab, size, replace=False)).tolist()
  if limits.coding == "half":
    weights = generator.dirichlet(np.ones(size)).astype(np.float16).astype(np.float64)
    counts = (weights * 2**24).astype(np.int64).tolist()
  else:
    counts = generator.multinomial(limits.ell, generator.dirichlet(np.ones(size))).tolist()
  return Record(tuple(ids), tuple(counts), sum(counts), ids[int(np.argmax(counts))])


def valid_messages(limits: Limits, generator: np.random.Generator) -> list[bytes]:
  """Messages of every kind that these limits allow."""
  records = [random_record(limits, generator) for _ in range(limits.max_drafts)]
  drafts = [message.write_drafts(ROUND, records[:number], limits)[0] for number in range(limits.max_drafts + 1)]
  reply = lambda token, kind: message.write_reply(ROUND, 2, token, limits, kind=kind)
  replies = [reply(3, message.REPLY), reply(None, message.REQUEST), reply(3, message.FIRST)]
  return [*drafts, *replies, message.write_distribution(ROUND, POSITION, records[0], limits)[0]]


def attack(valid: list[bytes], generator: np.random.Generator) -> bytes:
  """One hostile input."""
  kind = generator.random()
  if kind < 0.1:
    return generator.bytes(int(generator.integers(0, 60)))
  if kind < 0.35:
    payload = generator.bytes(int(generator.integers(0, 120)))
    header = (int(generator.choice(KINDS)), ROUND, int(generator.choice((5, 100))), int(generator.integers(0, 6)))
    return message.frame(*header, payload)
  body = bytearray(valid[generator.integers(len(valid))][:-4])
  for _ in range(int(generator.integers(0, 5))):
    position = int(generator.integers(len(body)))
    if generator.random() < 0.5:
      body[position] ^= 1 << int(generator.integers(8))
    else:
      body[position] = int(generator.integers(256))
  change = generator.random()
  if change < 0.15:
    del body[int(generator.integers(len(body))) :]
  elif change < 0.3:
    body += generator.bytes(int(generator.integers(1, 30)))
  elif change < 0.35:
    body *= 2
  checksum = zlib.crc32(body) if generator.random() < 0.85 else int(generator.integers(2**32))
  return bytes(body) + checksum.to_bytes(4)


def readers(limits: Limits) -> dict[str, Callable[[bytes], bytes | None]]:
  """Each reader with the matching writer (None without a comparison)."""

  def drafts(data: bytes) -> bytes | None:
    got = message.read_drafts(data, limits)
    # A lazy record is not a whole distribution, so the check of own records does not apply.
    return None if limits.coding == "lazy" else message.write_drafts(got.round, got.records, limits)[0]

  def distribution(data: bytes) -> bytes:
    return message.write_distribution(*message.read_distribution(data, limits), limits)[0]

  def reply(data: bytes, expected: int = message.REPLY) -> bytes:
    got = message.read_reply(data, limits, round_=ROUND, num_drafted=DRAFTED, expected=expected)
    return message.write_reply(got.round, got.num_accepted, got.next_token, limits, kind=expected)

  return {
    "drafts": drafts, "distribution": distribution, "reply": reply, "first": lambda data: reply(data, message.FIRST),
    "request": lambda data: reply(data, message.REQUEST),
  }  # fmt: skip
