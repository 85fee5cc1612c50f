"""Tables about images of classes: ``cspd_*``."""

from __future__ import annotations

from experiments.engine import statistics
from experiments.engine.cells import (
  ALPHA,
  LABEL,
  SMALLEST,
  Column,
  Document,
  Kind,
  number,
)


def acceptance_columns(document: Document) -> list[Column]:
  value = lambda name: lambda row, document: "a mean" if (v := row["walked"][name]) is None else f"{v:g}"
  walked = [Column(name.replace("_", " "), value(name)) for name in document["rows"][0]["walked"]]
  return [
    *walked, Column("acceptance rule", lambda row, document: row["label"]), ALPHA,
    number("accepted", "figures", "accepted_share", digits=3),
    number("target calls", "figures", "calls_per_image", digits=1),
    number("proposals per rejection", "figures", "mean_tries", digits=1),
    number("none passed", "figures", "fallbacks", digits=0),
  ]  # fmt: skip


def acceptance_intro(document: Document) -> str:
  return (
    f"{document['rows'][0]['figures']['images']} images over all classes. Alpha: tested drafts that were accepted, 95 "
    f"% interval, {document['intervals']} (Wilson's of as many trials as images where all agree). Accepted: of all "
    "drafts; those after a rejection are discarded untested."
  )


def acceptance_below(document: Document) -> list[str]:
  found = [statistics.alpha_of(row) for row in document["rows"]]
  smallest = statistics.smallest_between(found, document["rows"][0]["figures"]["images"])
  return [f"{SMALLEST} alpha {smallest:.2g} between two rows."]


def marginal_columns(document: Document) -> list[Column]:
  adjusted = dict(zip((row["label"] for row in document["rows"]), statistics.holm([row["p"] for row in document["rows"]])))
  tested = lambda row, document: f"{100 * row['figures']['drafted_here']:.0f}" if row["figures"].get("alpha") else ""
  return [
    LABEL, ALPHA, Column("drafts tested here, %", tested),
    number("largest KS", "ks", digits=3), number("mean KS", "ks_mean", digits=3),
    Column("p", lambda row, document: f"{row['p']:.2g}"),
    Column("p, Holm", lambda row, document: f"{adjusted[row['label']]:.2g}"),
  ]  # fmt: skip


def marginal_intro(document: Document) -> str:
  return (
    f"{document['rows'][0]['figures']['images']} rows of class {document['class']}, token {document['position']} of the "
    f"order (0 is the first), gamma {document['gamma']}; against the target alone. p: Kolmogorov-Smirnov, Bonferroni over "
    "the components; Holm over the rows. Alpha: 95 % interval, " + document["intervals"] + "."
  )


def marginal_below(document: Document) -> list[str]:
  distance = statistics.smallest_ks(document["rows"][0]["figures"]["images"], document["components"])
  return [f"A component whose KS distance is below {distance:.3f} passes at the 5 % level."]


KINDS: dict[str, Kind] = {
  "acceptance": Kind(acceptance_columns, acceptance_intro, acceptance_below),
  "marginals": Kind(marginal_columns, marginal_intro, marginal_below),
}
