"""Tables of judged digits: ``hosts_*``, ``cspd_digits_*``."""

from __future__ import annotations

from experiments.engine import statistics
from experiments.engine.cells import ALPHA, LABEL, SMALLEST, Column, Document, Kind, RowDocument, interval, metric
from jaxspec import statistics as library

MOST_POSITIONS = 8  # largest number of columns of acceptance by position; longer rows are divided into this number of parts


def calls(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{row['figures']['calls_per_image']:.2f}"


def calls_in_percent(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{100 * row['figures']['calls_per_image'] / row['num_tokens']:.0f}"


def accepted_along(row: RowDocument, document: Document) -> str:
  """Accepted of tested drafts in percent, by scale, or by equal parts of a long row; a dash without tests."""
  accepted, tested = row["along"]["accepted"], row["along"]["tested"]
  if not sum(tested):
    return ""
  count = len(tested)
  parts = min(count, MOST_POSITIONS)
  cuts = [count * part // parts for part in range(parts + 1)]
  sums = [(sum(accepted[low:high]), sum(tested[low:high])) for low, high in zip(cuts, cuts[1:])]
  return " ".join(f"{100 * a / t:.0f}" if t else "-" for a, t in sums)


def minus_first(name: str, scale: float, digits: int):
  """The difference to the first row with its interval and Holm's p."""

  def cell(row: RowDocument, document: Document) -> str:
    if (found := row.get("minus_first", {}).get(name)) is None:
      return ""
    return f"{interval(found, scale, digits, '+')}, p {found['adjusted']:.2g}"

  return cell


def ms(batch: str):
  return lambda row, document: (
    f"{1000 * statistics.median(row['seconds'][batch]) / int(batch):.1f}" if batch in row["seconds"] else ""
  )


def speed(batch: str):
  """The median ratio over the first row, with its interval if there are enough turns."""

  def cell(row: RowDocument, document: Document) -> str:
    base = document["rows"][0]
    if row is base or batch not in row["seconds"]:
      return ""
    found = library.time_ratio(base["seconds"][batch], row["seconds"][batch])
    sure = found.level >= statistics.LEVEL
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]" if sure else f"{found.value:.2f}"

  return cell


def columns(document: Document) -> list[Column]:
  base = document["base"]
  timed = [Column(f"ms per image, batch {batch}", ms(batch)) for batch in document["rows"][0]["seconds"]]
  timed += [Column(f"speed over {base}, batch {batch}", speed(batch)) for batch in document["rows"][0]["seconds"]]
  return [
    LABEL, Column("target calls", calls), Column("of all tokens, %", calls_in_percent), ALPHA,
    Column("accepted along the row, %", accepted_along), metric("class accuracy, %", "class_accuracy"),
    Column(f"minus {base}, points", minus_first("class_accuracy", 100, 1)),
    metric("KID to real", "kid_digits", digits=2), Column(f"minus {base}", minus_first("kid_digits", 100, 2)), *timed,
  ]  # fmt: skip


def intro(document: Document) -> str:
  timed = " Speed: median of the ratios of turns." if document["rows"][0]["seconds"] else ""
  real = interval(statistics.wilson_of(document["real"]["class_accuracy"]["value"], document["real"]["images"]), 100, 1)
  return (
    f"{document['rows'][0]['figures']['images']} digits, as many of each, the same keys in every row. The judge is right "
    f"about {real} percent of held-out real digits. KID times 100, to {document['reference_images']} real digits in "
    f"{document['components']} principal components. Accepted along the row: of tested drafts, by map or by equal parts of "
    "the row. Brackets: 95 % intervals. Differences are paired by image; p is Holm's over both columns of differences."
    + timed
  )


def below(document: Document) -> list[str]:
  found = [row["minus_first"] for row in document["rows"] if "minus_first" in row]
  if not found:
    return []
  ends = lambda name: [f"{100 * pick(row[name]['detectable'] for row in found):.2g}" for pick in (min, max)]
  each = {name: " to ".join(dict.fromkeys(ends(name))) for name in ("class_accuracy", "kid_digits")}
  return [
    f"{SMALLEST} class accuracy {each['class_accuracy']} points, KID {each['kid_digits']}, between a row and "
    f"{document['base']} after correction, by row."
  ]


KINDS: dict[str, Kind] = {"hosts": Kind(columns, intro, below)}
