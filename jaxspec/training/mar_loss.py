"""Training loss of MAR (arXiv 2406.11838): the diffusion loss of the masked tokens.

1. one mask ratio per batch from a normal distribution around 1, truncated to [0.7, 1]: ``ceil(L ratio)`` tokens of every
   row's random order are masked; a class is dropped with probability 0.1;
2. conditions z of all positions from the known tokens;
3. every token is diffused to `batch_mul` random steps and the head predicts each of them given z;
4. the mean over masked tokens of ``mse + vb`` (`jaxspec.diffusion.diffusion_loss`).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxspec.core.orders import to_generation_order, to_raster
from jaxspec.core.types import Array, Key, Params, PyTree
from jaxspec.diffusion import ddpm, diffusion_loss
from jaxspec.diffusion.diffusion_loss import DiffusionLosses
from jaxspec.diffusion.schedule import NUM_TRAIN_STEPS, diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.mar import MARFns
from jaxspec.training.dropped_labels import drop_labels
from jaxspec.training.train_step import LossFn

MIN_MASK_RATIO = 0.7
_RATIO_STD = 0.25


def mask_ratio(key: Key, lowest: float = MIN_MASK_RATIO) -> Array:
  """One draw ``[]`` from ``N(1, 0.25^2)`` truncated to [lowest, 1]; the key is consumed."""
  return 1.0 + _RATIO_STD * jax.random.truncated_normal(key, (lowest - 1.0) / _RATIO_STD, 0.0)


def noisy_context(key: Key, tokens: Array, step: int | None) -> Array:
  """Adds to tokens ``[B, L, C]`` the noise of a chain that stops at an original diffusion step (``q_sample`` of the step).

  Args:
    key: consumed. If ``step`` is None it is not read, and the tokens are returned unchanged.
  """
  if step is None:
    return tokens
  index = jnp.full((1, 1, 1), step, jnp.int32)
  return ddpm.q_sample(diffusion_tables(), tokens, index, jax.random.normal(key, tokens.shape))


def num_masked(ratio: Array | float, num_tokens: int) -> Array:
  """Masked tokens ``[]`` int32 of each row: ``ceil(L ratio)``."""
  return jnp.ceil(num_tokens * jnp.asarray(ratio, jnp.float32)).astype(jnp.int32)


def most_known(num_tokens: int, lowest: float = MIN_MASK_RATIO) -> int:
  """The largest number of known tokens in training, the slots of the encoder."""
  return num_tokens - math.ceil(num_tokens * lowest)


def mar_loss(
  model: MARFns,
  params: Params,
  tokens: Array,
  order: Array,
  known: Array,
  condition: ClassLabels,
  timesteps: Array,
  noise: Array,
  *,
  slots: int | None = None,
  dropout_key: Key | None = None,
  context: Array | None = None,
) -> tuple[Array, DiffusionLosses]:
  """Loss of one batch with all randomness given.

  Args:
    tokens: ``[B, L, C]`` clean tokens, raster order.
    order: ``[B, L]`` int32 generation orders; the first ``known`` positions are seen.
    known: ``[B or 1]`` int32.
    timesteps: ``[M, B, L]`` int32 in [0, 1000), for each of M diffused copies of every raster position.
    noise: ``[M, B, L, C]`` standard normal.
    slots: static encoder slots, at least ``known``; ``L`` by default.
    dropout_key: switches dropout on; consumed.
    context: ``[B, L, C]`` known tokens as the network reads them; the tokens by default.
  Returns:
    The scalar loss, and both losses of every row ``[M, B, L]``, known positions included.
  """
  length = tokens.shape[1]
  tables = diffusion_tables()
  seen = to_generation_order(tokens if context is None else context, order)
  z = model.condition(params, seen[:, :slots], order, known, condition, dropout_key=dropout_key)
  predict_fn = model.predictor(params, to_raster(z, order), tables.timesteps)

  index, x0 = timesteps[..., None], jnp.broadcast_to(tokens[None], noise.shape)
  x = ddpm.q_sample(tables, x0, index, noise)
  rows = diffusion_loss.diffusion_losses(tables, x0, x, index, noise, predict_fn(index, x))
  masked = jnp.broadcast_to(jnp.arange(length)[None] >= known[:, None], order.shape).astype(jnp.float32)
  weights = jnp.broadcast_to(to_raster(masked, order)[None], rows.mse.shape)
  return jnp.sum(weights * (rows.mse + rows.vb)) / jnp.sum(weights), rows


def mar_loss_fn(
  model: MARFns, num_classes: int, *, batch_mul: int = 4, label_drop_prob: float = 0.1, dropout: bool = True,
  context_step: int | None = None, min_mask_ratio: float = MIN_MASK_RATIO,
) -> LossFn:  # fmt: skip
  """The objective of a run; a batch is ``{"tokens": [B, L, C], "labels": [B] int32}``, there is no extra state.

  Args:
    num_classes: the label of "no class".
    batch_mul: diffused copies of every token.
    label_drop_prob: how often a row loses its class.
    dropout: whether the transformer's dropout is on.
    context_step: known tokens carry the noise of this original diffusion step, as in decoding with chains that stop early;
      None adds no noise.
    min_mask_ratio: least share of masked tokens. MAR has 0.7; a network that decodes token by token needs smaller shares.
  """

  def loss_fn(params: Params, extra: PyTree, batch: PyTree, key: Key):
    tokens, labels = batch["tokens"].astype(jnp.float32), batch["labels"]
    rows, length, width = tokens.shape
    # The key of the context is folded in separately, so that a context does not change the other random numbers.
    context_key = jax.random.fold_in(key, 6)
    ratio_key, order_key, drop_key, time_key, noise_key, dropout_key = jax.random.split(key, 6)
    masked = num_masked(mask_ratio(ratio_key, min_mask_ratio), length)
    order = jax.vmap(lambda k: jax.random.permutation(k, length))(jax.random.split(order_key, rows)).astype(jnp.int32)
    loss, per_row = mar_loss(
      model, params, tokens, order, (length - masked)[None], drop_labels(drop_key, labels, num_classes, label_drop_prob),
      jax.random.randint(time_key, (batch_mul, rows, length), 0, NUM_TRAIN_STEPS),
      jax.random.normal(noise_key, (batch_mul, rows, length, width)),
      slots=most_known(length, min_mask_ratio), dropout_key=dropout_key if dropout else None,
      context=noisy_context(context_key, tokens, context_step),
    )  # fmt: skip
    metrics = {"mse": jnp.mean(per_row.mse), "vb": jnp.mean(per_row.vb), "mask_ratio": masked / length}
    return loss, (metrics, extra)

  return loss_fn


def decay_mask(params: Params) -> PyTree:
  """Tree of bool, True on the leaves that weight decay applies to: matrices and tables of the transformer, not the head."""

  def leaf(path, value):
    return value.ndim > 1 and path[0].key != "diffloss"

  return jax.tree_util.tree_map_with_path(leaf, params)
