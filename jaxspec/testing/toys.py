"""Small targets of known distribution, for `check_exact`.

A cache slot of `history_fns` holds its token as a digit of a number: token ``x`` at index ``i`` of a row is ``(x + 1) (V +
1)^i``, the condition the digits above. A pass sums the slots that its mask shows: the sum identifies the tokens that were
read, and it is the index of the logits in a table. A slot that is stale, missing, doubled or at the wrong position gives
another row. The functions of the real networks write and compact slots and make masks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import ModelFns, ModelOutput, PyTree
from jaxspec.methods.block_head import FAMILY as BLOCK_HEAD
from jaxspec.methods.eagle import FAMILY as EAGLE
from jaxspec.methods.method import BuildContext
from jaxspec.methods.spatial import FAMILY as SPATIAL
from jaxspec.models.conditions import ClassLabels, Context, Pairs, Prompt
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.attention import attention_mask
from jaxspec.models.nn.causal import wanted
from jaxspec.sampling import SamplingConfig

CLASSES = 3  # and one more row without a condition


class Slots(NamedTuple):
  """A cache of one number (or vector) per slot."""

  values: jax.Array  # [B, S, C]


def init_cache(size: int) -> Callable[[int, int], Slots]:
  """`ModelFns.init_cache` of slots of ``size`` numbers."""
  return lambda batch, max_len: Slots(jnp.zeros((batch, max_len, size)))


def _compact(cache: Slots, slot, path) -> Slots:
  key_mask = jnp.ones((1, cache.values.shape[1]), bool)
  return Slots(kv_cache.compact(kv_cache.KVCache((cache.values,), (), key_mask), slot, path).k[0])


def sum_seen(values, cache: Slots, positions, mask, slot):
  """Writes ``values [B, T, C]``; returns the sums ``[B, T, C]`` of the slots visible to each input, and the cache."""
  start = positions[:, 0] if slot is None else slot
  cache = Slots(kv_cache.write(cache.values, values, start))
  seen = attention_mask(positions, start, mask, jnp.ones((1, cache.values.shape[1]), bool))  # [B or 1, T, S]
  return jnp.sum(jnp.where(seen[..., None], cache.values[:, None], 0.0), axis=2), cache


@functools.cache
def history_fns(vocab: int, length: int, *, prompt: int = 0, head: bool = False) -> ModelFns:
  """A network of ``length`` tokens in a row; as a ``head`` it reads the features of another one, like EAGLE's heads.

  Its condition is a class, or a `Prompt` of ``prompt`` tokens, some of which may be padding.

  Parameters: ``output`` (`rows_of_table`, V) logits by row, and for a head ``own``, which are added to its target's. A head
  uses the last row if its cache and features disagree about the tokens.
  """
  base, top, prefix = vocab + 1, _condition_place(vocab, length), prompt or 1
  digits = functools.partial(_digits, vocab, length)

  def apply(params, inputs, cache, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    if isinstance(inputs, Pairs):
      added = digits(inputs.tokens, positions)
      seen, cache = sum_seen(added, cache, positions, mask, slot)
      name = inputs.features + added
      name = jnp.where(seen + top * jnp.floor(name / top) == name, name, float(_num_conditions(vocab, prompt) * top))
      chosen = wanted(name, logits_at)
      return ModelOutput(_look_up(params["output"], chosen) + _look_up(params["own"], chosen), name), cache
    if isinstance(inputs, ClassLabels):
      values = (inputs.labels * top).astype(jnp.float32)[:, None, None]
    elif isinstance(inputs, Prompt):
      values = jnp.where(inputs.mask, inputs.tokens + 1, 0)[..., None] * (top * float(base) ** positions)[..., None]
    else:
      values = digits(inputs, positions - prefix)
    name, cache = sum_seen(values, cache, positions, mask, slot)
    return ModelOutput(_look_up(params["output"], wanted(name, logits_at)), name), cache

  def null_condition(params, condition):
    return condition if head or prompt else ClassLabels(jnp.full_like(condition.labels, CLASSES))

  prefix_len = lambda condition: 0 if head else prefix
  return ModelFns(lambda key: {}, init_cache(1), apply, prefix_len, null_condition, _compact)


@functools.cache
def block_head_fns(vocab: int, length: int) -> ModelFns:
  """A block head on the features of `history_fns`, see `jaxspec.models.heads.block_head`.

  A slot of its context holds the token of that position, which it finds in the feature there. Row k of a pass knows the
  tokens before the block; its own logits are those of the table's k-th row after theirs, so that no two rows are alike.
  """
  top = _condition_place(vocab, length)
  digits = functools.partial(_digits, vocab, length)

  def apply(params, inputs, cache, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    if isinstance(inputs, Context):
      place = jnp.maximum(digits(jnp.zeros_like(positions), positions - 1), 1.0)
      digit = jnp.floor(inputs.features / place) % (vocab + 1) * place
      is_condition, is_read = positions[..., None] == 0, positions[..., None] < length
      values = jnp.where(is_condition, jnp.floor(inputs.features / top) * top, jnp.where(is_read, digit, 0.0))
      _, cache = sum_seen(values, cache, positions, mask, slot)
      return ModelOutput(None, values), cache
    size = inputs.shape[1]
    mask = jnp.ones((1, size, size), bool) if mask is None else mask
    name, cache = sum_seen(digits(inputs, positions - 1), cache, positions, mask, slot)
    own = (name + (positions - positions[:, :1])[..., None]) % (params["own"].shape[0] - 1)
    return ModelOutput(_look_up(params["output"], name) + _look_up(params["own"], own), name), cache

  return ModelFns(lambda key: {}, init_cache(1), apply, lambda condition: 1, lambda params, condition: condition)


@functools.cache
def spatial_fns(vocab: int, length: int, columns: int) -> ModelFns:
  """Spatial heads (`jaxspec.models.heads.spatial_heads`) with one vertical head, for `history_fns` of rows of ``columns``.

  Parameters as of a head of `history_fns`. The row of a place depends on the newest pair and on the place. It is the last
  one of the table if the pairs above do not hold the tokens that the newest pair has read.
  """
  known, base, top = length - 1, float(vocab + 1), float(_condition_place(vocab, length))
  last = rows_of_table(vocab, length) - 1

  def apply(params, inputs, cache=None, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    newest, place = positions[:, :1], jnp.arange(positions.shape[1])[None]
    index = jnp.concatenate([newest, positions + 1 - columns], axis=1)  # [B, 1 + K] of the pairs
    names = inputs.features + _digits(vocab, length, inputs.tokens, jnp.maximum(index, 0))
    whole, unit = names[:, :1], base ** jnp.clip(index + 1, 0, known)[..., None]
    read = top * jnp.floor(whole / top) + whole % top % unit  # the newest name without the tokens after a pair
    unknown = ((index < 0) | (index > newest))[..., None]
    agrees = jnp.all((names == read) | unknown, axis=1, keepdims=True)
    name = jnp.where(agrees, (whole + place[..., None]) % last, float(last))
    return ModelOutput(_look_up(params["output"], name) + _look_up(params["own"], name), name), None

  def cache(batch, max_len):
    return Pairs(jnp.zeros((batch, columns), jnp.int32), jnp.zeros((batch, columns, 1)))

  return ModelFns(lambda key: {}, cache, apply, lambda condition: 0, lambda params, condition: condition)


def _condition_place(vocab: int, length: int) -> int:
  """The place of the condition in the number of a prefix; a distribution depends on at most ``length - 1`` tokens."""
  return (vocab + 1) ** (length - 1)


def _digits(vocab: int, length: int, tokens, index):
  """``[B, T, 1]``: tokens as parts of the number of a prefix, 0 for tokens that no distribution depends on."""
  place = jnp.where(index < length - 1, float(vocab + 1) ** jnp.minimum(index, length - 1), 0.0)
  return ((tokens + 1).astype(jnp.float32) * place)[..., None]


def _look_up(table, name):
  return table[jnp.clip(name[..., 0].astype(jnp.int32), 0, table.shape[0] - 1)]


def _num_conditions(vocab: int, prompt: int) -> int:
  return (vocab + 1) ** prompt if prompt else CLASSES + 1


def rows_of_table(vocab: int, length: int, prompt: int = 0) -> int:
  """Number of conditions and prefixes, plus one."""
  return _num_conditions(vocab, prompt) * (vocab + 1) ** (length - 1) + 1


def host(vocab: int, length: int, logits: np.ndarray, prompt: int = 0) -> Network:
  """A network with these logits by row."""
  params = {"output": jnp.asarray(logits, jnp.float32), "tok_embeddings": jnp.zeros((1,))}
  return Network(history_fns(vocab, length, prompt=prompt), params, name="host")


def head(vocab: int, length: int, logits: np.ndarray, prompt: int = 0) -> Network:
  """A head whose logits are its target's plus these."""
  fns = history_fns(vocab, length, prompt=prompt, head=True)
  return Network(fns, {"own": jnp.asarray(logits, jnp.float32)}, name="head")


