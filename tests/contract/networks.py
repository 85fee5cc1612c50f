"""Networks that remember every token exactly, with known joint distributions; their programs are small.

A cache slot of `history_fns` holds its token as a digit of a number: token ``x`` at index ``i`` of a row stands for
``(x + 1) (V + 1)^i``, the class for the digits above. A pass adds up the slots that its mask shows: the sum names the tokens
that were read, and the logits are a row of a table under that name. A slot that is stale, missing, doubled or at the wrong
position names another row. Slots are written and compacted, and masks made, by the functions of the real networks.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.diffusion.ddpm import Prediction
from jaxspec.models import kv_cache
from jaxspec.models.attention import attention_mask
from jaxspec.models.causal import wanted
from jaxspec.models.conditions import ClassLabels, Pairs
from jaxspec.models.token_fns import HeadFns
from jaxspec.network import Network
from jaxspec.types import ModelFns, ModelOutput

CLASSES = 3  # and one more without a condition


class Slots(NamedTuple):
  """A cache of one number (or vector) per slot."""

  values: jax.Array  # [B, S, C]


def _init_cache(size: int):
  return lambda batch, max_len: Slots(jnp.zeros((batch, max_len, size)))


def _compact(cache: Slots, slot, path) -> Slots:
  return Slots(kv_cache.compact(kv_cache.KVCache((cache.values,), (), None), slot, path).k[0])


def _sum_seen(values, cache: Slots, positions, mask, slot):
  """Writes ``values [B, T, C]``; the sums ``[B, T, C]`` of the slots that each input sees, and the cache."""
  start = positions[:, 0] if slot is None else slot
  cache = Slots(kv_cache.write(cache.values, values, start))
  seen = attention_mask(positions, start, mask, jnp.ones((1, cache.values.shape[1]), bool))  # [B or 1, T, S]
  return jnp.sum(jnp.where(seen[..., None], cache.values[:, None], 0.0), axis=2), cache


@functools.cache
def history_fns(vocab: int, length: int, *, head: bool = False) -> ModelFns:
  """A network of ``length`` tokens in a row; as a ``head`` it continues the features of one, as EAGLE's heads do.

  Parameters: ``output [4 (V + 1)^(N - 1) + 1, V]`` logits by name, and of a head ``own``, which are added to its host's. The
  last row is what a head says whose cache and features do not name the same tokens.
  """
  known, base = length - 1, vocab + 1  # tokens that a distribution may depend on
  top = base**known

  def digits(tokens, index):
    place = jnp.where(index < known, float(base) ** jnp.minimum(index, known), 0.0)
    return ((tokens + 1).astype(jnp.float32) * place)[..., None]

  def look_up(table, name):
    return table[jnp.clip(name[..., 0].astype(jnp.int32), 0, table.shape[0] - 1)]

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    if isinstance(inputs, Pairs):
      added = digits(inputs.tokens, positions)
      seen, cache = _sum_seen(added, cache, positions, mask, slot)
      name = inputs.features + added
      name = jnp.where(seen + top * jnp.floor(name / top) == name, name, float((CLASSES + 1) * top))
      asked = wanted(name, logits_at)
      return ModelOutput(look_up(params["output"], asked) + look_up(params["own"], asked), name), cache
    is_condition = isinstance(inputs, ClassLabels)
    values = (inputs.labels * top).astype(jnp.float32)[:, None, None] if is_condition else digits(inputs, positions - 1)
    name, cache = _sum_seen(values, cache, positions, mask, slot)
    return ModelOutput(look_up(params["output"], wanted(name, logits_at)), name), cache

  def null_condition(params, condition):
    return condition if head else ClassLabels(jnp.full_like(condition.labels, CLASSES))

  prefix_len = lambda condition: 0 if head else 1
  return ModelFns(lambda key: {}, _init_cache(1), apply, prefix_len, null_condition, _compact)


def rows_of_table(vocab: int, length: int) -> int:
  """Names of all classes and prefixes, and one more."""
  return (CLASSES + 1) * (vocab + 1) ** (length - 1) + 1


def host(vocab: int, length: int, logits: np.ndarray) -> Network:
  """A network with these logits by name."""
  params = {"output": jnp.asarray(logits, jnp.float32), "tok_embeddings": jnp.zeros((1,))}
  return Network(history_fns(vocab, length), params, name="host")


def head(vocab: int, length: int, logits: np.ndarray) -> Network:
  """A head whose logits are its host's and these."""
  return Network(history_fns(vocab, length, head=True), {"own": jnp.asarray(logits, jnp.float32)}, name="head")


def joint(probs: np.ndarray, vocab: int, length: int, label: int = 0) -> np.ndarray:
  """Exact joint distribution ``[V] * length`` of the tokens of a row; ``probs`` by name."""
  base = vocab + 1
  names, mass = np.full((), label * base ** (_known(probs, vocab))), np.ones(())
  for index in range(length):
    mass = mass[..., None] * probs[names]
    names = names[..., None] + (np.arange(vocab) + 1) * base**index
  return mass


def _known(probs: np.ndarray, vocab: int) -> int:
  return round(math.log(len(probs) / (CLASSES + 1), vocab + 1))


def softmax(logits: np.ndarray) -> np.ndarray:
  x = np.exp(np.asarray(logits, np.float64) - np.max(logits, axis=-1, keepdims=True))
  return x / x.sum(-1, keepdims=True)


@functools.cache
def vectors(seed: int, size: int = 2, length: int = 6) -> Network:
  """A network of vector tokens whose features weigh all tokens by their position, with a diffusion head in one line."""
  generator = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(generator.normal(size=shape), jnp.float32)
  params = dict(classes=draw(CLASSES + 1, size), positions=draw(length + 3, size))
  params["shift"] = 0.3 + 0.05 * jnp.asarray(np.random.default_rng(seed).normal(size=(size,)), jnp.float32)

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    values = params["classes"][inputs.labels][:, None] if isinstance(inputs, ClassLabels) else inputs
    weights = params["positions"][jnp.minimum(positions, length + 2)]
    sums, cache = _sum_seen(values * weights, cache, positions, mask, slot)
    return ModelOutput(None, wanted(jnp.tanh(sums), logits_at)), cache

  def predictor(params, z, timesteps):
    def predict(index, x):
      like = lambda values: values.reshape((1,) * (x.ndim - values.ndim) + values.shape)
      return Prediction(0.8 * x + like(params["shift"]) * like(z), jnp.zeros_like(x))

    return predict

  network = ModelFns(lambda key: {}, _init_cache(size), apply, lambda condition: 1)
  return Network(HeadFns(network, predictor, length, size), params, name=f"vectors {seed}")
