"""Training loss of a causal network of continuous tokens: the diffusion loss of every token given all previous ones.

It is the loss of `jaxspec.training.mar_loss` in raster order. One pass gives the features of all ``L`` tokens, each token is
diffused to ``batch_mul`` random steps, and the loss is the mean of ``mse + vb`` over all of them (arXiv 2406.11838, the
autoregressive variant of table 4).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params, PyTree
from jaxspec.diffusion import ddpm, diffusion_loss
from jaxspec.diffusion.diffusion_loss import DiffusionLosses
from jaxspec.diffusion.schedule import NUM_TRAIN_STEPS, diffusion_tables
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.models.continuous_fns import HeadFns
from jaxspec.training.dropped_labels import drop_labels
from jaxspec.training.mar_loss import noisy_context
from jaxspec.training.train_step import LossFn

FOCUS_SHARE = 0.8


class Teacher(NamedTuple):
  """The network whose predictions a draft learns."""

  head: HeadFns
  params: Params


def causal_loss(
  head: HeadFns,
  params: Params,
  tokens: Array,
  condition: ClassLabels,
  timesteps: Array,
  noise: Array,
  *,
  context: Array | None = None,
  teacher: Teacher | None = None,
) -> tuple[Array, DiffusionLosses]:
  """Loss of one batch with all randomness given.

  Args:
    tokens: ``[B, L, C]`` clean tokens, raster order.
    timesteps: ``[M, B, L]`` int32 in [0, 1000), for each of M diffused copies.
    noise: ``[M, B, L, C]`` standard normal.
    context: ``[B, L, C]`` input of the network; the tokens by default.
    teacher: its noise predictions replace the true noise in ``mse``; None trains on the data alone.
  Returns:
    The scalar loss, and both losses of every row ``[M, B, L]``.
  """
  tables = diffusion_tables()
  fed = tokens if context is None else context

  def predict_fn(head: HeadFns, params: Params):
    output, _ = head.network.apply(params, Prefixed(condition, fed[:, :-1]), None, positions=None)
    return head.predictor(params, output.features, tables.timesteps)

  index, x0 = timesteps[..., None], jnp.broadcast_to(tokens[None], noise.shape)
  x = ddpm.q_sample(tables, x0, index, noise)
  predicted = predict_fn(head, params)(index, x)
  rows = diffusion_loss.diffusion_losses(tables, x0, x, index, noise, predicted)
  if teacher is not None:
    wanted = jax.lax.stop_gradient(predict_fn(*teacher)(index, x).eps)
    rows = rows._replace(mse=jnp.mean(jnp.square(wanted - predicted.eps), axis=-1))
  return jnp.mean(rows.mse + rows.vb), rows


def causal_loss_fn(
  head: HeadFns, num_classes: int, *, batch_mul: int = 4, label_drop_prob: float = 0.1, context_step: int | None = None,
  teacher: Teacher | None = None, focus: tuple[int, ...] = (),
) -> LossFn:  # fmt: skip
  """The objective of a run; a batch is ``{"tokens": [B, L, C], "labels": [B] int32}``, there is no extra state.

  Arguments as in `jaxspec.training.mar_loss.mar_loss_fn`, and:

  Args:
    teacher: see `causal_loss`.
    focus: diffusion steps of four in five diffused tokens, because a draft is only used at these steps; () is none.
  """

  def loss_fn(params: Params, extra: PyTree, batch: PyTree, key: Key):
    tokens, labels = batch["tokens"].astype(jnp.float32), batch["labels"]
    rows, length, width = tokens.shape
    # Folded in separately, so that a focus does not change the other random numbers.
    focus_key = jax.random.fold_in(key, 4)
    drop_key, time_key, noise_key, context_key = jax.random.split(key, 4)
    timesteps = jax.random.randint(time_key, (batch_mul, rows, length), 0, NUM_TRAIN_STEPS)
    if focus:
      which_key, focus_key = jax.random.split(focus_key)
      chosen = jax.random.choice(which_key, jnp.asarray(focus, jnp.int32), timesteps.shape)
      timesteps = jnp.where(jax.random.bernoulli(focus_key, FOCUS_SHARE, timesteps.shape), chosen, timesteps)
    loss, per_row = causal_loss(
      head, params, tokens, drop_labels(drop_key, labels, num_classes, label_drop_prob),
      timesteps, jax.random.normal(noise_key, (batch_mul, rows, length, width)),
      context=noisy_context(context_key, tokens, context_step), teacher=teacher,
    )  # fmt: skip
    return loss, ({"mse": jnp.mean(per_row.mse), "vb": jnp.mean(per_row.vb)}, extra)

  return loss_fn
