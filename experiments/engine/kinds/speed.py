"""Tables about speed: ``*_speed_*``."""

from __future__ import annotations

from experiments.engine import statistics
from experiments.engine.cells import ALPHA, LABEL, SMALLEST, Column, Document, Kind, RowDocument, interval, spread
from jaxspec import statistics as library


def race_columns(document: Document) -> list[Column]:
  of_cloud, several = document["layout"] == "cloud", len({row["batch"] for row in document["rows"]}) > 1
  ratios = {(row["batch"], row["label"]): found for row, found in zip(document["rows"], statistics.time_ratios(document))}
  ratio = lambda row: ratios[row["batch"], row["label"]]
  over = lambda name: lambda row, document: spread(statistics.over(row, document, row.get(name)))
  speed = lambda row, document: spread(statistics.over(row, document, document["base"]))
  ms = lambda row, document: f"{1000 * statistics.median(row['seconds']) / row['batch']:.0f}"
  ms_per_token = lambda row, document: f"{1000 * statistics.median(statistics.clock(row, document)):.2f}"
  columns = [LABEL]
  columns += [Column("batch", lambda row, document: str(row["batch"]))] * several
  columns += [Column("cloud calls, %", calls_in_percent), Column("edge passes", edge_passes)] if of_cloud else [ALPHA]
  if not of_cloud:
    columns += [Column("target calls", race_calls), Column("tokens per call", tokens_per_call)]
    columns += [Column("memory, MB", lambda row, document: f"{row['bytes'] / 1e6:,.0f}" if "bytes" in row else "")]
  return columns + [
    Column("ms per token", ms_per_token) if document.get("ends") else Column("ms per image", ms),
    Column(f"speed over {document['base']}", speed),
    Column("95 % interval", lambda row, document: ratio_interval(ratio(row))),
    Column("p, Holm", lambda row, document: "" if ratio(row) is None else f"{ratio(row)[1]:.2g}"),
    Column(f"over {document.get('against')}, 95 %", against),
    Column("over its best fixed length", lambda row, document: spread(statistics.over_best_fixed(row, document))),
    Column("correct images, %", lambda row, document: interval(row.get("right"), 100, 1)),
    Column("floor", lambda row, document: f"{row['floor']:.2f}" if "floor" in row else ""),
    Column("floor by tokens", lambda row, document: f"{row['token_floor']:.2f}" if "token_floor" in row else ""),
    Column("floor by passes", lambda row, document: f"{row['pass_floor']:.2f}" if "pass_floor" in row else ""),
    Column("formula", lambda row, document: f"{row['predicted']:.2f}" if "predicted" in row else ""),
    Column("over its parallel decoding", over("parallel")),
    Column("over the target at equal calls", over("rival")),
    Column("its iterations", lambda row, document: str(row["rival"]).split()[-1] if "rival" in row else ""),
  ]


def against(row: RowDocument, document: Document) -> str:
  """Median and interval of the speed over the row that the document names; empty without one, and for the base."""
  other = document.get("against")
  if other is None or row["label"] in (other, document["base"]):
    return ""
  seconds = [statistics.clock(entry, document) for entry in (statistics.labelled(document, row["batch"], other), row)]
  found = library.time_ratio(*seconds)
  return f"{found.value:.2f} {ratio_interval((found, found.p_value))}".strip()


def race_calls(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{statistics.mean(row['target_calls']):.1f}"


def tokens_per_call(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{statistics.lengths(row, document).mean() / statistics.mean(row['target_calls']):.2f}"


def edge_passes(row: RowDocument, document: Document) -> str:
  return f"{statistics.mean(row['draft_calls']):.0f}" if any(row["draft_calls"]) else ""


def calls_in_percent(row: RowDocument, document: Document) -> str:
  tokens = statistics.lengths(row, document).ravel()
  calls = [100 * number / length for number, length in zip(row["target_calls"], tokens.tolist(), strict=True)]
  return f"{statistics.mean(calls):.0f} ({min(calls):.0f} to {max(calls):.0f})"


def ratio_interval(found: tuple[library.TimeRatio, float] | None) -> str:
  """The interval of the median; empty with too few turns for the level."""
  if found is None or found[0].level < statistics.LEVEL:
    return ""
  return f"[{found[0].low:.2f}, {found[0].high:.2f}]"


MEMORY = " Memory: caches and logits of a batch, without weights and activations."


FLOOR = (
  " Cloud calls: mean (lowest to highest of the images). Floor: the ratio if a call cost one plain step, however many "
  "tokens it reads."
)


TOKEN_FLOOR = (
  " Floor by tokens: the ratio if all rows called at once and each call cost its share of a pass, without padding, over the "
  "mean number of tokens that a call must read."
)


PASS_FLOOR = (
  " Floor by passes: the ratio if nothing but passes took time, each as long as it takes alone, under the fastest rule of "
  "waiting: while some rows wait for the cloud, the edge goes on for the others until a share of the unfinished rows waits. "
  "All shares are replayed over the decodes of the table."
)


CORRECT = " Correct images: of {num} other captions, with Wilson's interval."


def race_intro(document: Document) -> str:
  turns = {row["batch"]: len(row["seconds"]) for row in document["rows"]}
  turns_of = ", ".join(f"{number} turn{'s' * (number > 1)} at batch {batch}" for batch, number in turns.items())
  costs = {row["batch"]: row["draft_cost"] for row in document["rows"] if "draft_cost" in row}
  cost = ", ".join(f"{cost:.2f} of a target token at batch {batch}" for batch, cost in costs.items())
  return (
    f"{document['source']}, {turns_of}, each turn other {document.get('noun', 'image')}s, all rows of a batch size in one "
    f"process. Ratios are of the{' seconds per token of the' if document.get('ends') else ''} "
    "two runs of one turn, median [lowest, highest]; above 1 the row is faster. The interval is of the median, by its order "
    "statistics, where there are turns enough; p by flips of signs, corrected over the rows (Holm)."
    + (FLOOR if document["layout"] == "cloud" else MEMORY if any("bytes" in row for row in document["rows"]) else "")
    + (TOKEN_FLOOR if any("token_floor" in row for row in document["rows"]) else "")
    + (PASS_FLOOR if any("pass_floor" in row for row in document["rows"]) else "")
    + (CORRECT.format(**document["captions"]) if "captions" in document else "")
    + (f" A draft token costs {cost}; the formula takes that and alpha, and a wide pass for free." if costs else "")
  )  # fmt: skip


def race_below(document: Document) -> list[str]:
  smallest = statistics.smallest_ratio(document)
  if smallest is None:
    return ["With single turns the table shows no difference: its ratios are what one run gave."]
  lines = [f"{SMALLEST} a factor of {smallest:.2f} between a row and {document['base']}, in the median over the rows."]
  if len({row["batch"] for row in document["rows"]}) > 2:
    lowest = sorted(statistics.lowest_speeds(document).items(), key=lambda item: -item[1][0])
    found = "; ".join(f"{label} {speed:.2f} (batch {batch})" for label, (speed, batch) in lowest)
    lines.append(f"Lowest median speed over {document['base']} over all batches: {found}.")
  return lines


KINDS: dict[str, Kind] = {
  "race": Kind(race_columns, race_intro, race_below),
}