def block_head(vocab: int, length: int, logits: np.ndarray) -> Network:
  """A block head whose logits are its target's plus these."""
  return Network(block_head_fns(vocab, length), {"own": jnp.asarray(logits, jnp.float32)}, name="block head")


def spatial_heads(vocab: int, length: int, logits: np.ndarray, columns: int = 3) -> Network:
  """Spatial heads whose logits are their target's plus these."""
  return Network(spatial_fns(vocab, length, columns), {"own": jnp.asarray(logits, jnp.float32)}, name="spatial heads")


def joint(probs: np.ndarray, vocab: int, length: int, condition: int = 0) -> np.ndarray:
  """Exact joint distribution ``[V] * length`` of the tokens of a row.

  Args:
    probs: by row, ``[rows_of_table, V]``.
    condition: a class, or the number ``sum (x + 1) (V + 1)^i`` of the tokens of a prompt.
  """
  base = vocab + 1
  names, mass = np.full((), condition * base ** (length - 1)), np.ones(())
  for index in range(length):
    mass = mass[..., None] * probs[names]
    names = names[..., None] + (np.arange(vocab) + 1) * base**index
  return mass


def softmax(logits: np.ndarray) -> np.ndarray:
  """Softmax in float64 over the last axis."""
  x = np.exp(np.asarray(logits, np.float64) - np.max(logits, axis=-1, keepdims=True))
  return x / x.sum(-1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Toy:
  """A target of known distribution, and draft networks for it.

  Attributes:
    name: its name in messages.
    target: of discrete tokens, as are all drafts.
    draft: a network with the target's inputs.
    heads: networks that read the target's features, by `jaxspec.methods.Method.draft_family`.
    context: build context of a method.
    conditions: a batch of conditions, which rows take in turn.
    joint: ``[conditions] + [V] * N``, the exact distribution of a condition and the tokens after it.
  """

  name: str
  target: Network
  draft: Network
  heads: dict[str, Network]
  context: BuildContext
  conditions: PyTree
  joint: np.ndarray

  def condition(self, rows: int) -> PyTree:
    """A batch of ``rows`` rows."""
    turn = np.arange(rows) % self.conditions.batch_size
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[turn], self.conditions)


