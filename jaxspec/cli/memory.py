"""Refuses a batch that clearly does not fit, before anything is compiled."""

from __future__ import annotations

from jaxspec.cli.errors import UserError
from jaxspec.decoder import Decoder
from jaxspec.footprint import available_bytes
from jaxspec.types import PyTree


def check_memory(decoder: Decoder, condition: PyTree, *, rows: int, max_len: int, noun: str) -> None:
  """Compares what a decode needs (`Decoder.decode_bytes`) with what is free.

  Args:
    condition: any number of rows.
    rows: those of a batch.
    noun: what a row becomes.
  Raises:
    UserError: with the largest batch that should fit.
  """
  available = available_bytes()
  need = decoder.decode_bytes(rows, condition, max_len=max_len)
  if available is None or need <= available:
    return
  fits = int(rows * available / need)
  smaller = "use a smaller model, fewer drafts in a round or --dtype bfloat16"
  advice = f"use --batch {fits} or smaller" if fits else smaller
  things, free = f"{noun}{'s' * (rows != 1)}", max(available, 0)
  sizes = f"about {need / 2**30:.1f} GiB but {free / 2**30:.1f} GiB are free"
  raise UserError(f"A batch of {rows} {things} needs {sizes}: {advice}")
