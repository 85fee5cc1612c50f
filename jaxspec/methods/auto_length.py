"""The draft length ``auto`` of methods that draft chains: chosen before every round (`jaxspec.drafters.auto_length`)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core.options import option
from jaxspec.drafters import length_choice
from jaxspec.drafters.auto_length import AutoLengthDrafter, AutoLengthParams
from jaxspec.drafters.length_choice import LONGEST_TIME, PLAIN
from jaxspec.methods.method import Parts
from jaxspec.verifiers.target import TargetVerifier

AUTO = "auto"
# Passes of 1, 2, 4, 8 inputs: on a CPU the time of a pass steps up after these. A cache has room for the longest draft
# behind every row, which all passes read: with 15 drafts plain rounds of large batches take longer.
WIDTHS = (0, 1, 3, 7)


class Table(NamedTuple):
  """Draft lengths, ascending from 0, and the time of a round of each (``[M]`` int32, a plain round is `PLAIN`)."""

  widths: tuple[int, ...]
  times: np.ndarray


def round_times_option() -> Any:
  """The option with the times of rounds."""
  return option(None, "Times of rounds by draft length for auto, as 0:18,3:26,7:33 in any unit; measured by default.")


def check_auto(name: str, length: int | str, round_times: tuple[str, ...] | None) -> None:
  """Raises a ValueError for times that cannot be read, or that nothing reads; ``name`` is the option of the length."""
  if round_times is None:
    return
  if length != AUTO:
    raise ValueError(f"Must have {name} auto with round_times, we instead got {length}")
  table_of(round_times, ())


def table_of(round_times: tuple[str, ...] | None, widths: tuple[int, ...]) -> Table:
  """The lengths and times of rounds.

  Args:
    round_times: items ``LENGTH:TIME``; None: ``widths``, whose rounds all take the time of a plain round until they are
      measured (`jaxspec.run.round_times`).
  Raises:
    ValueError: in one line, for other items.
  """
  if round_times is None:
    return Table(widths, np.full(len(widths), PLAIN, np.int32))
  try:
    pairs = [(int(width), float(time)) for width, time in (item.split(":") for item in round_times)]
  except ValueError:
    pairs = []
  found, times = tuple(width for width, _ in pairs), [time for _, time in pairs]
  ascends = len(found) > 1 and found[0] == 0 and all(a < b for a, b in zip(found, found[1:]))
  if not ascends or not all(0 < time < math.inf for time in times):
    raise ValueError(
      "Must have round_times as LENGTH:TIME, two or more, lengths ascending from 0 and times above 0, we instead got "
      f"{','.join(round_times)!r}"
    )
  return Table(found, in_plain_rounds(times))


def in_plain_rounds(times: list[float]) -> np.ndarray:
  """Times ``[M]`` int32 in units in which a plain round, the first one, takes `PLAIN`."""
  return np.clip(np.round(PLAIN * np.asarray(times) / times[0]), 1, LONGEST_TIME).astype(np.int32)


def adaptive(parts: Parts, table: Table) -> Parts:
  """The parts of a method that drafts chains of at most ``table.widths[-1]`` tokens, with a chosen length."""
  drafter, verifier = parts.pair()
  assert isinstance(verifier, TargetVerifier)  # has passes of several widths
  verifier = dataclasses.replace(verifier, widths=tuple(width + 1 for width in table.widths[:-1]))
  draft = AutoLengthParams(parts.params.draft, jnp.asarray(table.times), length_choice.unknown())
  params = parts.params._replace(draft=draft)
  return parts._replace(params=params, drafter=AutoLengthDrafter(drafter, table.widths, verifier.bonus), verifier=verifier)
