"""Checks before compilation that a batch can fit into memory."""

from __future__ import annotations

from jaxspec.core.footprint import available_bytes
from jaxspec.run.job import Job


def check_memory(job: Job, rows: int) -> None:
  """Compares the memory of a decode (`Decoder.decode_bytes`) with the free memory.

  Args:
    rows: rows of a batch.
  Raises:
    ValueError: with the largest batch that should fit.
  """
  available = available_bytes()
  need = job.decoder.decode_bytes(rows, job.condition, max_len=job.max_len)
  if available is None or need <= available:
    return
  fits = int(rows * available / need)
  advice = f"use a batch of {fits} or smaller" if fits else "use a smaller model, fewer drafts in a round or dtype bfloat16"
  things, free = f"{job.noun}{'s' * (rows != 1)}", max(available, 0)
  sizes = f"about {need / 2**30:.1f} GiB but {free / 2**30:.1f} GiB are free"
  raise ValueError(f"A batch of {rows} {things} needs {sizes}: {advice}")
