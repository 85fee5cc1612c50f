"""Tables about links and codings: ``sqs_*``, ``ciar_networks``."""

from __future__ import annotations

import itertools
from typing import Any

from experiments.engine import statistics, sweep_claims
from experiments.engine.cells import LABEL, SMALLEST, Column, Document, Kind, RowDocument, interval, number


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
  words = sweep_claims.words_of(document)

  def cell(row: RowDocument, document: Document, temperature: str) -> str:
    entry = row["at"][temperature]
    parts = [interval(entry["ms_per_token"]), f"{entry['resampling_rate'][0]:.2f}", words.get((row["label"], temperature))]
    return "; ".join(filter(None, parts))

  temperatures = list(document["rows"][0]["at"])
  return [LABEL] + [Column(f"T = {t}", lambda row, document, t=t: cell(row, document, t)) for t in temperatures]


def link_words(config: dict[str, Any]) -> str:
  budget = "no budget" if config["budget"] is None else f"budget {config['budget']:g} bits"
  measured = "measured on one machine" if config["spread"] else "assumed"
  return (
    f"{budget}, at most {config['max_drafts']} drafts, {measured}: a draft pass {config['edge_ms']:.3g} ms, a target pass "
    f"{config['cloud_ms']:.3g} + {config['cloud_token_ms']:.2g} ms a token"
  )


def clusters(document: Document) -> str:
  return f"Brackets: 95 % intervals over {document['num_prompts']} prompts."


def sweep_intro(document: Document) -> str:
  config = document["config"]
  return (
    f"modelled latency in ms per token by formula bits, and resampling rate; {document['num_rows']} continuations of "
    f"{config['tokens']} tokens, the first of which is not counted, uplink {config['uplink_mbps']:g} Mbit/s, "
    f"{link_words(config)}, no round trip; plain decoding {config['cloud_ms'] + config['cloud_token_ms']:.2f} ms a token. "
    f"{clusters(document)} Controllers: fixed eta 0; published eta 0.001, alpha 0.0005; quick eta 0.05, alpha 0.05."
  )


def codec_columns(document: Document) -> list[Column]:
  whole = lambda name, words: Column(words, lambda row, document: "-" if row[name][0] is None else f"{row[name][0]:,.0f}")
  times = [
    Column(f"ms per token at {rate} Mbit/s", lambda row, document, rate=rate: interval(row["ms_per_token"][rate]))
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
    f"bits; plain decoding {document['plain_ms']:.2f} ms a token. {clusters(document)}"
  )


def codec_below(document: Document) -> list[str]:
  cells = [row["ms_per_token"].values() for row in document["rows"] if row["options"]["coding"] != "half"]
  found = [statistics.estimate_of(cell) for cell in itertools.chain(*cells)]
  if not found:
    return []
  smallest = statistics.smallest_between(found, document["num_prompts"])
  return [f"{SMALLEST} {smallest:.2g} ms per token between two rows that quantize."]


def threshold_columns(document: Document) -> list[Column]:
  def cell(row: RowDocument, document: Document, texts: str) -> str:
    found = row["after"][texts]
    bound = "no bound" if found["bound"] is None else f"bound {found['bound']:.4f}, {found['over']} over it"
    return f"{found['fed']:.4f}, worst {found['worst']:.4f}; {bound}"

  last = list(document["rows"][0]["after"])[-1]
  return [
    Column("controller", lambda row, document: row["label"]),
    *(
      Column(f"after {found['tokens']:,.0f} tokens", lambda row, document, texts=texts: cell(row, document, texts))
      for texts, found in document["rows"][0]["after"].items()
    ),
    Column("dropped in truth", lambda row, document: f"{row['after'][last]['dropped']:.4f}"),
    Column("last threshold", lambda row, document: f"{row['after'][last]['threshold']:.4f}"),
    Column("mean support", lambda row, document: f"{row['after'][last]['support']:.0f}"),
  ]


def threshold_intro(document: Document) -> str:
  config = document["config"]
  return (
    f"mean dropped mass per token as the controller is fed it, beside its bound; {document['streams']} streams of "
    f"{config['texts']} texts, {config['tokens']} tokens each, whose threshold goes on from text to text; temperature "
    f"{config['temperature']:g}, supports of up to all {document['vocab']} tokens, no budget, at most "
    f"{config['max_drafts']} drafts. Means over streams, the worst stream, and how many streams are above the bound."
  )


KINDS: dict[str, Kind] = {
  "networks": Kind(network_columns, network_intro, network_below),
  "sweep": Kind(sweep_columns, sweep_intro, sweep_claims.sentences),
  "codecs": Kind(codec_columns, codec_intro, codec_below),
  "threshold_runs": Kind(threshold_columns, threshold_intro),
}
