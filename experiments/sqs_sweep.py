"""Sweeps K-SQS and C-SQS over temperature: the numbers behind figures 2, 4, 5 and 6 of arXiv 2510.09942.

Commands (minutes on two idle cores; SmolLM2 takes hours there and minutes on a GPU)::

    python -m experiments.sqs_sweep
    python -m experiments.sqs_sweep --model weights/smollm2 --draft-model DIR --text "Once upon a time" --budget 5000 \\
      --out runs/sqs_smollm2.json
    python -m experiments.sqs_figures

Writes ``experiments/results/sqs_sweep.json``: one entry for each temperature and setting, with modelled latency per token,
resampling rate and their 95 % intervals over prompts and seeds. Counted are draft passes, formula bits on the uplink and
target passes (`jaxspec.link.timing`); downlink and round trip are free, as in the paper. The paper states no rate, times,
prompts or lengths. Its settings are ell = 100, eta = 0.001, alpha = 0.0005; a second controller (eta = 0.05, alpha = 0.05)
moves far enough within a continuation to show what adapting does. Expected shape: K-SQS slows with temperature, C-SQS less.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments import sqs_decode
from experiments.sqs_decode import ratio
from jaxspec.codecs.codec import SparseCodec, conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import ConformalParams
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.decode.state import DecodeResult
from jaxspec.link.timing import Compute, Link, decode_seconds
from jaxspec.metrics.compression import count_rounds
from jaxspec.types import PyTree

SUPPORTS = (4, 8, 16, 32, 64, 128)
FIRST = (1e-3, 5e-3, 2e-2, 1e-1)
CONTROLLERS = ((0.0, 5e-4), (1e-3, 5e-4), (5e-2, 5e-2))  # eta, alpha: fixed, as published, quick
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)


def grid(vocab: int, max_support: int, ell: int) -> list[tuple[SparseCodec, list[dict[str, Any]], list[PyTree]]]:
  """Codecs, what is said about each setting, and its traced parameters."""
  sizes = [size for size in SUPPORTS if size <= vocab]
  top = topk_lattice(vocab, max(sizes), ell=ell)
  labels = [{"sparsifier": "topk", "support": size} for size in sizes]
  cells = [(top, labels, [TopKParams(jnp.int32(size)) for size in sizes])]
  chosen = [(first, eta, alpha) for eta, alpha in CONTROLLERS for first in FIRST]
  labels = [{"sparsifier": "conformal", "beta1": first, "eta": eta, "alpha": alpha} for first, eta, alpha in chosen]
  codec = conformal_lattice(vocab, min(max_support, vocab), ell=ell)
  return [*cells, (codec, labels, [ConformalParams(*map(jnp.float32, numbers)) for numbers in chosen])]


def entry_of(
  result: DecodeResult, label: dict[str, Any], temperature: float, compute: Compute, link: Link
) -> dict[str, Any]:
  """Figures of one setting; leaves of the result ``[rows, ...]``."""
  counts, stats = count_rounds(result), result.report.stats
  seconds = decode_seconds(
    compute, link, edge_passes=counts.edge_passes, rounds=counts.rounds, drafted=counts.drafted,
    uplink_bits=stats.formula_bits,
  )  # fmt: skip
  ratios = {
    "ms_per_token": (seconds * 1e3, counts.tokens),
    "resampling_rate": (counts.rejected, counts.rounds),
    "bits_per_token": (stats.formula_bits, counts.tokens),
    "tokens_per_round": (counts.tokens, counts.rounds),
    "drafts_per_round": (counts.drafted, counts.rounds),
    "mean_support": (stats.support, counts.drafted),
    "dropped": (stats.dropped, counts.tokens),
    "empty_share": (counts.empty_rounds, counts.rounds),
  }
  found = {name: ratio(above, below) for name, (above, below) in ratios.items()}
  if result.report.sparsifier:
    found["final_beta"] = float(result.report.sparsifier.high.mean())
  return label | {"temperature": temperature} | found


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  sqs_decode.add_arguments(parser)
  parser.add_argument("--max-support", type=int, default=256, help="most tokens that a threshold keeps")
  parser.add_argument("--uplink-mbps", type=float, default=1.0)
  parser.add_argument("--temperature", type=float, action="append", help="may be repeated")
  parser.add_argument("--out", type=Path, default=Path("experiments/results/sqs_sweep.json"))
  args = parser.parse_args()
  pair = sqs_decode.load_pair(args)
  compute = Compute(args.edge_ms / 1e3, args.cloud_ms / 1e3, args.cloud_token_ms / 1e3)
  link, entries, started = Link(args.uplink_mbps * 1e6), [], time.monotonic()
  for codec, labels, settings in grid(pair.target.config.vocab_size, args.max_support, args.ell):
    for temperature in args.temperature or TEMPERATURES:
      options = dict(temperature=temperature, budget=args.budget, max_drafts=args.max_drafts)
      out = sqs_decode.decode_settings(pair, codec, settings, num_tokens=args.tokens, **options)
      for index, label in enumerate(labels):
        row = jax.tree.map(lambda leaf: leaf[index], out)  # noqa: B023
        entries.append(entry_of(row, label, temperature, compute, link))
      kind = labels[0]["sparsifier"]
      print(f"{kind}, temperature {temperature:g}: {time.monotonic() - started:.0f} s", flush=True)
  config = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
  document = {"config": config, "rows": pair.rows, "commit": sqs_decode.commit(), "jax": jax.__version__, "entries": entries}
  args.out.parent.mkdir(parents=True, exist_ok=True)
  args.out.write_text(json.dumps(document, indent=1) + "\n")
  print(f"wrote {args.out}")


if __name__ == "__main__":
  main()
