"""What a network says of given tokens: its output at the position of every one of them, after those before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.batches import in_batches
from experiments.engine.bench import Bench
from experiments.engine.cache import key_of, tree_digest
from experiments.engine.rows import Row
from jaxspec.core.state import DecodeResult, Origin
from jaxspec.core.types import Array, ModelFns, ModelOutput, Params, PyTree
from jaxspec.intervals.heads import combined_logits
from jaxspec.statistics import bounded_ratio


def read(fns: ModelFns, params: Params, condition: PyTree, tokens: Array) -> ModelOutput:
  """The output at the positions that draw ``tokens [B, N]``, leaves ``[B, N, ...]``; features are left out."""
  prefix, (rows, length) = fns.prefix_len(condition), tokens.shape
  cache, at = fns.init_cache(rows, prefix + length), jnp.full((1,), prefix - 1)
  first, cache = fns.apply(params, condition, cache, positions=jnp.arange(prefix)[None], logits_at=at)
  rest, _ = fns.apply(params, tokens[:, :-1], cache, positions=prefix + jnp.arange(length - 1)[None])
  both = (output._replace(features=None) for output in (first, rest))
  return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *both)


def likeliest_accepted(bench: Bench, row: Row, result: DecodeResult) -> list[float] | None:
  """Share of the tokens that the cloud accepted that are the likeliest of the edge, with its 95 % interval over images.

  None for a row of CIAR whose cloud accepted no token.
  """
  accepted = np.asarray(result.origin) == Origin.DRAFT
  if not accepted.any():
    return None
  decoder = bench.decoder(row)
  fns, side = decoder.sampling.side(decoder.draft)
  combination = decoder.method.combination or getattr(decoder.draft.config, "combination", None) or "ensemble"

  @jax.jit
  def is_likeliest(params: Params, condition: PyTree, tokens: Array) -> Array:
    logits = combined_logits(read(fns, params, condition, tokens).need_intervals().centre, combination)
    return jnp.argmax(logits, axis=-1) == tokens

  leaves, tree = jax.tree.flatten(bench.condition)
  tokens = np.asarray(result.tokens, np.int32)
  run = lambda drawn, *parts: is_likeliest(side.model, jax.tree.unflatten(tree, parts), drawn)
  name = key_of([*bench.weights(row), tree_digest((leaves, tokens))], {"combination": combination})
  found = bench.kept(f"likeliest-{name}", lambda: in_batches(run, tokens, *leaves, batch=32))
  return list(bounded_ratio((found & accepted).sum(1), accepted.sum(1)))
