"""Numbers of accepted drafts in every round of real decodes, to be imposed on other networks.

    jaxspec generate --method sjd --samples 8 --save-acceptance sjd.json
    jaxspec bench-model --model llamagen-l --method sjd --window 7 --acceptance sjd.json

A file is JSON: the decode (``source``), the method with the largest number of drafts that a round can accept, and a list of
numbers for each row.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxspec.core.expected_tokens import acceptance_for
from jaxspec.core.loop import accepted_by_round
from jaxspec.core.state import DecodeResult
from jaxspec.methods.method import DISCRETE, Method
from jaxspec.run.decoder import Decoder
from jaxspec.verifiers.imposed import Imposed

FORMAT, VERSION = "jaxspec acceptance", 1
_LARGEST = 1 << 20  # limits of a file: rounds, and drafts of a round


@dataclasses.dataclass(frozen=True)
class RecordedAcceptance:
  """Accepted drafts by row and round.

  Attributes:
    method: name of the method.
    drafts: largest number of drafts that a round can accept.
    lengths: accepted drafts of each round, by row; the end of a row may truncate its last round.
    source: description of the decode for readers; JSON.
  """

  method: str
  drafts: int
  lengths: tuple[tuple[int, ...], ...]
  source: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @classmethod
  def of(cls, decoder: Decoder, outcome: DecodeResult, source: Mapping[str, Any] | None = None) -> RecordedAcceptance:
    """Records a decode.

    Args:
      decoder: decoder of the outcome.
      outcome: leaves ``[B, ...]``.
    Raises:
      ValueError: for a method without discrete drafts, or with drafts that the target does not judge.
    """
    method = decoder.method
    check_recordable(decoder)
    by_round, rounds = np.asarray(accepted_by_round(outcome)), np.asarray(outcome.counters.rounds)
    lengths = tuple(tuple((row[1 : last + 1] - 1).tolist()) for row, last in zip(by_round, rounds))
    # A row may end with its prefill: it has no rounds.
    return cls(method.name, method.longest_path(), tuple(row for row in lengths if row), source or {})

  @property
  def acceptance(self) -> float:
    """The constant acceptance of every draft with the same mean number of tokens per round."""
    return acceptance_for(1 + float(np.mean([length for row in self.lengths for length in row])), self.drafts)

  @property
  def imposed(self) -> Imposed:
    """The lengths as the argument ``imposed`` of a decoder."""
    return Imposed(lengths=self.lengths)

  def check_fits(self, method: Method) -> None:
    """Raises a ValueError for another method, or for one with longer drafts."""
    if method.name != self.method:
      raise ValueError(f"Must have acceptance of method {method.name}, we instead got that of {self.method}")
    if method.longest_path() > self.drafts:
      raise ValueError(
        f"Must have acceptance of at least {method.longest_path()} drafts in a row, we instead got that of {self.drafts}"
      )

  def as_json(self) -> str:
    """The text of a file."""
    head = {"format": FORMAT, "version": VERSION, "method": self.method, "drafts": self.drafts, "source": dict(self.source)}
    rows = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in self.lengths)
    return f'{json.dumps(head, indent=1)[:-2]},\n "lengths": [\n{rows}\n ]\n}}\n'

  @classmethod
  def read(cls, path: str | os.PathLike) -> RecordedAcceptance:
    """Reads a file.

    Raises:
      ValueError: naming the file and what is wrong with it, in one line.
    """
    try:
      document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
      raise ValueError(f"Cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
      raise ValueError(f"Must have recorded acceptance in {path}, which is no JSON") from error
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
      raise ValueError(f"Must have recorded acceptance in {path} (jaxspec generate --save-acceptance), it is something else")
    method, drafts, lengths = document.get("method"), document.get("drafts"), document.get("lengths", [])
    if not isinstance(method, str) or not _is_number(drafts, _LARGEST) or not drafts or not _are_lengths(lengths, drafts):
      raise ValueError(f"Must have a method, its drafts, and rows of numbers from 0 to these drafts in {path}")
    source = document.get("source")
    return cls(method, drafts, tuple(tuple(row) for row in lengths), source if isinstance(source, dict) else {})


def check_recordable(decoder: Decoder) -> None:
  """Raises a ValueError for a decoder whose acceptance cannot be recorded."""
  method = decoder.method
  if not method.fits(DISCRETE) or decoder.draws_continuous or not method.longest_path():
    raise ValueError(f"Must have drafts of discrete tokens to record their acceptance, we instead got {method.name}")
  drafter = decoder.parts.drafter
  if drafter is not None and drafter.may_accept_locally:
    raise ValueError(f"Must have a method whose drafts are all judged by the target, we instead got {method.name}")


def _are_lengths(found: Any, drafts: int) -> bool:
  rows = isinstance(found, list) and found and all(isinstance(row, list) and row for row in found)
  if not rows or sum(map(len, found)) > _LARGEST:
    return False
  return all(_is_number(length, drafts) for row in found for length in row)


def _is_number(value: Any, most: int) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
