"""Engines of tiny networks, and many edges that use one at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

import jaxspec
from jaxspec.core.types import ModelFns
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.open_stream import EdgeStream, StreamStart
from jaxspec.serving.server.engine import Engine, EngineSettings
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire.handshake import Handshake
from tests.helpers import TARGET, markov_fns
from tests.serving.edge.pairs import CLASSES, MAX_LEN, Case, case_named, rows_of

EXAMPLE = ClassLabels(np.full(1, CLASSES - 1, np.int32))


class Served(NamedTuple):
  """An engine, and the cases that its profiles serve."""

  engine: Engine
  cases: tuple[Case, ...]

  def edge(self, profile: int, **options) -> Edge:
    """An edge of one profile."""
    return self.cases[profile].edge(profile=profile, **options)

  def start(self, edge: Edge, row: int) -> StreamStart:
    """Begins one of `rows_of` at an edge."""
    return edge.open(*reversed(one_row(row)), model=self.engine.model)

  def handshake(self, row: int, profile: int = 0) -> Handshake:
    """The handshake of one of `rows_of`."""
    return self.start(self.edge(profile), row).handshake


def model_of(name: str, case: Case) -> ModelFns:
  """The target of a case."""
  return llamagen_fns(TARGET) if name.startswith("transformer") else markov_fns(case.codec.limits.vocab)


def serve(*names: str, warp: jaxspec.Warp = jaxspec.Warp(), **options) -> Served:
  """An engine with a profile for each case; they share their target."""
  cases = tuple(map(case_named, names))
  for case in cases[1:]:
    jax.tree.map(np.testing.assert_array_equal, case.params.target, cases[0].params.target)
  profiles = [ServedProfile(case.codec, warp) for case in cases]
  options = dict(max_streams=8, max_rows=4, max_len=MAX_LEN, widths=(8,), idle_s=1e9, forget_s=1e9) | options
  params, model, settings = cases[0].params.target, model_of(names[0], cases[0]), EngineSettings(**options)
  return Served(Engine(params, model, profiles, example=EXAMPLE, settings=settings), cases)


def one_row(row: int) -> tuple[jax.Array, ClassLabels]:
  """Key ``[1]`` and condition of one of `rows_of`."""
  return rows_of(1, first=row)


class Rows(NamedTuple):
  """What came of each row."""

  tokens: list[np.ndarray]  # [N]
  frames: list[list[bytes]]  # all that the engine answered
  caches: list[bytes]  # bits of the read part of the cache at the end of the row


def decode(
  served: Served,
  edges: Sequence[Edge],
  *,
  rows: Sequence[int] | None = None,
  generator: np.random.Generator | None = None,
  before_call: Callable[[Engine, bytes, EdgeStream], None] | None = None,
) -> Rows:
  """Decodes one row by each edge, all at once.

  Args:
    rows: which of `rows_of` each edge decodes; the first ones by default.
    generator: which edges call before a step; all that can by default.
    before_call: what happens to a stream before each of its calls.
  """
  engine, number = served.engine, len(edges)
  rows = range(number) if rows is None else rows
  names = [bytes([index]) * 16 for index in range(number)]
  starts = [served.start(edge, row) for edge, row in zip(edges, rows)]
  streams: dict[int, EdgeStream] = {}
  by_name = dict(zip(names, range(number)))
  frames: list[list[bytes]] = [[] for _ in names]
  caches, now = [b""] * number, 0.0
  for name, start in zip(names, starts):
    engine.open(name, start.handshake)
  ready: set[int] = set()
  done = 0
  while done < number:
    now += 1.0
    for index in sorted(ready):
      if generator is None or generator.random() < 0.5:
        ready.remove(index)
        if before_call is not None:
          before_call(engine, names[index], streams[index])
        if engine.knows(names[index]):
          engine.submit(names[index], *streams[index].request[1:])
    for name, answer in engine.step(now):
      index = by_name[name]
      assert isinstance(answer, bytes), answer
      frames[index].append(answer)
      if index in streams:
        streams[index].receive(answer)
      else:
        streams[index] = starts[index].receive(answer)
      if streams[index].request is None:
        caches[index] = cache_bits(engine, name)
        engine.close(name)
        done += 1
      else:
        ready.add(index)
    assert now < 2000, "the engine does not come to an end"
  return Rows([np.asarray(streams[index].outcome()[0].tokens[0]) for index in range(number)], frames, caches)


def cache_bits(engine: Engine, name: bytes) -> bytes:
  """Bits of the read part of a stream's cache, for a stream with a slot."""
  cache, size = engine.cache_of(name)
  first = lambda leaf: leaf[:, :size] if leaf.ndim == 2 else leaf[..., :size, :]  # masks [B, S], entries [.., S, D]
  return b"".join(first(np.asarray(leaf)).tobytes() for leaf in jax.tree.leaves(cache))
