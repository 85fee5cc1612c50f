"""What a table of images draws, and who says how good the images are: a scorer, which is a value of the table."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.rows import Row
from jaxspec.core.state import DecodeResult


class Judge(Protocol):
  """Says what the images of a table are like; it remembers the images of every row that it was asked about."""

  def figures(self, row: Row, result: DecodeResult) -> dict[str, Any]:
    """``metrics`` of a row, ``per_image`` figures in the order of the prompts, and whatever else its tables print; JSON."""
    ...

  def compare(self, rows: list[dict[str, Any]], subject: str) -> None:
    """Adds ``subject_minus_row`` to the JSON of rows: differences that summaries and single images do not give."""
    ...

  def hits(self, result: DecodeResult) -> np.ndarray | None:
    """Whether each of the first images is right, ``[P]`` bool; None from a judge who sees no right and wrong."""
    ...

  def about(self) -> dict[str, Any]:
    """What the document says of prompts and references; JSON."""
    ...


class Scorer(Protocol):
  """Prompts and their judge; a frozen dataclass, whose fields ``--set scorer.NAME=VALUE`` changes.

  Attributes:
    kind: of the documents, a name of `experiments.engine.tables.KINDS`.
    seconds_an_image: what judging takes, about.
  """

  kind: ClassVar[str]
  seconds_an_image: ClassVar[float]

  def texts(self) -> list[str]:
    """The prompts: the same for all rows and all tables of this size."""
    ...

  def judge(self, bench: Bench) -> Judge:
    """The judge of images of these prompts."""
    ...
