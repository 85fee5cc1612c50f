"""Numbers of accepted drafts in every exchange of real decodes, to be imposed on other networks.

    jaxspec generate --method sjd --samples 8 --save-acceptance sjd.json
    jaxspec bench-model --model llamagen-l --method sjd --window 7 --acceptance sjd.json
    jaxspec generate --method ciar --samples 8 --save-acceptance ciar.json
    jaxspec bench-model --model llamagen-l --method ciar --calls ciar.json

A file is JSON: the decode (``source``), the method with the largest number of drafts that a round can accept, and a list of
numbers for each row. If the edge accepts tokens locally, it also has the positions at which each row called the cloud.
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
from jaxspec.core.state import DecodeResult, Origin
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
    lengths: accepted drafts of each exchange, by row; the end of a row may truncate its last one.
    source: description of the decode for readers; JSON.
    called_at: positions at which the cloud was called, by row; those of a ``target_prefix`` too. Empty if every round calls.
    tokens: tokens of each row of ``called_at``.
  """

  method: str
  drafts: int
  lengths: tuple[tuple[int, ...], ...]
  source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  called_at: tuple[tuple[int, ...], ...] = ()
  tokens: tuple[int, ...] = ()

  @classmethod
  def of(cls, decoder: Decoder, outcome: DecodeResult, source: Mapping[str, Any] | None = None) -> RecordedAcceptance:
    """Records a decode.

    Args:
      decoder: decoder of the outcome.
      outcome: leaves ``[B, ...]``.
    Raises:
      ValueError: for a method without discrete drafts, or without a row that had drafts judged.
    """
    check_recordable(decoder)
    method, parts = decoder.method, decoder.parts
    origin, rounds = np.asarray(outcome.origin), np.asarray(outcome.commit_round)
    rows = [_exchanges(*row, parts.target_prefix) for row in zip(origin, rounds)]
    # A row may end with its prefill, or without an exchange: nothing of it can be imposed.
    rows = [row for row in rows if row[1]]
    if not rows:
      raise ValueError("Must have a row whose drafts the target judged to record their acceptance, we instead got none")
    called_at, lengths, tokens = zip(*rows)
    local = parts.drafter is not None and parts.drafter.may_accept_locally
    return cls(
      method.name, method.longest_path(), lengths, source or {}, called_at if local else (), tokens if local else ()
    )

  @property
  def acceptance(self) -> float:
    """The constant acceptance of every draft with the same mean number of tokens per round."""
    return acceptance_for(1 + float(np.mean([length for row in self.lengths for length in row])), self.drafts)

  @property
  def calls(self) -> float | None:
    """Calls of the cloud per token; None if every round calls."""
    return sum(map(len, self.called_at)) / sum(self.tokens) if self.called_at else None

  @property
  def imposed(self) -> Imposed:
    """All that was recorded, as the argument ``imposed`` of a decoder."""
    return Imposed(lengths=self.lengths, called_at=self.called_at, tokens=self.tokens)

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
    head |= {"tokens": self.tokens} if self.called_at else {}
    tables = {"lengths": self.lengths} | ({"called_at": self.called_at} if self.called_at else {})
    lines = lambda table: ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in table)
    every = ",\n".join(f' "{name}": [\n{lines(table)}\n ]' for name, table in tables.items())
    return f"{json.dumps(head, indent=1)[:-2]},\n{every}\n}}\n"

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
    called_at, tokens = document.get("called_at", []), document.get("tokens", [])
    if (called_at != [] or tokens != []) and not _are_positions(called_at, tokens, len(lengths)):
      raise ValueError(f"Must have the tokens of each row in {path}, and ascending positions of its calls below them")
    source, of = document.get("source"), lambda rows: tuple(tuple(row) for row in rows)
    return cls(method, drafts, of(lengths), source if isinstance(source, dict) else {}, of(called_at), tuple(tokens))


def check_recordable(decoder: Decoder) -> None:
  """Raises a ValueError for a decoder whose acceptance cannot be recorded."""
  method = decoder.method
  is_chain = method.fits(DISCRETE) and not decoder.draws_continuous and method.longest_path()
  if not is_chain or decoder.parts.decode is not None:
    raise ValueError(f"Must have drafts of discrete tokens to record their acceptance, we instead got {method.name}")


def _exchanges(origin: np.ndarray, rounds: np.ndarray, prefix: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
  """Positions of the calls of a row, accepted drafts of its exchanges (calls after prefill and prefix), and its tokens.

  Args:
    origin: ``[N]``, and the round that committed each token, ``[N]``.
    prefix: tokens that the target drew alone.
  """
  calls, lengths = [], []
  mine = (origin != Origin.EMPTY) & (origin != Origin.LOCAL)
  for number in np.unique(rounds[mine]).tolist():
    (positions,) = np.nonzero(mine & (rounds == number))
    calls.append(int(positions[0]))
    if number and positions[0] >= prefix:  # a round without a bonus token may have no other than accepted drafts
      lengths.append(int(np.count_nonzero(origin[positions] == Origin.DRAFT)))
  return tuple(calls), tuple(lengths), int(np.count_nonzero(origin != Origin.EMPTY))


def _are_lengths(found: Any, drafts: int) -> bool:
  rows = isinstance(found, list) and found and all(isinstance(row, list) and row for row in found)
  if not rows or sum(map(len, found)) > _LARGEST:
    return False
  return all(_is_number(length, drafts) for row in found for length in row)


def _are_positions(called_at: Any, tokens: Any, rows: int) -> bool:
  if not all(isinstance(one, list) and len(one) == rows for one in (called_at, tokens)):
    return False
  if not all(_is_number(size, _LARGEST) and isinstance(row, list) for size, row in zip(tokens, called_at)):
    return False
  fits = all(_is_number(position, size - 1) for size, row in zip(tokens, called_at) for position in row)
  return fits and all(row and row == sorted({*row}) for row in called_at)


def _is_number(value: Any, most: int) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
