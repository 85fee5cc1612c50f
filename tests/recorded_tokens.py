"""Recorded tokens of the shipped bundles by every method, to detect changes.

    python -m tests.recorded_tokens                 # draws everything and compares; minutes
    python -m tests.recorded_tokens --write         # records anew
    python -m tests.recorded_tokens scenes wordnet  # these bundles only; --write leaves the others as they are

Discrete tokens are stored as a digest, continuous ones as arrays. Rounding can change single tokens, so tokens are compared
only if the versions of jax and jaxlib, the processor with its vector instructions, and the number of its cores equal those
of the record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from jaxspec.core import rng
from jaxspec.core.options import options_of
from jaxspec.families.family import Encoded
from jaxspec.run.generation import Generation
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline

FOLDER = Path(__file__).parent / "recorded"
FILE = FOLDER / "tokens.json"
COUNTERS = ("target_calls", "accepted", "drafted", "draft_calls", "rounds")
TOLERANCE = 1e-6  # of continuous tokens

ROWS, SEEDS = 8, (0, 1)
PROMPTS = {
  "scenes": [
    "a cat", "two stars", "a red heart and a blue star", "a cat left of a tree on a yellow background", "three apples",
    "a green circle above a house", "an orange square on a blue background", "a dog and a yellow moon",
  ],
  "wordnet": [
    "a kind of", "the act of", "a person who", "(of animals)", "Once upon a time", "an instrument", "in a manner",
    "the color of",
  ],
}  # fmt: skip
MAX_LEN = {"wordnet": 32}

# bundle -> method -> settings: options of the method and sampling settings together. A case takes up to a minute;
# tests/contract and tests/rules have other settings.
CASES: dict[str, dict[str, list[dict[str, Any]]]] = {
  "scenes": {
    "ar": [{}],
    "speculative": [{}],
    "sqs": [{}],
    "lantern": [{}],
    "sjd": [{}],
    "gsd": [{"max_gap": 1.0, "max_distance": 4.0}],
    "scaled": [{}],
    "eagle": [{}],
    "eagle-chain": [{}],
    "eagle-lantern": [{}],
    "ciar": [{}],
    "ngram": [{}],
    "rows": [{}, {"row_window": 8}],
  },
  "wordnet": {
    "ar": [{}],
    "speculative": [{"gamma": 4}],
    "sqs": [{"max_drafts": 16}],
    "sjd": [{}],
    "ngram": [{}],
  },
  "digits32-causal": {
    "ar": [{}],
    "cspd": [{}, {"exact": True, "gamma": 5, "target_prefix": 0.1}],
  },
  "digits32-mar": {
    "ar": [{"steps": "10", "stop": 1}],
    "parallel": [{}],
    "cspd": [{"steps": "10", "stop": 1, "gamma": 4}],
  },
}


def machine() -> dict[str, Any]:
  """Properties of the machine that determine rounding."""
  try:
    about = Path("/proc/cpuinfo").read_text()
  except OSError:
    about = ""
  flags = set(about.split())
  simd = sorted(flag for flag in flags if flag.startswith(("avx", "amx", "fma", "sse", "asimd", "sve")))
  models = dict(re.findall(r"^(vendor_id|cpu family|model|stepping)\s*: (.*)$", about, re.MULTILINE))
  return {
    "jax": jax.__version__, "jaxlib": jaxlib.__version__, "processor": platform.machine(), "instructions": simd,
    "model": " ".join(models.values()), "cores": os.cpu_count(),
  }  # fmt: skip


def difference(recorded: dict[str, Any]) -> str | None:
  """The reason why tokens may differ from a record; None if they must be equal."""
  here = machine() | {"backend": jax.default_backend()}
  for name, value in (recorded | {"backend": "cpu"}).items():
    if here[name] != value:
      return f"recorded with another {name}: {value}, here {here[name]}"
  return None


def batch(pipe: Pipeline) -> tuple[Encoded, jax.Array]:
  """Eight prompts, each under two seeds: the encoded prompts and their row keys."""
  prompts = PROMPTS.get(pipe.name) or [(row * 5) % len(pipe.family.classes) for row in range(ROWS)]
  encoded = pipe.encode(prompts)
  twice = jax.tree.map(lambda leaf: np.concatenate([leaf] * len(SEEDS)), encoded.condition)
  keys = jnp.concatenate([rng.row_keys(jax.random.key(seed), ROWS) for seed in SEEDS])
  return Encoded(twice, encoded.captions * len(SEEDS)), keys


def draw(pipe: Pipeline, method: str, settings: dict[str, Any]) -> Generation:
  """One case."""
  of_sampling = options_of(pipe.family.sampling_type)
  sampling = {name: value for name, value in settings.items() if name in of_sampling}
  options = {name: value for name, value in settings.items() if name not in of_sampling}
  encoded, keys = batch(pipe)
  return pipe(encoded, key=keys, method=pipe.method(method, **options), max_len=MAX_LEN.get(pipe.name), **sampling)


def entry(out: Generation) -> dict[str, Any]:
  """The record of a case, without continuous tokens."""
  found: dict[str, Any] = {name: int(getattr(out.counters, name).sum()) for name in COUNTERS}
  if np.issubdtype(out.tokens.dtype, np.integer):
    data = out.tokens.astype("<i4").tobytes() + out.lengths.astype("<i4").tobytes()
    found["sha256"] = hashlib.sha256(data).hexdigest()
  return found


def draw_bundle(name: str) -> Iterator[tuple[str, dict[str, Any], Generation]]:
  """Every case of a bundle: its name, its settings, its result."""
  pipe = load_pipeline(name, matmul_precision="float32")
  for method, settings in CASES[name].items():
    for number, chosen in enumerate(settings):
      yield f"{name}/{method}/{number}", chosen, draw(pipe, method, chosen)


def read() -> dict[str, Any]:
  """The record: ``machines`` by bundle, and ``cases`` by name."""
  return json.loads(FILE.read_text(encoding="utf-8"))


def read_vectors(name: str) -> dict[str, np.ndarray]:
  """Continuous tokens of the cases of a bundle, ``[rows, L, C]`` float32; {} for discrete tokens."""
  file = FOLDER / f"{name}.npz"
  if not file.is_file():
    return {}
  with np.load(file) as archive:
    return {case: archive[case] for case in archive.files}


def compare(case: str, out: Generation, recorded: dict[str, Any], vectors: dict[str, np.ndarray]) -> list[str]:
  """Differences from the record, one line each."""
  found = entry(out).items()
  wrong = [f"{case}: {name} {value} instead of {recorded[name]}" for name, value in found if value != recorded[name]]
  if case in vectors:
    gap = float(np.abs(out.tokens - vectors[case]).max())
    wrong += [f"{case}: vectors differ by up to {gap:g}"] if not gap <= TOLERANCE else []
  return wrong


def merged(document: dict[str, Any], names: Collection[str], fresh: dict[str, Any]) -> dict[str, Any]:
  """A record with new cases of these bundles, the old ones of the others, and without bundles outside of `CASES`."""
  machines, cases = {}, {}
  for name in CASES:
    is_fresh = name in names
    if is_fresh or name in document["machines"]:
      machines[name] = machine() if is_fresh else document["machines"][name]
    source = fresh if is_fresh else document["cases"]
    cases |= {case: about for case, about in source.items() if case.startswith(f"{name}/")}
  return {"machines": machines, "cases": cases}


def use_all_cores() -> None:
  """Rounding of sums depends on the number of cores, and a worker of the suite has one."""
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, range(os.cpu_count()))


def run_as_recorded(*words: str) -> subprocess.CompletedProcess:
  """``python -m words`` in a process with the compiler's defaults and a compilation cache."""
  kept = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
  env = {name: value for name, value in os.environ.items() if name in kept or not name.startswith(("XLA_", "JAX_"))}
  command = [sys.executable, "-m", *words]
  return subprocess.run(command, env=env | {"JAX_PLATFORMS": "cpu"}, cwd=FOLDER.parents[1], capture_output=True, text=True)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("bundles", nargs="*", choices=[[], *CASES])
  parser.add_argument("--write", action="store_true", help="record anew")
  args = parser.parse_args()
  use_all_cores()
  document = read() if FILE.is_file() else {"machines": {}, "cases": {}}
  chosen, fresh, failed = args.bundles or list(CASES), {}, []
  for name in chosen:
    if not args.write and (why := difference(document["machines"][name])):
      print(f"{name}: tokens may differ: {why}")
    vectors, recorded = read_vectors(name), {}
    started = time.perf_counter()
    for case, settings, out in draw_bundle(name):
      lines = [f"{case}: recorded"]
      if args.write:
        fresh[case] = {"settings": settings} | entry(out)
        if "sha256" not in fresh[case]:
          recorded[case] = out.tokens
      else:
        lines = compare(case, out, document["cases"][case], vectors)
        failed += lines
      print("\n".join(lines) or f"{case}: as recorded", f"({time.perf_counter() - started:.1f} s)", flush=True)
      started = time.perf_counter()
    if recorded:
      np.savez_compressed(FOLDER / f"{name}.npz", **recorded)
  if args.write:
    FOLDER.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(merged(document, chosen, fresh), indent=1) + "\n", encoding="utf-8")
    for path in FOLDER.glob("*.npz"):
      if path.stem not in CASES:
        path.unlink()
  elif failed:
    raise SystemExit(1)


if __name__ == "__main__":
  main()
