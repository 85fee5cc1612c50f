"""Time of writing and reading one drafted token on the host, and its bits.

Distributions are Zipf-like (exponent 1.1, log-normal jitter) on a vocabulary of 50,257 tokens, truncated to the K most
probable and quantized to denominator 100. Expected on one modern core: for ``paper``, tens of microseconds at K = 8, half a
millisecond at K = 64 and ten at K = 256; ``rice`` and ``trimmed`` stay near one.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from experiments.engine.experiment import Experiment, Lab
from jaxspec.codecs.codec import topk_lattice
from jaxspec.codecs.sparsify import top_support
from jaxspec.serving.wire.bitstream import BitReader, BitWriter
from jaxspec.serving.wire.distribution_bits import Limits, Record, put_record, take_record

VOCAB, ELL = 50257, 100
CODINGS, SIZES = ("paper", "rice", "trimmed", "lazy", "half"), (8, 64, 256)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codec(Experiment):
  """Microseconds and bits of every coding; ``tokens`` drafted tokens a cell."""

  tokens: int = 60
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    rows = []
    for coding in CODINGS:
      for size in SIZES:
        write_us, read_us, bits = measure(*make_records(size, self.tokens, coding))
        rows.append({"cells": [coding, str(size), f"{statistics.mean(bits):.1f}", spread(write_us), spread(read_us)]})
    return {
      "head": ["coding", "K", "bits per token", "write, us", "read, us"],
      "intro": f"V = {VOCAB}, ell = {ELL}, top-K supports, {self.tokens} tokens a cell, one core, median [lowest, highest].",
      "below": "Two cells whose brackets overlap do not differ significantly.",
      "rows": rows,
    }


def spread(values: list[float]) -> str:
  return f"{statistics.median(values):.0f} [{min(values):.0f}, {max(values):.0f}]"


def make_records(size: int, number: int, coding: str) -> tuple[Limits, list[Record]]:
  """Limits of top-K supports of ``size`` tokens, and ``number`` random drafted tokens."""
  generator = np.random.default_rng(size)
  codec = topk_lattice(VOCAB, size, ell=ELL, coding=coding)
  weights = (1 + np.arange(VOCAB)) ** -1.1 * np.exp(generator.normal(size=(number, VOCAB)))
  weights = generator.permuted(weights, axis=1)
  q = jnp.asarray(weights / weights.sum(1, keepdims=True), jnp.float32)
  distribution = codec.distribution(top_support(q, jnp.full((number,), size), max_support=size))
  ids, counts = np.asarray(distribution.ids).tolist(), np.asarray(distribution.counts).tolist()
  tokens = [row[int(np.argmax(count))] for row, count in zip(ids, counts)]
  totals = np.asarray(distribution.total).tolist()
  return Limits.of(codec, 1), [Record(tuple(i), tuple(c), t, x) for i, c, t, x in zip(ids, counts, totals, tokens)]


def measure(limits: Limits, records: list[Record]) -> tuple[list[float], list[float], list[int]]:
  """Microseconds to write and to read each token, and its bits."""
  write_us, read_us, bits = [], [], []
  for record in records:
    started = time.perf_counter()
    writer = BitWriter()
    put_record(writer, record, limits)
    data = writer.bytes()
    middle = time.perf_counter()
    take_record(BitReader(data), limits)
    ended = time.perf_counter()
    write_us.append((middle - started) * 1e6)
    read_us.append((ended - middle) * 1e6)
    bits.append(writer.length)
  return write_us, read_us, bits
