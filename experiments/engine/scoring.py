"""Scorers: prompts and judge of a table of images."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.rows import Row
from jaxspec.core.state import DecodeResult


class Judge(Protocol):
  """Scores the images of a table; it caches the results of every row."""

  def figures(self, row: Row, result: DecodeResult) -> dict[str, Any]:
    """``metrics`` of a row, ``per_image`` figures in the order of the prompts, and other fields of its tables; JSON."""
    ...

  def compare(self, rows: list[dict[str, Any]], subject: str) -> None:
    """Adds ``subject_minus_row`` to the JSON of rows: differences that do not follow from summaries and single images."""
    ...

  def hits(self, result: DecodeResult) -> np.ndarray | None:
    """Whether each of the first images is correct, ``[P]`` bool; None for a judge without this notion."""
    ...

  def about(self) -> dict[str, Any]:
    """Fields of the document about prompts and references; JSON."""
    ...


class Scorer(Protocol):
  """Prompts and their judge; a frozen dataclass, whose fields ``--set scorer.NAME=VALUE`` changes.

  Attributes:
    kind: of the documents, a name of `experiments.engine.tables.KINDS`.
    seconds_an_image: approximate time of judging.
  """

  kind: ClassVar[str]
  seconds_an_image: ClassVar[float]

  def texts(self) -> list[str]:
    """The prompts: the same for all rows and all tables of this size."""
    ...

  def judge(self, bench: Bench) -> Judge:
    """The judge of images of these prompts."""
    ...
