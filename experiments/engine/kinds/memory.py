"""Tables of peak memory."""

from __future__ import annotations

from experiments.engine.cells import Column, Document, Kind, RowDocument

CLOSE = 0.1  # tolerance of the formula, as a share of the measured peak


def memory_rows(document: Document) -> list[RowDocument]:
  return [*document["rows"], *document["extrapolated"]]


def megabytes(*path: str) -> Column:
  def cell(row: RowDocument, document: Document) -> str:
    value = row
    for name in path[1:]:
      value = value.get(name, {})
    return f"{value / 1e6:,.0f}" if value != {} else ""

  return Column(path[0], cell)


def over_largest(row: RowDocument, document: Document) -> str:
  if "conversion" not in row:
    return ""
  found = row["conversion"]
  return f"{(found['peak'] - found['before']) / row['largest']:.2f}"


def formula(row: RowDocument, document: Document) -> float:
  """Bytes of a process with the program and without weights, of its arguments, and of its temporary arrays."""
  return sum(row["compiled"].values())


def error_of(row: RowDocument, document: Document) -> float | None:
  """Error of the formula, as a share of the measured peak."""
  if "decode" not in row:
    return None
  return formula(row, document) / peak_of(row) - 1


def peak_of(row: RowDocument) -> float:
  return max(row["decode"]["loading"], row["decode"]["decoding"])


def memory_columns(document: Document) -> list[Column]:
  def error(row: RowDocument, document: Document) -> str:
    found = error_of(row, document)
    return "" if found is None else f"{100 * found:+.0f} %"

  return [
    Column("size", lambda row, document: row["label"]),
    megabytes("largest tensor MB", "largest"),
    megabytes("output MB", "output"),
    Column("conversion over the largest tensor", over_largest),
    Column("decode MB", lambda row, document: f"{peak_of(row) / 1e6:,.0f}" if "decode" in row else ""),
    megabytes("process MB", "compiled", "process"),
    megabytes("weights MB", "compiled", "arguments"),
    megabytes("temporary MB", "compiled", "temporary"),
    Column("formula MB", lambda row, document: f"{formula(row, document) / 1e6:,.0f}"),
    Column("formula against measurement", error),
  ]


def memory_intro(document: Document) -> str:
  return (
    f"random weights, {document['dtype']}, one row of {document['tokens']} tokens with guidance. Anonymous memory of a "
    "process: of the conversion what it takes over what it had before, in units of the largest tensor (float32); of loading "
    f"and decoding the peak. Formula: a process with the compiled program and without weights, the weights, and the "
    "temporary arrays of the program. Sizes without a measured peak are extrapolated."
  )


def memory_below(document: Document) -> list[str]:
  worst = max(abs(error_of(row, document)) for row in document["rows"])
  verdict = "holds" if worst <= CLOSE else "**does not hold**"
  return [f"The formula {verdict} within {100 * CLOSE:.0f} % for the measured sizes."]


KINDS: dict[str, Kind] = {"memory": Kind(memory_columns, memory_intro, memory_below, memory_rows)}
