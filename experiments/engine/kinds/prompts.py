"""Tables about images of prompts: ``gsd_*``, ``lantern_*``, ``ciar_*``."""

from __future__ import annotations

from experiments.engine import claims, statistics
from experiments.engine.cells import LABEL, Column, Document, Kind, interval, metric, percent, spread
from experiments.engine.statistics import KID

CALLS = Column("target calls", lambda row, document: "" if row.get("alone") else f"{row['calls_per_image']:.1f}")
REDUCTION = Column("tokens per call", lambda row, document: interval(row["step_reduction"]))
SPEED = Column("speed", lambda row, document: spread(statistics.wall_ratio(row)))
ACCEPTED = Column(
  "accepted, %", lambda row, document: percent(c["accepted"] / c["drafted"]) if (c := row["counters"])["drafted"] else ""
)
TAU = lambda row, document: f"{t:.4g}" if (t := row["options"].get("tau")) is not None and 0 < t < 1e29 else ""
KID_REAL = metric("KID to real", KID, digits=2)
KID_PLAIN = metric("KID to plain", "kid_plain", digits=2)
RETRIEVAL = metric("prompt retrieval, %", "prompt_retrieval")
CHANGE = metric("its change", "prompt_retrieval_change", sign="+")
ATTRIBUTES = metric("attributes, %", "attribute_accuracy")


def quality_columns(document: Document) -> list[Column]:
  common = [KID_REAL, KID_PLAIN]
  if document["layout"] == "calls":
    concept = metric("concept retrieval, %", "concept_retrieval")
    return [LABEL, CALLS, REDUCTION, SPEED, ACCEPTED, *common, RETRIEVAL, CHANGE, concept, ATTRIBUTES]
  cloud = lambda name: lambda row, document: percent(row["cloud"][name])
  rate = lambda row, document: interval((row["cloud"]["call_rate"], *row["cloud"]["interval"]), 100, 1)
  return [
    LABEL, Column("tau", TAU), Column("cloud calls, %", rate), Column("by the edge, %", cloud("local")),
    Column("verified, %", cloud("accepted")), SPEED, *common,
    metric("Frechet", f"frechet_{document['encoder']}"), metric("F1", f"f1_{document['encoder']}", digits=0),
    RETRIEVAL, CHANGE, ATTRIBUTES,
  ]  # fmt: skip


def quality_intro(document: Document) -> str:
  prompts = document["prompts"]
  held_out = sum(prompts.values()) - prompts["train"]
  nearer = " Samples of the same prompts are nearer to each other: compare KID to plain with the row of plain decoding."
  timed = " Speed: plain decoding over the row, one image at a time, median [lowest, highest] of the pairs."
  return (
    f"{document['rows'][0]['images']} images of {document['group']}, one seed ({prompts['train']} prompts of training "
    f"images, {held_out} held out), {document['reference_images']} other real images to compare with. Brackets: 95 % "
    f"intervals, {document['intervals']}, of attributes Wilson's. Distances times 100; KID to plain and the change of "
    "retrieval are against plain decoding of the same prompts by another seed."
    + (nearer if "bootstrap" in document["intervals"] else "")
    + (timed if any(row["wall"] for row in document["rows"]) else "")
  )


KINDS: dict[str, Kind] = {
  "quality": Kind(quality_columns, quality_intro, claims.sentences),
}
