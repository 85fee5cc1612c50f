"""Prints what writing and reading one drafted token costs on the host, and how many bits it takes.

Command::

    python -m experiments.bench_codec

Laws are Zipf-like (exponent 1.1, log-normal jitter) on a vocabulary of 50,257 tokens, kept to the K most probable and
quantized to denominator 100. Expected on one modern core: for ``paper``, tens of microseconds at K = 8, half a millisecond
at K = 64 and ten at K = 256; ``rice`` and ``trimmed`` stay near one.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax.numpy as jnp
import numpy as np

from jaxspec.codecs.codec import topk_lattice
from jaxspec.codecs.sparsify import top_support
from jaxspec.link.bitstream import BitReader, BitWriter
from jaxspec.link.records import Limits, Record, put_record, take_record

VOCAB, ELL = 50257, 100


def make_records(size: int, number: int, coding: str) -> tuple[Limits, list[Record]]:
  """Limits of top-K supports of ``size`` tokens, and ``number`` random drafted tokens."""
  generator = np.random.default_rng(size)
  codec = topk_lattice(VOCAB, size, ell=ELL, coding=coding)
  weights = (1 + np.arange(VOCAB)) ** -1.1 * np.exp(generator.normal(size=(number, VOCAB)))
  weights = generator.permuted(weights, axis=1)
  q = jnp.asarray(weights / weights.sum(1, keepdims=True), jnp.float32)
  law = codec.law(top_support(q, jnp.full((number,), size), max_support=size))
  ids, counts = np.asarray(law.ids).tolist(), np.asarray(law.counts).tolist()
  tokens = [row[int(np.argmax(count))] for row, count in zip(ids, counts)]
  totals = np.asarray(law.total).tolist()
  return Limits.of(codec, 1), [Record(tuple(i), tuple(c), t, x) for i, c, t, x in zip(ids, counts, totals, tokens)]


def measure(limits: Limits, records: list[Record]) -> tuple[float, float, float]:
  """Median microseconds to write and to read one token, and mean bits."""
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
  return statistics.median(write_us), statistics.median(read_us), statistics.mean(bits)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--tokens", type=int, default=60, help="drafted tokens per cell")
  number = parser.parse_args().tokens
  print(f"V = {VOCAB}, ell = {ELL}, top-K supports, {number} tokens per cell, one core")
  print("| coding | K | bits per token | write, us | read, us |")
  print("|---|---|---|---|---|")
  for coding in ("paper", "rice", "trimmed", "lazy", "half"):
    for size in (8, 64, 256):
      write_us, read_us, bits = measure(*make_records(size, number, coding))
      print(f"| {coding} | {size} | {bits:.1f} | {write_us:.0f} | {read_us:.0f} |")


if __name__ == "__main__":
  main()
