"""A small network of the target's scales that drafts whole scales.

Each scale is drawn given the earlier drafts. As at the target (`jaxspec.verifiers.scale_target`), the random numbers are
addressed by scale: redrafting a scale after the same scales gives the same tokens.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.payloads import as_token
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, Verdict
from jaxspec.models.conditions import ClassLabels
from jaxspec.sampling.logit_processing import sample
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleReader, ScaleSide


class ScaleModelState(NamedTuple):
  """The network has read scale 0, and every scale below the length of the rows but one: after a fully accepted draft, the
  target's scale is unread.
  """

  reader: ScaleReader
  previous: Array  # [B, C] int32, the scale before the newest one
  keys: Key  # [B], numbers of scales


@dataclasses.dataclass(frozen=True)
class ScaleModelDrafter(Drafter):
  """Drafter of ``window`` scales, or fewer near the end of a row, whose last scale is always the target's.

  Attributes:
    network: the draft network, with the target's tokenizer.
    length: of the rows, once it is known (`at`).
  Raises:
    ValueError: if ``window`` is not positive.
  """

  network: ScaleNetwork
  window: int
  length: int | None = None

  def __post_init__(self):
    if self.length is None and self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")

  @property
  def calls_per_round(self) -> int:
    return self.window

  def at(self, length: int, max_len: int) -> ScaleModelDrafter:
    return dataclasses.replace(self, window=min(self.window, max_len - 1 - length), length=length)

  def init(
    self, params: ScaleSide, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict
  ) -> tuple[ScaleModelState, None]:
    nothing = jnp.full((condition.batch_size, max(self.network.sizes)), -1, jnp.int32)
    _, reader = self.network.read(params, self.network.start(params, condition), (), first=0, end=1)
    return ScaleModelState(reader, nothing, keys), None

  def read(self, params: ScaleSide, state: ScaleModelState, cursor: Cursor) -> ScaleModelState:
    length, sizes = commits.known_length(self.length), self.network.sizes
    before = [state.previous[:, : sizes[length - 2]]] if length > 1 else []
    _, reader = self.network.read(params, state.reader, before, first=length - 1, end=length)
    return state._replace(reader=reader)

  def draft(
    self, params: ScaleSide, keys: Key, state: ScaleModelState, cursor: Cursor
  ) -> tuple[Draft, ScaleModelState, tuple]:
    del keys  # those of a round
    length, sizes = commits.known_length(self.length), self.network.sizes
    reader, tokens, proposal = state.reader, [], []
    maps, first = [cursor.last[:, : sizes[length - 1]]], length
    if length > 1:  # the previous scale may be unread
      maps, first = [state.previous[:, : sizes[length - 2]], *maps], length - 1
    for index in range(length, length + self.window):
      logits, reader = self.network.read(params, reader, maps, first=first, end=index + 1)
      proposal.append(logits[-1])
      tokens.append(sample(logits[-1], rng.uniforms(rng.of_token(state.keys, index), sizes[index])))
      maps, first = [tokens[-1]], index + 1
    if self.window:
      drafted = jnp.stack([as_token(one, max(sizes)) for one in tokens], axis=1)
    else:
      drafted = Draft.empty(cursor.last).tokens
    return Draft.chain(drafted, tuple(proposal), self.window, self.window), state._replace(reader=reader), ()

  def commit(
    self, params: ScaleSide, state: ScaleModelState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> ScaleModelState:
    previous = commits.token_before_newest(cursor, draft, verdict, state.previous)
    return state._replace(previous=previous)
