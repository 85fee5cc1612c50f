"""Tables about images of scenes: ``scenes_*``."""

from __future__ import annotations

from collections.abc import Callable

from experiments.engine import claims, predictions, seeds, statistics
from experiments.engine.cells import LABEL, Column, Document, Kind, RowDocument, interval, metric, percent
from experiments.engine.kinds.columns import CALLS, REDUCTION, SECONDS, SPEED, TAU
from experiments.engine.outlook import outlook_sentences
from jaxspec.statistics import equivalence

SAVED = Column("calls saved, %", lambda row, document: "" if row["alone"] else percent(saved_of(row, document), 1))
GRAIN = Column("step of the grain", lambda row, document: f"{row['grain_step']:.1f}" if "grain_step" in row else "")
RIGHT = metric("correct, %", "right")
AUDITED = Column("TV per token", lambda row, document: interval(row["audit"]["tv"], digits=4) if row["audit"] else "")

DIVERGENCE = Column("KL per token, nats", lambda row, document: kl_cell(row["audit"] or {}))


def kl_cell(audit: dict) -> str:
  """The divergence of the tokens; empty in tables without it."""
  return interval(audit["kl"], digits=4) if audit.get("kl") else ""


def saved_of(row: RowDocument, document: Document) -> float:
  """Share of plain decoding's target calls that a row saves."""
  return 1 - row["calls_per_image"] / document["num_tokens"]


def columns(document: Document) -> list[Column]:
  found = claims.verdicts(document) if claims.subject_of(document) else {}
  reference = Column("compared with", of_verdict(found, "right", lambda one: one.reference))
  if document["layout"] == "calls":
    middle = [CALLS, SAVED, REDUCTION]
  else:
    rate = lambda row, document: interval((row["cloud"]["call_rate"], *row["cloud"]["interval"]), 100, 1)
    cloud = lambda name: lambda row, document: percent(row["cloud"][name])
    middle = [
      Column("tau", TAU), Column("cloud calls, %", rate), Column("wanted", wanted), Column("by the edge, %", cloud("local")),
      Column("verified, %", cloud("accepted")),
      Column("the edge's likeliest of these, %", lambda row, document: interval(row["cloud"].get("likeliest"), 100, 1)),
    ]  # fmt: skip
  return [
    LABEL, *middle, SPEED, SECONDS, AUDITED, DIVERGENCE, GRAIN, RIGHT,
    *[reference] * claims.paired_with_others(document),
    Column("difference, points", of_verdict(found, "right", change)), Column("p", of_verdict(found, "right", p_value)),
    Column("detectable, points", of_verdict(found, "right", lambda one: percent(one.detectable, 1))),
    *equality(document, found),
    Column("unconstrained attributes: TV", lambda row, document: distance(row, "value")),
    Column("by chance", lambda row, document: distance(row, "expected")),
    Column("p ", of_verdict(found, "unfaithful", p_value)),
  ]  # fmt: skip


def wanted(row: RowDocument, document: Document) -> str:
  """The target rate, and whether it was met within half a point."""
  rate = row["wanted_rate"] or row["options"].get("cloud_rate")
  if rate is None:
    return ""
  return f"{100 * rate:g}, {'held' if abs(row['cloud']['call_rate'] - rate) <= statistics.RATE_ERROR else '**missed**'}"


def of_verdict(found: dict, metric: str, write: Callable[[claims.Verdict], str]) -> Callable[[RowDocument, Document], str]:
  """The cell of a row's comparison; empty without one."""
  return lambda row, document: write(found[row["label"], metric]) if (row["label"], metric) in found else ""


def change(verdict: claims.Verdict) -> str:
  """The row minus the subject."""
  one = verdict.difference
  return interval((-one.value, -one.high, -one.low), 100, 1, sign="+")


def p_value(verdict: claims.Verdict) -> str:
  return f"{verdict.p_value:.2g}"


def equality(document: Document, found: dict) -> list[Column]:
  """Whether rows differ by less than the margin, for tables with a claim of equivalence."""
  if not (margin := document["margin"]):
    return []
  tests = {label: equivalence(one.difference, margin) for (label, name), one in found.items() if name == "right"}
  adjusted = dict(zip(tests, statistics.holm([test.p_value for test in tests.values()])))

  def cell(row: RowDocument, document: Document) -> str:
    if row["label"] not in adjusted:
      return ""
    p = adjusted[row["label"]]
    return f"{'yes' if p <= 1 - statistics.LEVEL else 'not shown'} (p {p:.2g})"

  return [Column(f"differs by less than {100 * margin:g} points", cell)]


def distance(row: RowDocument, name: str) -> str:
  return "" if row["open"] is None else f"{row['open'][name]:.3f}"


def intro(document: Document) -> str:
  captions, subject = document["captions"], claims.subject_of(document) or claims.PLAIN
  timed = any(row["wall"] for row in document["rows"])
  sampling = " and ".join(f"{name} {value:g}" for name, value in document.get("sampling", {}).items())
  return (
    f"{captions['num']} captions of the split {captions['split']}, one image each, the same keys in all rows"
    + (f", all of them with {sampling}" if sampling else "")
    + lifted(document)
    + ". Correct: the "
    f"image does all that its caption says; 95 % interval of Wilson. Difference: against {subject}"
    + (" or the row that is named" if claims.paired_with_others(document) else "")
    + ", pair by pair, with its 95 % interval; p of McNemar's test; detectable: the smallest true difference that this "
    "comparison finds with 80 % power. Unconstrained attributes: mean total variation between a row's correct images and "
    "plain decoding's in style, position, size, background, colour and number where captions leave them free; p by "
    "permutation (of plain decoding itself against its other seed). All p are corrected over the table (Holm)."
    + (
      " Speed: plain decoding over the row, one image at a time, median [lowest, highest] of the pairs; seconds: median."
      if timed
      else ""
    )
  )


def lifted(document: Document) -> str:
  """The clause about a lifted world."""
  if (lift := document.get("lift")) is None:
    return ""
  steps = f"steps of {lift['sigma']:g} twins, {100 * lift['uniform']:g} % uniform" if lift["sigma"] else "uniform"
  top_p = f", top-p of codes {lift['top_p']:g}" if lift["top_p"] < 1 else ""
  return f". Lifted world: {lift['twins']} twins of each background code; grain {steps}{top_p}"


def below(document: Document) -> list[str]:
  return [
    *outlook_sentences(document["outlook"]),
    *claims.sentences(document),
    *seeds.sentences(document),
    *predictions.sentences(document),
  ]


KINDS: dict[str, Kind] = {"scenes": Kind(columns, intro, below)}
