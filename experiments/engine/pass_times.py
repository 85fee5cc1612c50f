"""Times of the passes of two networks, for models of latency and floors."""

from __future__ import annotations

from typing import NamedTuple

import jax

from experiments.engine import statistics
from experiments.engine.bench import Bench
from experiments.engine.rows import Row
from jaxspec.core.network import Network
from jaxspec.run.measure import alternate, score_block
from jaxspec.serving.wire.timing import Compute

PASSES = 128  # in one timed program, to amortise its dispatch
WIDTHS = (1, 2, 4, 8, 16, 32)


class PassTimes(NamedTuple):
  """Medians in ms, each with its lowest and highest repeat; a dict of it is JSON.

  Attributes:
    edge_ms: a pass of the draft network over one token.
    cloud_ms: a pass of the target over one token, less ``cloud_token_ms``.
    cloud_token_ms: additional time of the target per token, between one and ``block``.
    spread: ``[lowest, highest]`` of the pass of the draft, and of the target's over one token and over ``block``.
  """

  edge_ms: float
  cloud_ms: float
  cloud_token_ms: float
  block: int
  spread: dict[str, list[float]]

  @property
  def compute(self) -> Compute:
    """Times in seconds."""
    return Compute(self.edge_ms / 1e3, self.cloud_ms / 1e3, self.cloud_token_ms / 1e3)


def measure(bench: Bench, row: Row, *, block: int, max_len: int, repeats: int = 15) -> PassTimes:
  """Times both networks of a row at batch 1, in the middle of a row of ``max_len`` tokens; the calls take turns."""
  decoder = bench.decoder(row)
  condition = jax.tree.map(lambda leaf: leaf[:1], bench.condition)

  def passes(network: Network, tokens: int, number: int):
    run = jax.jit(lambda params: score_block(network.fns, params, condition, block=tokens, repeats=number, max_len=max_len))
    return lambda: run(network.params)

  timed = {"edge": (decoder.drafting, 1), "cloud": (decoder.target, 1), "cloud, block": (decoder.target, block)}
  calls = {
    (name, number): passes(network, tokens, number)
    for name, (network, tokens) in timed.items()
    for number in (1, 1 + PASSES)
  }
  with bench.pipeline.context():
    seconds = alternate(calls, repeats)
  # The shorter program has the same prefill and dispatch.
  each = {
    name: [1e3 * (more - less) / PASSES for less, more in zip(seconds[name, 1], seconds[name, 1 + PASSES], strict=True)]
    for name in timed
  }
  edge, one, many = (statistics.median(each[name]) for name in timed)
  token = max(many - one, 0.0) / (block - 1)
  spread = {name: [min(values), max(values)] for name, values in each.items()}
  return PassTimes(edge, max(one - token, 0.0), token, block, spread)


def by_width(bench: Bench, row: Row, batch: int, *, repeats: int = 5) -> dict[int, float]:
  """Seconds of the target's passes over 1 to 32 tokens of each of ``batch`` rows, medians."""
  decoder = bench.decoder(row)
  length = bench.pipeline.family.space.num_tokens
  fns, side = decoder.sampling.side(decoder.target)
  condition = jax.tree.map(lambda leaf: leaf[:batch], bench.condition)

  def passes(width: int, number: int):
    run = jax.jit(lambda params: score_block(fns, params, condition, block=width, repeats=number, max_len=length))
    return lambda: run(side.model)

  found = {}
  for width in WIDTHS:
    more = 1 + max(PASSES // (batch * width), 4)
    with bench.pipeline.context():
      seconds = alternate({"one": passes(width, 1), "more": passes(width, more)}, repeats)
    each = [(b - a) / (more - 1) for a, b in zip(seconds["one"], seconds["more"], strict=True)]
    found[width] = statistics.median(each)
  return found