def _toy(name: str, prompt: int, grid: tuple[int, int] | None, conditions: PyTree, numbers: list[int]) -> Toy:
  vocab, length, generator = 3, 6, np.random.default_rng(0)
  shape = (rows_of_table(vocab, length, prompt), vocab)
  logits, noise = generator.normal(size=shape), 0.7 * generator.normal(size=shape)
  vectors = lambda: jnp.asarray([[1.0, 0.0], [0.9, 0.2], [0.1, 1.0]])  # two are close, for relaxed rules
  space = TokenSpace(vocab_size=vocab, num_tokens=length, grid=grid, codebook=vectors, embedding=vectors)
  probs = softmax(logits)
  heads = {EAGLE: head(vocab, length, noise, prompt), BLOCK_HEAD: block_head(vocab, length, noise)}
  if grid is not None:
    heads[SPATIAL] = spatial_heads(vocab, length, noise, grid[1])
  return Toy(
    name, host(vocab, length, logits, prompt), host(vocab, length, logits + noise, prompt),
    heads, BuildContext(SamplingConfig(), space), conditions,
    np.stack([joint(probs, vocab, length, number) for number in numbers]) / len(numbers),
  )  # fmt: skip


@functools.cache
def grid_toy() -> Toy:
  """Images of 2 x 3 tokens with 3 ids, of two classes."""
  return _toy("grid", 0, (2, 3), ClassLabels(np.asarray([0, 2], np.int32)), [0, 2])


@functools.cache
def prompt_toy() -> Toy:
  """Texts of 6 tokens with 3 ids, without a grid, after a prompt of two tokens and one of one."""
  tokens, mask = np.asarray([[2, 0], [0, 1]], np.int32), np.asarray([[True, True], [False, True]])
  return _toy("prompt", 2, None, Prompt(tokens, mask), [3 + 1 * 4, 2 * 4])


TOYS = {"grid": grid_toy, "prompt": prompt_toy}
