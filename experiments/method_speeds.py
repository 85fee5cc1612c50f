"""Speed of every method at its recommended setting over plain decoding: calls of the target, and wall clock.

Command (a quiet machine; minutes)::

    python -m experiments.method_speeds
    python -m experiments.method_speeds --method sjd --method gsd --batch 1 --repeats 9

All methods draw the same prompts with the same keys in one process and take turns with plain decoding; ratios are of the two
runs of one turn, so that a drift of the machine cancels. Methods whose draft network the bundle lacks are skipped, with a
line that says so. Writes ``method_speeds.json`` and ``method_speeds.md``.

Published, on GPUs and hosts of billions of weights: SJD 2.2x fewer calls and GSD 3.8x (arXiv 2508.07747); LANTERN 1.7x and
LANTERN++ 2.6x in latency (arXiv 2410.03355, 2502.06352). A CPU pays for every token that it verifies.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.tables import provenance, table, timing_cell, typed_command, write
from jaxspec.cli import compilation_cache, decoding, sources
from jaxspec.cli.errors import UserError
from jaxspec.cli.settings import Settings
from jaxspec.decode import measure

# Foods and hearts, which the shipped target draws.
PROMPTS = (
  "red heart", "noto pizza on blue background", "strawberry", "fluent green heart small", "hamburger", "twemoji doughnut",
  "lemon", "broken heart",
)  # fmt: skip

# What is recommended for the shipped pictures, besides the bundle's defaults; a name may stand for a variant of a method.
RECOMMENDED: dict[str, dict[str, Any]] = {
  "speculative": {"method": "speculative", "draft": "draft-1"},
  "sjd-fresh": {"method": "sjd", "recycle": "fresh"},
  "sjd": {"method": "sjd"},
  "gsd": {"method": "gsd"},
  "lantern": {"method": "lantern", "draft": "draft-1", "factor": 2.0},
  "eagle-chain": {"method": "eagle-chain"},
  "eagle": {"method": "eagle"},
  "eagle-lantern": {"method": "eagle-lantern", "factor": 2.0},
}


class Contender(NamedTuple):
  """A method that can run."""

  source: sources.Source
  settings: Settings


def find_contenders(
  wanted: dict[str, dict[str, Any]], checkpoint: Path, say: Callable[[str], None]
) -> dict[str, Contender]:
  """Plain decoding and the methods whose networks are there, by name; the others are named to ``say``."""
  found = {}
  for name, chosen in ({"ar": {"method": "ar"}} | wanted).items():
    try:
      source = sources.from_bundle(checkpoint, list(PROMPTS), dict(chosen), compare=False)
    except UserError as error:
      if name == "ar":
        raise
      say(f"skipped {name}: {error}")
      continue
    found[name] = Contender(source, source.settings)
  return found


def race(contenders: dict[str, Contender], rows: int, *, repeats: int, seed: int, say: Callable[[str], None]) -> list[dict]:
  """The figures of every method at one batch size; JSON."""
  turns = range(repeats)
  decoders, batches = {}, {}
  for name, (source, settings) in contenders.items():
    say(f"batch {rows}: compiling {name}")
    batches[name] = [decoding.make_batches(source.condition, samples=1, seed=seed + turn, rows=rows) for turn in turns]
    decoders[name], _ = decoding.compile_decode(source, settings, batches[name][0])

  def run(name: str, turn: int):
    chosen = batches[name][turn]
    index = turn % len(chosen.key_data)
    return decoders[name](chosen.key_data[index], chosen.condition[index])

  for name in contenders:
    jax.block_until_ready(run(name, 0))  # not counted
  seconds = {name: [] for name in contenders}
  calls, draft_calls = ({name: [] for name in contenders} for _ in range(2))
  for turn in turns:
    say(f"batch {rows}: turn {turn + 1} of {repeats}")
    for name in contenders:
      result, taken = measure.timed(functools.partial(run, name, turn))
      seconds[name].append(taken)
      calls[name] += np.asarray(result.counters.target_calls).tolist()
      draft_calls[name] += np.asarray(result.counters.draft_calls).tolist()
  num_tokens = contenders["ar"].source.num_tokens
  return [
    {
      "method": name,
      "batch": rows,
      "settings": dataclasses.asdict(contender.settings),
      "step_reduction": num_tokens / float(np.mean(calls[name])) if any(calls[name]) else None,  # a device alone
      "wall_ratio": measure.pairwise_ratio(seconds["ar"], seconds[name])._asdict(),
      "tokens_per_s": rows * num_tokens / measure.Timing.of(seconds[name]).median,
      "seconds": seconds[name],
      "target_calls": calls[name],
      "draft_calls": draft_calls[name],
    }
    for name, contender in contenders.items()
  ]


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  machine = document["machine"]
  lines = [
    "# Speed over plain decoding",
    "",
    f"`{document['command']}`: jax {document['versions']['jax']}, {machine['kind']}, {machine['cpus']} cores; "
    f"{document['source']}, median [lowest, highest] of {document['repeats']} turns of all methods in one process. Below 1 "
    "the method is slower than plain decoding.",
    "",
    table(["method", "batch", "fewer target calls", "wall clock over plain", "tokens/s"], [
      [row["method"], str(row["batch"]), f"{row['step_reduction']:.2f}", timing_cell(row["wall_ratio"]),
       f"{row['tokens_per_s']:.0f}"]
      for row in document["rows"]
    ]),
  ]  # fmt: skip
  lines += [f"\n{line}" for line in document["skipped"]]
  return "\n".join(lines)


def race_parser(doc: str, *, repeats: int) -> argparse.ArgumentParser:
  """The arguments that every race against plain decoding takes."""
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--repeats", type=int, default=repeats)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/emoji64"))
  parser.add_argument("--out", type=Path, default=Path("experiments/results"))
  return parser


def main() -> None:
  parser = race_parser(__doc__, repeats=7)
  parser.add_argument("--method", action="append", choices=list(RECOMMENDED), help="repeat for several; all by default")
  parser.add_argument("--batch", action="append", type=int, help="repeat for several; 1 and 8 by default")
  args = parser.parse_args()
  compilation_cache.enable()
  skipped: list[str] = []

  def skip(line: str) -> None:
    print(line, flush=True)
    skipped.append(line)

  say = lambda line: print(line, flush=True)
  wanted = {name: RECOMMENDED[name] for name in args.method or RECOMMENDED}
  contenders = find_contenders(wanted, args.checkpoint, skip)
  rows = []
  for batch in args.batch or [1, 8]:
    rows += race(contenders, batch, repeats=args.repeats, seed=args.seed, say=say)
  about = {"command": typed_command(), "source": args.checkpoint.name, "repeats": args.repeats}
  document = about | provenance() | {"skipped": skipped, "rows": rows}
  write("method_speeds", document, render(document), args.out)


if __name__ == "__main__":
  main()
