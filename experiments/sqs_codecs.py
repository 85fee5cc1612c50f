"""What every coding sends for a token, and from which uplink rate on it pays; measured on messages, not by formulas.

Commands (minutes on two idle cores)::

    python -m experiments.sqs_codecs
    python -m experiments.sqs_figures

Both ends exchange real messages (`jaxspec.link.driver`). Writes ``experiments/results/sqs_codecs.json`` and the table
``sqs_codecs.md``: coded bits per committed token, bytes on the wire (framing included) per committed and per accepted
token, tokens per round, resampling rate, and modelled latency. The latency counts draft passes, everything that went up,
target passes, and a round trip for each exchange if ``--rtt-ms`` says so (the lazy coding makes two after a rejection).
Compared with: plain decoding in the cloud, which sends nothing up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import sqs_decode
from experiments.sqs_decode import ratio
from jaxspec.codecs.codec import SparseCodec, conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import ConformalParams
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.link.timing import Compute, Link, break_even_bps, decode_seconds
from jaxspec.metrics.compression import count_rounds
from jaxspec.types import PyTree

TEMPERATURES = (0.2, 0.6, 1.0)
UPLINKS_MBPS = (0.5, 2.0, 20.0)
PLAIN = "plain decoding"


NO_BUDGET = "half precision, no budget"


def contenders(vocab: int, ell: int, max_support: int) -> dict[str, tuple[SparseCodec, PyTree]]:
  """Name to codec and traced settings.

  Rice, trimmed and lazy send the law of K = 64. The last is what is sent without quantizing, and no round of it would fit
  into a budget.
  """
  top = lambda size, coding: (topk_lattice(vocab, size, ell=ell, coding=coding), TopKParams(jnp.int32(size)))
  threshold = ConformalParams(jnp.float32(0.01), jnp.float32(0.001), jnp.float32(0.0005))
  found = {f"K-SQS, K = {size}": top(size, "paper") for size in (8, 32, 64)}
  found["C-SQS"] = conformal_lattice(vocab, min(max_support, vocab), ell=ell), threshold
  return found | {
    "dense": top(vocab, "dense"),
    "Rice, K = 64": top(64, "rice"),
    "trimmed, K = 64": top(64, "trimmed"),
    "lazy, K = 64": top(64, "lazy"),
    NO_BUDGET: top(vocab, "half"),
  }


def measure(
  pair: sqs_decode.Pair, codec: SparseCodec, settings: PyTree, args: argparse.Namespace, **options: float
) -> dict[str, Any]:
  """Figures of one coding, each ratio with its interval; ``options`` are temperature and budget."""
  options |= dict(num_tokens=args.tokens, max_drafts=args.max_drafts)
  out, traffic = sqs_decode.decode_by_messages(pair, codec, settings, **options)
  counts = count_rounds(out)
  compute = Compute(args.edge_ms / 1e3, args.cloud_ms / 1e3, args.cloud_token_ms / 1e3)
  totals = dict(edge_passes=counts.edge_passes, rounds=counts.rounds, drafted=counts.drafted, exchanges=traffic.exchanges)
  sent = traffic.wire_bytes * 8.0
  seconds = lambda link: decode_seconds(compute, link, uplink_bits=sent, **totals)
  without = decode_seconds(compute, Link(1.0, rtt_s=args.rtt_ms / 1e3), uplink_bits=0.0 * sent, **totals)
  per_token = lambda values: ratio(values, counts.tokens)
  rates = {f"{rate:g}": Link(rate * 1e6, rtt_s=args.rtt_ms / 1e3) for rate in UPLINKS_MBPS}
  return {
    "formula_bits_per_token": per_token(np.asarray(out.report.stats.formula_bits, np.float64)),
    "coded_bits_per_token": per_token(traffic.coded_bits),
    "wire_bytes_per_token": per_token(traffic.wire_bytes),
    "wire_bytes_per_accepted": ratio(traffic.wire_bytes, counts.accepted),
    "tokens_per_round": ratio(counts.tokens, counts.rounds),
    "drafts_per_round": ratio(counts.drafted, counts.rounds),
    "resampling_rate": ratio(counts.rejected, counts.rounds),
    "exchanges_per_round": ratio(traffic.exchanges, counts.rounds),
    "ms_per_token": {rate: per_token(seconds(link) * 1e3) for rate, link in rates.items()},
    # Latency at any rate is the first plus the second over the rate.
    "ms_without_uplink": float(without.sum() / counts.tokens.sum() * 1e3),
    "uplink_bits_per_token": float(sent.sum() / counts.tokens.sum()),
  }


def break_evens(entries: list[dict[str, Any]], plain_ms: float) -> list[dict[str, Any]]:
  """Rates at which two codings of the same temperature, or a coding and plain decoding, take the same time."""
  found = []
  for temperature in sorted({entry["temperature"] for entry in entries}):
    here = [entry for entry in entries if entry["temperature"] == temperature]
    lines = {entry["name"]: (entry["ms_without_uplink"] / 1e3, entry["uplink_bits_per_token"]) for entry in here}
    lines[PLAIN] = (plain_ms / 1e3, 0.0)
    for first, second in itertools.combinations(lines, 2):
      rate = break_even_bps(lines[first], lines[second])
      if rate is not None:
        above = first if lines[first][0] < lines[second][0] else second
        below = second if above == first else first
        found.append({"temperature": temperature, "mbps": rate / 1e6, "faster_above": above, "faster_below": below})
  return found


def table(document: dict[str, Any]) -> str:
  """Markdown of the entries."""
  config = document["config"]
  time_of_pass = f"a target pass {config['cloud_ms']:g} + {config['cloud_token_ms']:g} ms a token"
  columns = [
    "T", "law and coding", "formula bits per token", "coded bits per token", "wire bytes per token", "per accepted token",
    "tokens per round", "resampling rate", *(f"ms per token at {rate:g} Mbit/s" for rate in UPLINKS_MBPS),
  ]  # fmt: skip
  lines = [
    f"{document['rows']} continuations of {config['tokens']} tokens, V = {document['vocab']}, ell = {config['ell']}, budget "
    f"{config['budget']:g} bits and at most {config['max_drafts']} drafts. A draft pass takes {config['edge_ms']:g} ms, "
    f"{time_of_pass}, an exchange {config['rtt_ms']:g} ms besides its bits; plain decoding {document['plain_ms']:.1f} ms a "
    "token. In brackets: 95 % intervals over prompts and seeds.",
    "",
    "| " + " | ".join(columns) + " |",
    "|---" * len(columns) + "|",
  ]
  for entry in document["entries"]:
    (low, high), accepted = entry["resampling_rate"][1:], entry["wire_bytes_per_accepted"][0]
    cells = [
      f"{entry['temperature']:g}",
      entry["name"],
      f"{entry['formula_bits_per_token'][0]:,.0f}",
      f"{entry['coded_bits_per_token'][0]:,.0f}",
      f"{entry['wire_bytes_per_token'][0]:,.0f}",
      "-" if accepted is None else f"{accepted:,.0f}",
      f"{entry['tokens_per_round'][0]:.2f}",
      f"{entry['resampling_rate'][0]:.2f} [{low:.2f}, {high:.2f}]",
      *(f"{value:.1f} [{below:.1f}, {above:.1f}]" for value, below, above in entry["ms_per_token"].values()),
    ]
    lines.append("| " + " | ".join(cells) + " |")
  return "\n".join(lines) + "\n"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  sqs_decode.add_arguments(parser)
  parser.add_argument("--max-support", type=int, default=256, help="most tokens that a threshold keeps")
  parser.add_argument("--rtt-ms", type=float, default=0.0, help="time of an exchange besides its bits")
  parser.add_argument("--temperature", type=float, action="append", help="may be repeated")
  parser.add_argument("--out", type=Path, default=Path("experiments/results/sqs_codecs.json"))
  args = parser.parse_args()
  pair = sqs_decode.load_pair(args)
  vocab, entries, started = pair.target.config.vocab_size, [], time.monotonic()
  parts = contenders(vocab, args.ell, args.max_support)
  for temperature in args.temperature or TEMPERATURES:
    for name, (codec, settings) in parts.items():
      budget = math.inf if name == NO_BUDGET else args.budget
      found = measure(pair, codec, settings, args, temperature=temperature, budget=budget)
      entries.append({"name": name, "temperature": temperature} | found)
      print(f"temperature {temperature:g}, {name}: {time.monotonic() - started:.0f} s", flush=True)
  config = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
  plain_ms = args.cloud_ms + args.cloud_token_ms
  document = {
    "config": config, "rows": pair.rows, "vocab": vocab, "commit": sqs_decode.commit(), "jax": jax.__version__,
    "plain_ms": plain_ms, "entries": entries, "break_even": break_evens(entries, plain_ms),
  }  # fmt: skip
  args.out.parent.mkdir(parents=True, exist_ok=True)
  args.out.write_text(json.dumps(document, indent=1) + "\n")
  args.out.with_suffix(".md").write_text(table(document))
  print(table(document))
  for item in document["break_even"]:
    if PLAIN in (above := item["faster_above"], below := item["faster_below"]):
      print(f"T = {item['temperature']:g}: {above} beats {below} above {item['mbps']:.3g} Mbit/s")


if __name__ == "__main__":
  main()
