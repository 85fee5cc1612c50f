"""Turns the JSON document of a table into Markdown: the only place that writes tables.

A document says its ``kind``; `KINDS` knows the columns of each, the sentence above the table and the lines below it.
Rendering needs no networks and no measurements: ``python -m experiments.run --render`` makes every committed table of its
JSON.

Columns without a single entry are left out. Below every table stands the smallest difference that it could have shown
(`experiments.engine.statistics`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.engine import claims, statistics
from experiments.engine.cells import Column, Document, RowDocument, interval, markdown, metric, number, percent, spread
from experiments.engine.statistics import KID
from jaxspec.metrics import statistics as library


class Kind(NamedTuple):
  """How documents of a kind are printed.

  Attributes:
    columns: of a document.
    intro: the sentence after the command.
    below: lines under the table, besides notes and rows that were left out.
  """

  columns: Callable[[Document], list[Column]]
  intro: Callable[[Document], str]
  below: Callable[[Document], list[str]] = lambda document: []
  rows: Callable[[Document], list[RowDocument]] = lambda document: document["rows"]


def render(document: Document) -> str:
  """The table of a document, ending in a newline.

  Raises:
    ValueError: for a kind that is not known.
  """
  if document.get("kind") not in KINDS:
    raise ValueError(f"Must have a document of kind {', '.join(KINDS)}, we instead got {document.get('kind')!r}")
  kind = KINDS[document["kind"]]
  columns, rows = kind.columns(document), kind.rows(document)
  cells = [[column.cell(row, document) for column in columns] for row in rows]
  shown = [index for index in range(len(columns)) if index == 0 or any(row[index] for row in cells)]
  head = [columns[index].head for index in shown]
  parts = [
    f"# {document['title']}",
    f"{commands(document)}: {kind.intro(document)} {origin(document)}",
    markdown(head, [[row[index] for index in shown] for row in cells]),
    *kind.below(document),
    *document.get("notes", ()),
    *document.get("left_out", ()),
  ]
  return "\n\n".join(part for part in parts if part) + "\n"


def commands(document: Document) -> str:
  """The command, or those of the parts that a table was gathered of."""
  found = document["command"]
  return ", ".join(f"`{command}`" for command in ([found] if isinstance(found, str) else found))


def origin(document: Document) -> str:
  """Machine and versions, as far as they were written down."""
  machine, versions = document.get("machine", {}), document.get("versions", {})
  words = [f"{name} {versions[name]}" for name in ("jax", "torch") if name in versions]
  words += [str(machine["kind"])] if "kind" in machine else []
  words += [f"{machine['cpus']} cores"] if "cpus" in machine else []
  return f"({', '.join(words)})" if words else ""


LABEL = Column("decode", lambda row, document: row["label"])
CALLS = Column("target calls", lambda row, document: "" if row.get("alone") else f"{row['calls_per_image']:.1f}")
REDUCTION = Column("tokens per call", lambda row, document: interval(row["step_reduction"]))
SPEED = Column("speed", lambda row, document: spread(statistics.wall_ratio(row)))
ACCEPTED = Column(
  "accepted, %", lambda row, document: percent(c["accepted"] / c["drafted"]) if (c := row["counters"])["drafted"] else ""
)
KID_REAL = metric("KID to real", KID, digits=2)
KID_PLAIN = metric("KID to plain", "kid_plain", digits=2)
RETRIEVAL = metric("prompt retrieval, %", "prompt_retrieval")
CHANGE = metric("its change", "prompt_retrieval_change", sign="+")
ATTRIBUTES = metric("attributes, %", "attribute_accuracy")
ALPHA = Column("alpha", lambda row, document: interval(statistics.alpha_of(row), digits=3))


# --- images of prompts: gsd_*, lantern_*, ciar_* -------------------------------------------------------------------------


def quality_columns(document: Document) -> list[Column]:
  common = [KID_REAL, KID_PLAIN]
  if document["layout"] == "calls":
    concept = metric("concept retrieval, %", "concept_retrieval")
    return [LABEL, CALLS, REDUCTION, SPEED, ACCEPTED, *common, RETRIEVAL, CHANGE, concept, ATTRIBUTES]
  tau = lambda row, document: f"{t:.4g}" if (t := row["options"].get("tau")) is not None and 0 < t < 1e29 else ""
  cloud = lambda name: lambda row, document: percent(row["cloud"][name])
  rate = lambda row, document: interval((row["cloud"]["call_rate"], *row["cloud"]["interval"]), 100, 1)
  return [
    LABEL, Column("tau", tau), Column("cloud calls, %", rate), Column("by the edge, %", cloud("local")),
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


SMALLEST = "Smallest true difference that the table would have shown (95 % level, 80 % power):"


# --- images of classes: cspd_* -------------------------------------------------------------------------------------------


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
    f"{document['rows'][0]['figures']['images']} images, each of another class. Alpha: tested drafts that were accepted, 95 "
    f"% interval, {document['intervals']} (Wilson's of as many trials as images where all agree). Accepted: of all "
    "drafts; those after a rejection are discarded untested."
  )


def acceptance_below(document: Document) -> list[str]:
  found = [statistics.alpha_of(row) for row in document["rows"]]
  smallest = statistics.smallest_between(found, document["rows"][0]["figures"]["images"])
  return [f"{SMALLEST} alpha {smallest:.2g} between two rows."]


def figures_calls(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{row['figures']['calls_per_image']:.1f}"


def class_columns(document: Document) -> list[Column]:
  encoder = document["encoder"]
  return [
    LABEL, Column("target calls", figures_calls), metric("class accuracy, %", "class_accuracy"),
    metric("KID to real", f"kid_{encoder}", digits=2), metric("Frechet to real", f"frechet_{encoder}", scale=1, digits=2),
    metric("F1", f"f1_{encoder}", scale=1, digits=2), metric("KID to the target", "kid_target", digits=2),
  ]  # fmt: skip


def class_intro(document: Document) -> str:
  real = interval(statistics.wilson_of(document["real"]["class_accuracy"]["value"], document["real"]["images"]), 100, 1)
  return (
    f"{document['rows'][0]['figures']['images']} images over all classes, {document['reference_images']} real ones. Class "
    f"accuracy of real drawings, which may not find their own concept: {real}. Brackets: 95 % intervals, Wilson's of "
    f"accuracies, else {document['intervals']}. KID times 100; the last column is against the target alone by another seed, "
    "where samples of one distribution are near 0."
  )


def class_below(document: Document) -> list[str]:
  found = lambda name: [statistics.metric_of(row, name) for row in document["rows"]]
  between = lambda name: statistics.smallest_between(found(name), document["rows"][0]["figures"]["images"])
  accuracy, kid = between("class_accuracy"), between(f"kid_{document['encoder']}")
  return [f"{SMALLEST} between two rows class accuracy {100 * accuracy:.3g} points, KID to real {100 * kid:.3g}."]


def digit_columns(document: Document) -> list[Column]:
  return [LABEL, ALPHA, Column("target calls", figures_calls), metric("class accuracy, %", "class_accuracy")]


def digit_intro(document: Document) -> str:
  real = interval(statistics.wilson_of(document["real"]["class_accuracy"]["value"], document["real"]["images"]), 100, 1)
  return (
    f"{document['rows'][0]['figures']['images']} digits, as many of each. The judge is right about {real} percent of "
    "held-out real digits. Brackets: 95 % intervals, Wilson's of accuracies, of alpha " + document["intervals"] + "."
  )


def digit_below(document: Document) -> list[str]:
  found = [statistics.metric_of(row, "class_accuracy") for row in document["rows"]]
  smallest = statistics.smallest_between(found, document["rows"][0]["figures"]["images"])
  return [f"{SMALLEST} class accuracy {100 * smallest:.3g} points between two rows."]


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


# --- speed: *_speed_* ----------------------------------------------------------------------------------------------------


def race_columns(document: Document) -> list[Column]:
  of_cloud, several = document["layout"] == "cloud", len({row["batch"] for row in document["rows"]}) > 1
  ratios = {(row["batch"], row["label"]): found for row, found in zip(document["rows"], statistics.time_ratios(document))}
  base = lambda row: statistics.base_of(row, document)
  ratio = lambda row: ratios[row["batch"], row["label"]]
  over = lambda name: lambda row, document: spread(statistics.over(row, document, row.get(name)))
  speed = lambda row, document: spread(statistics.ratio(base(row)["seconds"], row["seconds"]))
  ms = lambda row, document: f"{1000 * statistics.median(row['seconds']) / row['batch']:.0f}"
  columns = [LABEL]
  columns += [Column("batch", lambda row, document: str(row["batch"]))] * several
  columns += [Column("cloud calls, %", calls_in_percent), Column("edge passes", edge_passes)] if of_cloud else [ALPHA]
  if not of_cloud:
    columns += [Column("target calls", race_calls), Column("tokens per call", tokens_per_call)]
  return columns + [
    Column("ms per image", ms),
    Column(f"speed over {document['base']}", speed),
    Column("95 % interval", lambda row, document: ratio_interval(ratio(row))),
    Column("p, Holm", lambda row, document: "" if ratio(row) is None else f"{ratio(row)[1]:.2g}"),
    Column("floor", lambda row, document: f"{row['floor']:.2f}" if "floor" in row else ""),
    Column("formula", lambda row, document: f"{row['predicted']:.2f}" if "predicted" in row else ""),
    Column("over its parallel decoding", over("parallel")),
    Column("over the target at equal calls", over("rival")),
    Column("its iterations", lambda row, document: str(row["rival"]).split()[-1] if "rival" in row else ""),
  ]


def race_calls(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{statistics.mean(row['target_calls']):.1f}"


def tokens_per_call(row: RowDocument, document: Document) -> str:
  return "" if row["alone"] else f"{document['num_tokens'] / statistics.mean(row['target_calls']):.2f}"


def edge_passes(row: RowDocument, document: Document) -> str:
  return f"{statistics.mean(row['draft_calls']):.0f}" if any(row["draft_calls"]) else ""


def calls_in_percent(row: RowDocument, document: Document) -> str:
  calls = [100 * number / document["num_tokens"] for number in row["target_calls"]]
  return f"{statistics.mean(calls):.0f} ({min(calls):.0f} to {max(calls):.0f})"


def ratio_interval(found: tuple[library.TimeRatio, float] | None) -> str:
  """The interval of the median; nothing where there are too few turns for the level."""
  if found is None or found[0].level < statistics.LEVEL:
    return ""
  return f"[{found[0].low:.2f}, {found[0].high:.2f}]"


FLOOR = (
  " Cloud calls: mean (lowest to highest of the images). Floor: the ratio if a call cost one plain step, however many "
  "tokens it reads."
)


def race_intro(document: Document) -> str:
  turns = {row["batch"]: len(row["seconds"]) for row in document["rows"]}
  turns_of = ", ".join(f"{number} turn{'s' * (number > 1)} at batch {batch}" for batch, number in turns.items())
  costs = {row["batch"]: row["draft_cost"] for row in document["rows"] if "draft_cost" in row}
  cost = ", ".join(f"{cost:.2f} of a target token at batch {batch}" for batch, cost in costs.items())
  return (
    f"{document['source']}, {turns_of}, each turn other images, all rows of a batch size in one process. Ratios are of the "
    "two runs of one turn, median [lowest, highest]; above 1 the row is faster. The interval is of the median, by its order "
    "statistics, where there are turns enough; p by flips of signs, corrected over the rows (Holm)."
    + (FLOOR if document["layout"] == "cloud" else "")
    + (f" A draft token costs {cost}; the formula takes that and alpha, and a wide pass for free." if costs else "")
  )  # fmt: skip


def race_below(document: Document) -> list[str]:
  smallest = statistics.smallest_ratio(document)
  if smallest is None:
    return ["With single turns the table shows no difference: its ratios are what one run gave."]
  return [f"{SMALLEST} a factor of {smallest:.2f} between a row and {document['base']}, in the median over the rows."]


# --- links and codings ---------------------------------------------------------------------------------------------------


def network_columns(document: Document) -> list[Column]:
  words = lambda key: key.replace("rtt_per_call", "rtt").replace("one_way", "one-way")
  links = [number(f"{words(key)}, s", "seconds", key) for key in document["rows"][0]["seconds"]]
  return [
    LABEL, number("cloud calls", "mean", "target_calls", digits=1),
    number("bytes up", "mean", "uplink_bytes", digits=0, comma=True),
    number("bytes down", "mean", "downlink_bytes", digits=0, comma=True),
    number("edge, s", "mean", "edge_s", digits=3), number("cloud, s", "mean", "cloud_s", digits=3),
    number("kappa", "kappa"), number("tokens per call", "tokens_per_call"),
    number("with the edge", "tokens_with_edge"), *links,
  ]  # fmt: skip


def network_intro(document: Document) -> str:
  return (
    f"means of {document['images']} images, one at a time, both ends on one machine. Seconds of edge and cloud are "
    "measured, those on the link are computed from emitted bytes. `rtt`: latency once a call; `one-way`: for each "
    "transmission. kappa: an edge pass over a cloud call; with the edge: tokens per call, edge passes counted by kappa."
  )


def network_below(document: Document) -> list[str]:
  return [
    f"The table holds means of {document['images']} images and no spread: it shows orders of magnitude, not small "
    "differences."
  ]


def sweep_columns(document: Document) -> list[Column]:
  def cell(row: RowDocument, document: Document, temperature: str) -> str:
    entry = row["at"][temperature]
    return f"{interval(entry['ms_per_token'], digits=1)}; {entry['resampling_rate'][0]:.2f}"

  temperatures = list(document["rows"][0]["at"])
  return [LABEL] + [Column(f"T = {t}", lambda row, document, t=t: cell(row, document, t)) for t in temperatures]


def link_words(config: dict[str, Any]) -> str:
  return (
    f"budget {config['budget']:g} bits, at most {config['max_drafts']} drafts, a draft pass {config['edge_ms']:g} ms, a "
    f"target pass {config['cloud_ms']:g} + {config['cloud_token_ms']:g} ms a token"
  )


def sweep_intro(document: Document) -> str:
  config = document["config"]
  return (
    f"modelled latency in ms per token, and resampling rate; {document['num_rows']} continuations of {config['tokens']} "
    f"tokens, uplink {config['uplink_mbps']:g} Mbit/s, {link_words(config)}, no round trip. Brackets: 95 % intervals, "
    f"{document['intervals']}. Controllers: fixed eta 0; published eta 0.001, alpha 0.0005; quick eta 0.05, alpha 0.05."
  )


def sweep_below(document: Document) -> list[str]:
  found = [statistics.estimate_of(entry["ms_per_token"]) for row in document["rows"] for entry in row["at"].values()]
  return [f"{SMALLEST} {statistics.smallest_between(found, document['num_rows']):.2g} ms per token between two cells."]


def codec_columns(document: Document) -> list[Column]:
  whole = lambda name, words: Column(words, lambda row, document: "-" if row[name][0] is None else f"{row[name][0]:,.0f}")
  times = [
    Column(f"ms per token at {rate} Mbit/s", lambda row, document, rate=rate: interval(row["ms_per_token"][rate], digits=1))
    for rate in document["rows"][0]["ms_per_token"]
  ]
  return [
    Column("T", lambda row, document: f"{row['temperature']:g}"),
    Column("distribution and coding", lambda row, document: row["label"]),
    whole("formula_bits_per_token", "formula bits per token"), whole("coded_bits_per_token", "coded bits per token"),
    whole("wire_bytes_per_token", "wire bytes per token"), whole("wire_bytes_per_accepted", "per accepted token"),
    Column("tokens per round", lambda row, document: f"{row['tokens_per_round'][0]:.2f}"),
    Column("resampling rate", lambda row, document: interval(row["resampling_rate"])), *times,
  ]  # fmt: skip


def codec_intro(document: Document) -> str:
  config = document["config"]
  return (
    f"{document['num_rows']} continuations of {config['tokens']} tokens by two ends that exchange messages, V = "
    f"{document['vocab']}, ell = {config['ell']}, {link_words(config)}, an exchange {config['rtt_ms']:g} ms besides its "
    f"bits; plain decoding {document['plain_ms']:.1f} ms a token. Brackets: 95 % intervals, {document['intervals']}."
  )


def codec_below(document: Document) -> list[str]:
  found = [
    statistics.estimate_of(cell)
    for row in document["rows"]
    if row.get("has_budget", True)
    for cell in row["ms_per_token"].values()
  ]
  smallest = statistics.smallest_between(found, document["num_rows"])
  return [f"{SMALLEST} {smallest:.2g} ms per token between two rows with a budget."]


# --- parts of the library ------------------------------------------------------------------------------------------------


def score_rows(document: Document) -> list[RowDocument]:
  names = dict.fromkeys(row["score"] for row in document["rows"])
  return [{"label": name, "at": {row["vocab"]: row for row in document["rows"] if row["score"] == name}} for name in names]


def score_columns(document: Document) -> list[Column]:
  def cell(row: RowDocument, document: Document, vocab: int) -> str:
    at = row["at"][vocab]
    return f"{1e6 * at['median']:.0f} [{1e6 * at['low']:.0f}, {1e6 * at['high']:.0f}]"

  vocabularies = dict.fromkeys(row["vocab"] for row in document["rows"])
  score = Column("score", lambda row, document: row["label"])
  return [score] + [Column(f"{v} codes", lambda row, document, v=v: cell(row, document, v)) for v in vocabularies]


def score_intro(document: Document) -> str:
  return (
    f"microseconds per position at batch 1, median [lowest, highest] of {document['repeats']} sweeps over "
    f"{document['positions']} positions."
  )


def overlap(document: Document) -> list[str]:
  return ["Two rows whose brackets overlap are not told apart."]


def grid_columns(document: Document) -> list[Column]:
  """Tables whose cells were formatted where they were measured."""
  return [
    Column(head, lambda row, document, index=index: row["cells"][index]) for index, head in enumerate(document["head"])
  ]


def eager_intro(document: Document) -> str:
  return "class-conditional GPT-B, random weights, guidance, float32, batch 1; the two take turns in one process, medians."


def eager_rows(document: Document) -> list[RowDocument]:
  rows = [
    {"cells": [name, f"{document['tokens_per_s'][name]:.1f}", f"{document['tokens_per_cpu_s'][name]:.1f}"]}
    for name in ("jax", "torch")
  ]
  ratio = lambda name: "{median:.2f} [{low:.2f}, {high:.2f}]".format(**document[name])
  return [
    *rows,
    {"cells": ["jax over torch, median [lowest, highest] of the pairs", ratio("ratio_wall"), ratio("ratio_cpu")]},
  ]


def eager_columns(document: Document) -> list[Column]:
  head = ("library", "tokens/s", "tokens per CPU-second")
  return [Column(words, lambda row, document, index=index: row["cells"][index]) for index, words in enumerate(head)]


def eager_below(document: Document) -> list[str]:
  return [
    f"Memory floor ({document['streamed_mb_per_step']:.0f} MB a step at {document['memory_read_gb_per_s']:.1f} GB/s): "
    f"{100 * document['share_of_memory_floor']:.0f} % reached. First call {document['first_call_s']:.1f} s. "
    f"{document['repeats']} pairs: the lowest and the highest ratio are what the table can tell apart."
  ]


def parity_columns(document: Document) -> list[Column]:
  error = lambda row, document: (
    ("0" if row["max_error"] == 0 else f"{row['max_error']:.1e}")
    + "" * row["passed"]
    + " **exceeded**" * (not row["passed"])
  )
  return [
    Column("golden", lambda row, document: row["golden"]), Column("array", lambda row, document: row["array"]),
    Column("max abs error", error),
    Column("tolerance", lambda row, document: "exact" if row["tolerance"] == 0 else f"{row['tolerance']:.2g}"),
  ]  # fmt: skip


def parity_intro(document: Document) -> str:
  return "float32, matmul precision `highest`, against files that the official code wrote."


def parity_below(document: Document) -> list[str]:
  return ["An error above its tolerance is marked; no smaller difference is claimed to be seen."]


CONDITIONS = {"white": "on white", "painted": "painted", "reconstructed": "reconstructed"}
HELD_OUT = ("val_concept", "val_style")


def evaluator_rows(document: Document) -> list[RowDocument]:
  """The held-out scores of the judges of images."""
  held_out = {part: entry["held_out"] for part, entry in document["parts"].items()}
  counts = document["images"]
  rows = []

  def add(part: str, score: str, condition: str, name: str, baseline: str) -> None:
    found = [statistics.wilson_of(held_out[part][condition][split][name], counts[split]) for split in HELD_OUT]
    # First-of-32 scores are means of probabilities, not shares of images.
    cells = [interval(f, 100, 1) if name != "first_of_32" else percent(f.value, 1) for f in found]
    rows.append({"cells": [f"`{part}`", score, CONDITIONS[condition], *cells, baseline]})

  for condition in CONDITIONS:
    if "concept" in held_out:
      scores = held_out["concept"][condition]["val_concept"]
      raw = held_out["concept"]["raw_pixels"][condition]["val_concept"]["top1"]
      score = f"the same concept in another style, first of {round(scores['candidates'])} unseen concepts"
      add("concept", score, condition, "top1", f"{percent(raw, 1)} (raw pixels)")
  for name, title in (("style_accuracy", "style of 3"), ("group_accuracy", "group of 8")):
    for condition in CONDITIONS:
      if "classifier" in held_out:
        largest = percent(held_out["classifier"][condition]["val_concept"]["largest_group"], 1)
        add("classifier", title, condition, name, f"{largest} (largest group)" if name == "group_accuracy" else "33")
  for condition in CONDITIONS:
    if "caption" in held_out:
      add("caption", "own label, first of 32", condition, "first_of_32", "3.1 (chance)")
  return rows


def evaluator_columns(document: Document) -> list[Column]:
  head = ("evaluator", "score", "images", "unseen concepts, %", "unseen styles, %", "baseline (unseen concepts), %")
  return [Column(words, lambda row, document, index=index: row["cells"][index]) for index, words in enumerate(head)]


def evaluator_intro(document: Document) -> str:
  counts = document["images"]
  return (
    f"{counts['val_concept']} images of unseen concepts, {counts['val_style']} of unseen styles. Brackets: Wilson's 95 % "
    "intervals; scores that are means of probabilities have none."
  )


def evaluator_below(document: Document) -> list[str]:
  smallest = library.detectable_share(0.5, document["images"]["val_concept"])
  return [f"{SMALLEST} {100 * smallest:.2g} points of a share of one half, between two sets of unseen concepts."]


KINDS: dict[str, Kind] = {
  "quality": Kind(quality_columns, quality_intro, claims.sentences),
  "acceptance": Kind(acceptance_columns, acceptance_intro, acceptance_below),
  "classes": Kind(class_columns, class_intro, class_below),
  "digits": Kind(digit_columns, digit_intro, digit_below),
  "marginals": Kind(marginal_columns, marginal_intro, marginal_below),
  "race": Kind(race_columns, race_intro, race_below),
  "networks": Kind(network_columns, network_intro, network_below),
  "sweep": Kind(sweep_columns, sweep_intro, sweep_below),
  "codecs": Kind(codec_columns, codec_intro, codec_below),
  "scores": Kind(score_columns, score_intro, overlap, score_rows),
  "eager": Kind(eager_columns, eager_intro, eager_below, eager_rows),
  "grid": Kind(grid_columns, lambda document: document["intro"], lambda document: [document["below"]]),
  "parity": Kind(parity_columns, parity_intro, parity_below),
  "evaluators": Kind(evaluator_columns, evaluator_intro, evaluator_below, evaluator_rows),
}
