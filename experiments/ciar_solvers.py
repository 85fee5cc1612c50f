"""What a score costs on the device: CIAR's against entropies of discrete sets (CIAR, arXiv 2603.25463, Figure 5).

Command (two minutes)::

    python -m experiments.ciar_solvers

Random heads of 512 codes (the shipped vocabulary) and of 16384 (LlamaGen's); seconds of one place, the median of `REPEATS`
compiled sweeps over `PLACES` places, one after the other. The paper measures a discrete baseline by "enumeration of
solutions", whose cost grows exponentially; that cost belongs to the search (``generic``), not to the quantity: water-filling
finds the same largest entropy in time linear in k. Writes ``ciar_solvers.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import rng
from jaxspec.decode.measure import Timing, alternate
from jaxspec.intervals.discrete import MAX_GENERIC
from jaxspec.intervals.scores import ScoreFn, make_score
from jaxspec.types import Intervals

VOCABULARIES = (512, 16384)
PLACES, REPEATS = 32, 5
WATERFILL = (2, 4, 6, 8, 25, 50, 100, 200, 400)
GENERIC = tuple(range(2, MAX_GENERIC + 1, 2))
GAPS = (2, 4, 8, 12, 25, 100)


def names() -> list[str]:
  """The scores that are timed."""
  waterfill = [f"discrete:{k}" for k in WATERFILL]
  generic = [f"discrete:{k}:generic" for k in GENERIC]
  return ["interval", "entropy", *waterfill, *[f"discrete:{k}:gap" for k in GAPS], *generic]


def sweep(score_fn: ScoreFn, intervals: Intervals, keys: jax.Array) -> jax.Array:
  """Sum of the scores of all places ``[P, 1, 1, V]``, one after the other, so that nothing is batched."""

  def one(_, place):
    at, key = place
    return None, score_fn(at, jnp.zeros((1, 1)), key[None])[0]

  return jnp.sum(jax.lax.scan(one, None, (intervals, keys))[1])


def random_heads(vocab: int, seed: int = 0) -> Intervals:
  """Head outputs ``[P, 1, 1, V]`` with centres of spread 3 and radii around one half."""
  generator = np.random.default_rng(seed)
  shape = (PLACES, 1, 1, vocab)
  centre, radius = generator.normal(size=shape) * 3, generator.gamma(4, 1 / 8, size=shape)
  return Intervals(jnp.asarray(centre, jnp.float32), jnp.asarray(radius, jnp.float32))


def measure(vocab: int) -> list[dict[str, Any]]:
  """Seconds per place of every score; JSON."""
  intervals, keys = random_heads(vocab), rng.row_keys(jax.random.key(0), PLACES)
  calls = {}
  for name in names():
    run = jax.jit(lambda x, k, score_fn=make_score(name): sweep(score_fn, x, k))
    calls[name] = lambda run=run: run(intervals, keys)
  seconds = alternate(calls, REPEATS)
  return [
    {"score": name, "vocab": vocab} | {k: v / PLACES for k, v in Timing.of(values)._asdict().items()}
    for name, values in seconds.items()
  ]


def render(document: dict[str, Any]) -> str:
  """The table in Markdown, microseconds."""
  lines = [
    "# Time of a score",
    "",
    f"`{document['command']}` on {document['device']}, {document['cpus']} cores: microseconds per place at batch 1, median "
    f"[lowest, highest] of {REPEATS} sweeps over {PLACES} places.",
    "",
    "| score | " + " | ".join(f"{vocab} codes" for vocab in VOCABULARIES) + " |",
    "|---|" + "---|" * len(VOCABULARIES),
  ]
  cell = lambda row: f"{1e6 * row['median']:.0f} [{1e6 * row['low']:.0f}, {1e6 * row['high']:.0f}]"
  for name in names():
    cells = [cell(row) for row in document["rows"] if row["score"] == name]
    lines.append("| " + " | ".join([name, *cells]) + " |")
  return "\n".join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  args = parser.parse_args()
  document = {
    "command": "python -m experiments.ciar_solvers",
    "device": jax.devices()[0].device_kind,
    "cpus": os.cpu_count(),
    "jax": jax.__version__,
    "rows": [row for vocab in VOCABULARIES for row in measure(vocab)],
  }
  args.results.mkdir(parents=True, exist_ok=True)
  (args.results / "ciar_solvers.json").write_text(json.dumps(document, indent=1) + "\n")
  text = render(document)
  (args.results / "ciar_solvers.md").write_text(text + "\n")
  print(text)


if __name__ == "__main__":
  main()
