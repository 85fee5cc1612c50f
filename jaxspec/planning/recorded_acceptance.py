"""How many drafts were accepted in every round of real decodes, to be imposed on other networks.

    jaxspec generate --method sjd --samples 8 --save-acceptance sjd.json
    jaxspec bench-model --model llamagen-l --method sjd --window 7 --acceptance sjd.json

A file is JSON: what was decoded (``source``), the method with the most drafts that a round of it can accept, and a list of
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
_LARGEST = 1 << 20  # rounds in a file, and drafts of a round


@dataclasses.dataclass(frozen=True)
class RecordedAcceptance:
  """Accepted drafts by row and round.

  Attributes:
    method: name of the method.
    drafts: the most drafts of a round that can be accepted.
    lengths: of every row, the accepted drafts of each of its rounds; the last round of a row may be cut by its end.
    source: what was decoded, for people; JSON.
  """

  method: str
  drafts: int
  lengths: tuple[tuple[int, ...], ...]
  source: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @classmethod
  def of(cls, decoder: Decoder, outcome: DecodeResult, source: Mapping[str, Any] | None = None) -> RecordedAcceptance:
    """What a decode accepted.

    Args:
      decoder: that decoded.
      outcome: leaves ``[B, ...]``.
    Raises:
      ValueError: for a method without drafts of ids, or whose drafts are not all judged by the target.
    """
    method = decoder.method
    check_recordable(decoder)
    by_round, rounds = np.asarray(accepted_by_round(outcome)), np.asarray(outcome.counters.rounds)
    lengths = tuple(tuple((row[1 : last + 1] - 1).tolist()) for row, last in zip(by_round, rounds))
    # A row may end with its prefill: it has no rounds to impose.
    return cls(method.name, method.longest_path(), tuple(row for row in lengths if row), source or {})

  @property
  def acceptance(self) -> float:
    """The acceptance that brings as many tokens in a round, if every draft has the same."""
    return acceptance_for(1 + float(np.mean([length for row in self.lengths for length in row])), self.drafts)

  @property
  def imposed(self) -> Imposed:
    """To be given to a decoder."""
    return Imposed(lengths=self.lengths)

  def check_fits(self, method: Method) -> None:
    """Raises a ValueError if this says nothing about a method, or nothing about drafts as long as its own."""
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
    """A file.

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
  """Raises a ValueError for a decoder that has no acceptance to record."""
  method = decoder.method
  if not method.fits(DISCRETE) or decoder.draws_continuous or not method.longest_path():
    raise ValueError(f"Must record acceptance of a method that drafts {DISCRETE} tokens, we instead got {method.name}")
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
