"""Times of the passes of two networks, for models of latency and floors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.engine import statistics
from experiments.engine.bench import Bench
from experiments.engine.rows import Row
from jaxspec.core.network import Network
from jaxspec.core.packing import PackedPositions, packed
from jaxspec.core.types import Array, ModelFns, Params, PyTree
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


class CloudPass(NamedTuple):
  """A size of the cloud's passes.

  Attributes:
    inputs: of all rows together.
    rows: most rows with inputs.
    reach: most inputs of one row.
    seconds: of a pass alone, median.
  """

  inputs: int
  rows: int
  reach: int
  seconds: float


class ExchangePasses(NamedTuple):
  """Times of the passes of a batch that a decode of CIAR makes.

  Attributes:
    edge_s: seconds of a pass of the edge for one new token of every row, median.
    cloud: sizes of the cloud's passes, ascending.
  """

  edge_s: float
  cloud: tuple[CloudPass, ...]


def of_exchange(bench: Bench, row: Row, batch: int, *, repeats: int = 5) -> ExchangePasses:
  """Times the passes of a row of CIAR alone, with the shapes of its decode, in the middle of the rows.

  Raises:
    ValueError: for several rows of a network whose rows do not share passes.
  """
  parts, length = bench.decoder(row).parts, bench.pipeline.family.space.num_tokens
  verifier, params = parts.verifier, parts.params
  if batch > 1 and not verifier.packs(batch):
    raise ValueError(f"Must have a cloud whose rows share passes at batch {batch}, we instead got one without")
  condition = jax.tree.map(lambda leaf: leaf[:batch], bench.condition)
  # With several rows every pass of the edge reads two tokens of each (`CiarDrafter.draft`).
  edge = functools.partial(edge_passes, parts.drafter.model, width=2 if batch > 1 else 1)
  run = {"edge": (edge, params.draft.model.model)}
  for size in verifier.sizes(batch):
    if batch > 1:
      of = dict(size=size, width=verifier.reach(batch), most_rows=verifier.most_rows(size, batch))
      passes = functools.partial(packed_passes, verifier.model, **of)
    else:
      passes = functools.partial(score_block, verifier.model, block=size)
    run[size] = passes, params.target.model

  def calls_of(name: str | int, number: int) -> Callable[[], PyTree]:
    passes, weights = run[name]
    program = jax.jit(lambda weights: passes(params=weights, condition=condition, repeats=number, max_len=length))
    return lambda: program(weights)

  few, many = 1, 1 + max(PASSES // batch, 8)
  with bench.pipeline.context():
    seconds = alternate({(name, number): calls_of(name, number) for name in run for number in (few, many)}, repeats)
  found = {
    name: statistics.median([(b - a) / (many - few) for a, b in zip(seconds[name, few], seconds[name, many], strict=True)])
    for name in run
  }
  sizes = verifier.sizes(batch)
  cloud = (CloudPass(size, verifier.most_rows(size, batch), verifier.reach(batch), found[size]) for size in sizes)
  return ExchangePasses(found["edge"], tuple(cloud))


def edge_passes(fns: ModelFns, params: Params, condition: PyTree, *, width: int, repeats: int, max_len: int) -> Array:
  """As `score_block`, for passes of an edge network with the logits and radii of the last token of every row."""
  cache, start = _middle(fns, params, condition, max_len, width)
  last = jnp.full(start.shape, width - 1)

  def body(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
    cache, tokens = carry
    positions = start[:, None] + jnp.arange(width)[None]
    output, cache = fns.apply(params, tokens, cache, positions=positions, logits_at=last)
    logits = output.need_logits() if output.intervals is None else output.intervals.centre + output.intervals.radius
    newest = jnp.argmax(logits.reshape(start.shape[0], -1), axis=-1) % output.need_logits().shape[-1]
    return cache, jnp.concatenate([tokens[:, 1:], newest[:, None].astype(jnp.int32)], axis=1)

  tokens = jnp.zeros((start.shape[0], width), jnp.int32)
  return jax.lax.fori_loop(0, repeats, body, (cache, tokens))[1][:, 0]


def packed_passes(
  fns: ModelFns, params: Params, condition: PyTree, *, size: int, width: int, most_rows: int, repeats: int, max_len: int
) -> Array:
  """As `score_block`, for passes in which ``most_rows`` rows share ``size`` inputs, at most ``width`` of each."""
  cache, start = _middle(fns, params, condition, max_len, width)
  rows = start.shape[0]

  def body(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
    cache, tokens = carry
    left = jnp.where(jnp.arange(rows) < most_rows, -(-size // most_rows), 0)
    packing = packed(left, size, width, most_rows)
    positions = PackedPositions((start[packing.row] + packing.number)[None], start, packing)
    output, cache = fns.apply(params, tokens, cache, positions=positions)
    return cache, jnp.argmax(output.need_logits(), axis=-1).astype(jnp.int32)

  return jax.lax.fori_loop(0, repeats, body, (cache, jnp.zeros((1, size), jnp.int32)))[1][0]


def _middle(fns: ModelFns, params: Params, condition: PyTree, max_len: int, width: int) -> tuple[PyTree, Array]:
  """A cache after the prefill, and positions ``[B]`` in the middle of every row."""
  prefix, rows = fns.prefix_len(condition), condition.batch_size
  cache = fns.init_cache(rows, prefix + max_len + width)
  _, cache = fns.apply(params, condition, cache, positions=jnp.arange(prefix)[None], logits_at=jnp.zeros((1,), jnp.int32))
  return cache, jnp.full((rows,), prefix + max_len // 2)
