"""The target network of maps as a verifier: one pass over several scales, then an acceptance rule for whole maps.

A pass over the scales k .. k + m judges the drafted maps k .. k + m - 1 and draws one map more. Shapes depend on the scale,
so rows keep one length (`jaxspec.types.Verifier.at`): a round commits as many maps in every row as the row that accepts
least. Nothing is lost: a map that is drawn again given the same maps is the same map, with the same decision, since its
random numbers belong to its scale and not to the round. Only the map after a fully accepted draft is another: the target
draws it.
Without this ``bonus`` a row has the same tokens alone and in any batch.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec import drafts, rng
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.sampling import sample
from jaxspec.models.scale_network import MapReader, ScaleNetwork, ScaleSide
from jaxspec.types import Array, Cursor, Draft, Key, Verdict, Verifier
from jaxspec.verifiers.map_rule import AcceptMap, DraftedMap, Replaced


class MapReport(NamedTuple):
  """`DecodeResult.metrics` of maps, leaves ``[B, N]``; 0 where a draft was accepted."""

  tries: Array  # int32, proposals until a rejected map was replaced
  fallback: Array  # bool, no proposal was kept within the cap: the last one was taken, which is not exact


class ScaleTargetState(NamedTuple):
  """The network has read every scale below the length of the rows."""

  reader: MapReader
  keys: Key  # [B], numbers of maps


def as_token(tokens: Array, width: int) -> Array:
  """A map ``[B, S]`` as a token ``[B, C]``: filled up with -1."""
  return jnp.pad(tokens, ((0, 0), (0, width - tokens.shape[1])), constant_values=-1)


@functools.cache
def scale_target(network: ScaleNetwork, rule: AcceptMap, *, bonus: bool = True) -> Verifier:
  """Verifier of drafts from `jaxspec.drafters.scale_model`; with `jaxspec.autoregress`, the target's own sampler.

  Args:
    network: the target.
    rule: the acceptance rule.
    bonus: also draw the map after a draft that is accepted in full, for the inputs of one more scale.
  """
  sizes = network.sizes
  width = max(sizes)

  def draw(keys: Key, logits: Array, index: int) -> Array:
    return sample(logits, rng.uniforms(rng.of_token(keys, index), sizes[index]))

  def init(
    params: ScaleSide, keys: Key, condition: ClassLabels, max_len: int, window: int
  ) -> tuple[Verdict, ScaleTargetState]:
    if max_len > len(sizes):
      raise ValueError(f"Must have at most the {len(sizes)} maps of an image, we instead got {max_len}")
    (logits,), reader = network.read(params, network.start(params, condition), (), first=0, end=1)
    first = as_token(draw(keys, logits, 0), width)
    rows = keys.shape[0]
    verdict = Verdict(jnp.zeros((rows,), jnp.int32), first, metrics=_no_report(rows, 1))
    return verdict, ScaleTargetState(reader, keys)

  def at(length: int, max_len: int) -> Verifier:
    return Verifier(init, functools.partial(verify, length))

  def verify(
    length: int, params: ScaleSide, keys: Key, state: ScaleTargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, ScaleTargetState]:
    del keys  # those of a round
    num = draft.tokens.shape[1]
    draws_more = bonus or num == 0
    tokens = [draft.tokens[:, i, : sizes[length + i]] for i in range(num)]
    end = length + num + draws_more
    read = [cursor.last[:, : sizes[length - 1]], *tokens][: end - length]
    targets, reader = network.read(params, state.reader, read, first=length, end=end)
    maps = [DraftedMap(*parts) for parts in zip(tokens, draft.proposal, targets)]
    own = [rng.of_token(state.keys, length + i) for i in range(num)]
    accepted = [rule.accepts(key, drafted) for key, drafted in zip(own, maps)]
    count = jnp.sum(jnp.cumprod(jnp.stack(accepted, axis=1).astype(jnp.int32), axis=1), axis=1) if num else cursor.length * 0
    common = jnp.min(jnp.where(cursor.live, count, num))  # maps that all rows accept

    following, report = [], _no_report(count.shape[0], num + 1)
    for i, (key, drafted) in enumerate(zip(own, maps)):
      needed = cursor.live & (count == i) & (common == i)
      replaced = rule.replace(key, drafted, needed)
      following.append(as_token(jnp.where((count > i)[:, None], drafted.tokens, replaced.tokens), width))
      report = _with(report, i, replaced, needed)
    if draws_more:
      following.append(as_token(draw(state.keys, targets[num], length + num), width))
    elif num:
      following.append(following[-1])  # the last draft, which all rows accept
    next_token = jnp.stack(following, axis=1)[:, common]
    whole = (common == num) & (not draws_more)
    verdict = Verdict(
      num_accepted=jnp.broadcast_to(common - whole, count.shape),
      next_token=next_token,
      metrics=report,
      is_drafted_end=(count > common) | whole,
    )
    return verdict, ScaleTargetState(reader, state.keys)

  return Verifier(init, drafts.needs_one_length, at)


def _no_report(rows: int, maps: int) -> MapReport:
  return MapReport(jnp.zeros((rows, maps), jnp.int32), jnp.zeros((rows, maps), bool))


def _with(report: MapReport, at: int, replaced: Replaced, needed: Array) -> MapReport:
  """The report with what is known about the map at one place of the round."""
  return MapReport(
    report.tries.at[:, at].set(jnp.where(needed, replaced.tries, 0)),
    report.fallback.at[:, at].set(needed & replaced.fallback),
  )
