"""Servers of a tiny random network on one device and on meshes; prints one JSON line.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.serving.server.on_devices FOLDER
"""

import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np

from jaxspec.core.types import PyTree
from jaxspec.io.bundle import write_bundle
from jaxspec.methods import Plain, Sqs
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.planning import program_text
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from jaxspec.serving.server import cache_table, from_bundle
from jaxspec.serving.server.engine import Engine
from jaxspec.serving.server.step_arrays import batch_of
from jaxspec.serving.wire.method_codecs import codec_of
from tests import devices
from tests.run import tiny
from tests.serving.edge.pairs import Case
from tests.serving.server.crowds import Rows, Served, decode

LAYERS, SCALE = 1, 2.0  # the exchanges of two blocks are counted in tests/run
TARGET = LlamaGenConfig(num_layers=LAYERS, dim=64, num_heads=8, vocab_size=16, num_tokens=9, num_classes=7, multiple_of=64)
METHODS = (Sqs(coding="lazy", sparsifier="topk", support=4, max_drafts=4), Plain())
MESHES = ("data=2,model=4", "data=8")
EDGES = 12


def make_bundle(path: Path) -> None:
  """Images by class, guided, with a small draft."""
  tiny.save(path / "vq", dataclasses.replace(tiny.VQ, image_size=12, num_codes=16), 0)
  tiny.save(path / "target", TARGET, 2, scale=0.2)
  tiny.save(path / "small", dataclasses.replace(TARGET, num_layers=1, dim=32), 3, scale=0.2)
  write_bundle(path, target="target", drafts={"small": "small"}, parts={"tokenizer": "vq"}, sampling={"cfg_scale": SCALE})


def served(path: Path, mesh: str | None) -> Served:
  """An engine of the bundle with two profiles, and what edges of each need: the networks of one device."""
  pipeline = load_pipeline(path, mesh=mesh)
  engine = from_bundle.engine_of(pipeline, METHODS, max_streams=8, max_rows=8, widths=(8,), idle_s=1e9)
  return Served(engine, tuple(case_of(load_pipeline(path), method) for method in METHODS))


def case_of(pipeline: Pipeline, method) -> Case:
  parts = pipeline.decoder(pipeline.method(method)).parts
  return Case(parts.params, parts.drafter, parts.verifier, codec_of(pipeline.method(method), TARGET.vocab_size))


def crowd(of: Served, seed: int | None = None, rows: range = range(EDGES)) -> Rows:
  """Rows of both profiles at once, more than there are slots."""
  edges = [of.edge(row % len(METHODS), max_len=TARGET.num_tokens, cfg_scale=SCALE) for row in rows]
  return decode(of, edges, rows=rows, generator=None if seed is None else np.random.default_rng(seed))


def exchanges(engine: Engine, number: int) -> dict[str, int]:
  """What the devices exchange in a step."""
  programs, profile = engine.programs, engine.programs.profiles[number]
  rows = from_bundle.meshes.rows(batch_of(profile, 8, (), programs.sizes), programs.mesh)
  statics = dict(model=programs.model, verifier=profile.verifier(programs.model), may_request=profile.may_request)
  lowered = cache_table.step.lower(programs.params, engine.table, *rows, **statics, mesh=programs.mesh)
  compiled = lowered.compile()
  kept = compiled.memory_analysis().alias_size_in_bytes
  found = program_text.exchanges(compiled.as_text().splitlines())
  return found | {"kept": kept, "table": bytes_of_one(engine.table)}


def bytes_of_one(table: PyTree) -> int:
  """Bytes of a table on one device."""
  return sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(table))


def main(path: Path) -> dict:
  """Everything that the tests look at."""
  of_one = served(path, None)
  one = crowd(of_one, 0)
  found, numerics = {}, [of_one.engine.numerics.hex()]
  for mesh in MESHES:
    of = served(path, mesh)
    first, other = crowd(of), crowd(of, 1)
    alone = crowd(of, rows=range(1))
    found[mesh] = {
      "same": np.array_equal(first.tokens, one.tokens) and np.array_equal(other.tokens, one.tokens),
      "bytes": first.frames == other.frames and first.caches == other.caches and alone.frames == first.frames[:1],
      "exchanges": [exchanges(of.engine, number) for number in range(len(METHODS))],
      "free": of.engine._streams.num_free,
    }
    numerics.append(of.engine.numerics.hex())
    print(mesh, found[mesh], file=sys.stderr, flush=True)
  return {"meshes": found, "numerics": numerics}


if __name__ == "__main__":
  devices.program(make_bundle, main)
