"""Tables of imposed acceptance: speed-ups on networks with random weights, and their prediction of real ones."""

from __future__ import annotations

from experiments.engine.cells import Column, Document, Kind, RowDocument, number


def span(row: RowDocument, name: str) -> str:
  """``median [lowest, highest]`` of a timing; empty for None."""
  found = row[name]
  return "" if found is None else f"{found['median']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def share(name: str):
  """Of a floor; empty where lengths are chosen, so that a round has no time."""

  def cell(row: RowDocument, document: Document) -> str:
    return "" if row["round_ms"] is None else f"{100 * row[f'{name}_floor_ms'] / row['round_ms']:.0f} %"

  return cell


def break_even(row: RowDocument, document: Document) -> str:
  if row["acceptance"] is None or row["round_ms"] is None:
    return ""
  return "none" if row["break_even"] is None else f"{row['break_even']:.2f}"


def gains_columns(document: Document) -> list[Column]:
  return [
    Column("method", lambda row, document: row["label"]),
    Column("batch", lambda row, document: str(row["batch"])),
    Column("acceptance", lambda row, document: "" if row["acceptance"] is None else f"{row['acceptance']:g}"),
    Column("over plain", lambda row, document: span(row, "over_plain")),
    Column("over lock-step", lambda row, document: span(row, "over_lock_step")),
    number("tokens per call", "tokens_per_call"),
    number("accepted", "accepted_of_tested", digits=3),
    number("round ms", "round_ms", digits=1),
    number("reads MB", "read_bytes", digits=0, scale=1e-6, comma=True),
    Column("of the memory floor", share("memory")),
    Column("of the arithmetic floor", share("arithmetic")),
    Column("break-even", break_even),
    Column("loop efficiency", lambda row, document: span(row, "loop_efficiency")),
  ]


def gains_intro(document: Document) -> str:
  return (
    f"{document['model']}, {document['parameters'] / 1e6:,.0f} M parameters, random weights, {document['dtype']}, "
    f"{document['num_tokens']} tokens; reads {document['bytes_per_s'] / 1e9:.1f} GB/s, computes "
    f"{document['operations_per_s'] / 1e9:,.0f} GFLOP/s. **Acceptance is imposed**: gains at that acceptance, not that it "
    f"is reached. Medians [lowest, highest] of {document['repeats']} turns."
  )


def gains_below(document: Document) -> list[str]:
  plain = [
    f"batch {batch} {cell['tokens_per_s']:.1f} tokens/s ({100 * cell['memory_floor_ms'] / cell['step_ms']:.0f} % of the "
    f"memory floor, {100 * cell['arithmetic_floor_ms'] / cell['step_ms']:.0f} % of the arithmetic floor)"
    for batch, cell in document["plain"].items()
  ]
  lock_step = "Over lock-step: rows that advance by themselves over rows that wait for the one that accepts fewest. "
  has_lock_step = any(row["over_lock_step"] is not None for row in document["rows"])
  schedule = "Rows without an acceptance draft nothing: their schedule decides the passes. "
  schedule *= any(row["acceptance"] is None for row in document["rows"])
  return [
    f"Plain decoding: {'; '.join(plain)}.",
    f"{schedule}{lock_step * has_lock_step}Break-even: the acceptance at which a bare round is worth its plain steps. Two "
    "ratios whose brackets overlap do not differ significantly.",
  ]


def agree(row: RowDocument, document: Document) -> str:
  one, other = row["measured"], row["predicted"]
  return "yes" if one["low"] <= other["high"] and other["low"] <= one["high"] else "**no**"


def over_measured(name: str):
  """Median of a predicted speed over the median of the measured one; empty in tables without it."""
  return lambda row, document: f"{row[name]['median'] / row['measured']['median']:.2f}" if name in row else ""


def recorded_columns(document: Document) -> list[Column]:
  return [
    Column("method", lambda row, document: row["label"]),
    Column("batch", lambda row, document: str(row["batch"])),
    number("recorded acceptance", "acceptance", digits=3),
    Column("recorded calls per token", lambda row, document: f"{row['calls']:.3f}" if row.get("calls") else ""),
    Column("measured over plain", lambda row, document: span(row, "measured")),
    Column("predicted over plain", lambda row, document: span(row, "predicted")),
    Column("brackets overlap", agree),
    Column("predicted / measured", over_measured("predicted")),
    Column("by the means over plain", lambda row, document: span(row, "by_means") if "by_means" in row else ""),
    Column("by the means / measured", over_measured("by_means")),
    number("target calls, measured", "measured", "target_calls", digits=1),
    number("target calls, predicted", "predicted", "target_calls", digits=1),
  ]


def recorded_intro(document: Document) -> str:
  return (
    f"{document['source']}, {document['num_tokens']} tokens. Measured: the shipped networks. Predicted: networks of the "
    "same shapes with random weights, whose rounds accept as many drafts as rounds of other images by the shipped networks "
    "did. By the means: with one acceptance and one share of calls, the means of that. All take turns in one process; "
    f"medians [lowest, highest] of {document['turns']} turns."
  )


KINDS: dict[str, Kind] = {
  "gains": Kind(gains_columns, gains_intro, gains_below),
  "recorded": Kind(recorded_columns, recorded_intro, lambda document: ["The prediction holds where the brackets overlap."]),
}
