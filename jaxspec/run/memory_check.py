"""Memory of a batch: a check before compilation, and the error of a device that has too little."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from jaxspec.core.error_lines import one_line
from jaxspec.core.footprint import available_bytes
from jaxspec.errors import LinkError, OutOfMemory
from jaxspec.run.job import Job

EXHAUSTED = "RESOURCE_EXHAUSTED"  # how XLA reports it


@contextlib.contextmanager
def memory_errors() -> Generator[None, None, None]:
  """Raises exhausted memory of a device or of the host as `OutOfMemory`; a server that is full stays a `LinkError`."""
  try:
    yield
  except (OutOfMemory, LinkError):
    raise
  except Exception as error:
    if not isinstance(error, MemoryError) and EXHAUSTED not in str(error):
      raise
    raise OutOfMemory(f"Out of memory, use a smaller batch or dtype bfloat16 ({one_line(error)[:160]})") from error


def check_memory(job: Job, rows: int) -> None:
  """Compares the memory of a decode (`Decoder.decode_bytes`) with the free memory.

  Args:
    rows: rows of a batch.
  Raises:
    OutOfMemory: with the largest batch that should fit.
  """
  available = available_bytes()
  need = job.decoder.decode_bytes(rows, job.condition, max_len=job.max_len)
  if available is None or need <= available:
    return
  fits = int(rows * available / need)
  advice = f"use a batch of {fits} or smaller" if fits else "use a smaller model, fewer drafts in a round or dtype bfloat16"
  things, free = f"{job.noun}{'s' * (rows != 1)}", max(available, 0)
  sizes = f"about {need / 2**30:.1f} GiB but {free / 2**30:.1f} GiB are free"
  raise OutOfMemory(f"A batch of {rows} {things} needs {sizes}: {advice}")
