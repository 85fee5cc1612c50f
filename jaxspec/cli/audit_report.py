"""Rows and JSON of ``jaxspec audit``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxspec.cli.summary import words_of
from jaxspec.core.state import DecodeResult
from jaxspec.evaluation.audit import AuditFigures
from jaxspec.methods import Method
from jaxspec.run.document import environment
from jaxspec.run.generation import per_row
from jaxspec.run.json_values import finite, interval_fields
from jaxspec.testing.enumeration import EnumeratedFigures


class Row(NamedTuple):
  """One setting of a method."""

  label: str
  settings: dict[str, Any]
  figures: AuditFigures | EnumeratedFigures
  details: dict[str, Any]  # only in the JSON; empty for a tiny model

  def measured(self) -> AuditFigures:
    """The figures.

    Raises:
      ValueError: for a tiny model.
    """
    if not isinstance(self.figures, AuditFigures):
      raise ValueError("Must have figures of a decode, we instead got those of a tiny model")
    return self.figures

  def enumerated(self) -> EnumeratedFigures:
    """The figures of a tiny model.

    Raises:
      ValueError: for a decode.
    """
    if not isinstance(self.figures, EnumeratedFigures):
      raise ValueError("Must have figures of a tiny model, we instead got those of a decode")
    return self.figures


class Report(NamedTuple):
  """All rows with their common settings.

  Attributes:
    method: method of the first row.
    about: common settings of all rows, in words.
    swept: name of the swept option.
    tiny: whether a tiny model was enumerated.
    noun: kind of result, image or text.
  """

  source: str
  method: Method
  about: list[str]
  swept: str | None
  tiny: bool
  rows: list[Row]
  warnings: list[str]
  noun: str = "image"


def label_of(method: Method, swept: str | None, value: Any = None) -> str:
  """Label of a row: the method, or its value of the swept option."""
  return method.name if swept is None else words_of(swept, value)


def measured_row(
  label: str,
  settings: dict[str, Any],
  outcome: DecodeResult,
  figures: AuditFigures,
  captions: list[str],
  noun: str,
  grid: tuple[int, int] | None = None,
) -> Row:
  """A setting and its result.

  ``details`` are the worst prefix, the figures of every image or text (``noun``), and with a ``grid`` the mean KL and
  total variation of the tokens at each place.
  """
  at, token = figures.worst
  audit, counters = outcome.metrics, per_row(outcome.counters)
  at_worst = {name: float(getattr(audit, name)[at, token]) for name in ("tv", "kl", "alpha", "alpha_sd")}
  worst = at_worst | {noun: at, "prompt": captions[at], "token": token}
  worst["prefix"] = outcome.tokens[at, :token].tolist()
  rows = []
  for index, caption in enumerate(captions):
    judged, tokens = max(int(audit.tested[index].sum()), 1), int(outcome.lengths[index])
    rows.append(
      {
        "prompt": caption,
        "tv": float(audit.tv[index].sum() / tokens),
        "kl": float(audit.kl[index].sum() / tokens),
        "tv_sum": float(audit.tv[index].sum()),
        "alpha": float(audit.alpha[index].sum() / judged),
        "alpha_sd": float(audit.alpha_sd[index].sum() / judged),
        "judged_positions": int(audit.tested[index].sum()),
        "tokens": tokens,
        **{name: int(values[index]) for name, values in counters.items()},
      }
    )
  judged = sum(row["judged_positions"] for row in rows)
  details: dict[str, Any] = {"worst": worst, "judged_positions": judged, f"{noun}s": rows}
  if grid is not None:
    for name in ("kl", "tv"):
      details[f"{name}_map"] = np.mean(np.asarray(getattr(audit, name), np.float64), axis=0).reshape(grid).tolist()
  return Row(label, settings, figures, details)


def document(report: Report) -> dict[str, Any]:
  """Every figure; JSON. Infinite ones, as KL outside the target's support, are null."""
  rows = []
  for row in report.rows:
    figures = {name: interval_fields(value) for name, value in row.figures._asdict().items() if name != "worst"}
    rows.append({"label": row.label, "settings": row.settings} | figures | row.details)
  return finite(
    {
      "source": report.source,
      "by": "enumeration" if report.tiny else "positions of a decode",
      "swept": report.swept,
      "exact": report.method.is_exact,
      "rows": rows,
      "warnings": report.warnings,
      **environment(),
    }
  )
