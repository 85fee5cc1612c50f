"""A toy network of scales: previous scales select the table row with a scale's distribution."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Intervals


class Scales(NamedTuple):
  history: jnp.ndarray  # [K, B, C] int32, the inputs


@dataclasses.dataclass(frozen=True)
class ToyScales:
  """As `jaxspec.sampling.scale_network.ScaleNetwork`; parameters are logits ``[rows, size, V]`` for each scale."""

  sizes: tuple[int, ...]
  vocab_size: int

  def start(self, params, condition):
    return Scales(jnp.zeros((len(self.sizes), condition.batch_size, max(self.sizes)), jnp.int32))

  def logits(self, params, heard, scale):
    return heard.centre[..., 0, :]

  def hear(self, params, state, maps, *, first, end, logits_from=None):
    laws, state = self.read(params, state, maps, first=first, end=end, logits_from=logits_from)
    return [Intervals(law[:, :, None], jnp.zeros_like(law)[:, :, None]) for law in laws], state

  def read(self, params, state, maps, *, first, end, logits_from=None):
    history, before = state.history, max(first - 1, 0)
    assert len(maps) == end - 1 - before
    for scale, tokens in enumerate(maps, before):
      assert tokens.shape[1] == self.sizes[scale]
      history = history.at[scale, :, : tokens.shape[1]].set(tokens)
    laws = []
    for scale in range(first if logits_from is None else logits_from, end):
      row = jnp.zeros(history.shape[1], jnp.int32)
      for earlier in range(scale):
        for place in range(self.sizes[earlier]):
          row = row * self.vocab_size + history[earlier, :, place]
      laws.append(params[scale][row])
    return laws, Scales(history)

  def tables(self, draw):
    """Parameters of probabilities ``draw(rows * size) [rows * size, V]``."""
    params, rows = [], 1
    for size in self.sizes:
      probs = draw(rows * size).reshape(rows, size, self.vocab_size)
      with np.errstate(divide="ignore"):
        params.append(jnp.asarray(np.log(probs), jnp.float32))
      rows *= self.vocab_size**size
    return tuple(params)

  def laws(self, params):
    """Probability ``[rows, V^size]`` of each scale, float64, given the previous scales."""
    found = []
    for table, size in zip(params, self.sizes):
      probs = np.exp(np.asarray(table, np.float64))  # [rows, size, V]
      whole = np.ones((len(probs), 1))
      for place in range(size):
        whole = (whole[:, :, None] * probs[:, None, place]).reshape(len(probs), -1)
      found.append(whole)
    return found

  def joint(self, params):
    """Joint probability ``[V] * places`` of all scales, float64."""
    joint = np.ones(1)
    for law in self.laws(params):
      joint = (joint[:, None] * law).reshape(-1)
    return joint.reshape((self.vocab_size,) * sum(self.sizes))


def places(tokens, sizes):
  """Scales ``[B, K, C]`` as a row of all positions ``[B, L]``; checks the padding."""
  tokens = np.asarray(tokens)
  for scale, size in enumerate(sizes):
    assert (tokens[:, scale, size:] == -1).all() and (tokens[:, scale, :size] >= 0).all()
  return np.concatenate([tokens[:, scale, :size] for scale, size in enumerate(sizes)], axis=1)
