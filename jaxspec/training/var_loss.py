"""Training losses of networks of scales: next-scale prediction (VAR, arXiv 2404.02905), and radii of a draft (CIAR).

Inputs are those of the quantised image itself (teacher forcing), so one pass without a cache reads all scales. A batch is

- ``tokens [B, L]`` int32, scale after scale;
- ``inputs [B, L - 1, c]`` float32, what the tokenizer makes of them (`ScaleTokenizerFns.inputs`);
- ``labels [B]`` int32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, ModelOutput, Params, PyTree
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.var.var import VARFns
from jaxspec.training.common_losses import token_losses
from jaxspec.training.dropped_labels import drop_labels
from jaxspec.training.inter_dro import InterDro, inter_dro
from jaxspec.training.train_step import LossFn


def all_scales(model: VARFns, params: Params, inputs: Array, classes: ClassLabels) -> ModelOutput:
  """The output at all tokens ``[B, L, ...]`` of one pass without a cache."""
  conditioned = model.condition(params, classes)
  return model.apply(params, conditioned, inputs, first=0, end=len(model.sides))[0]


def scale_loss_fn(model: VARFns, num_classes: int, *, label_drop_prob: float = 0.1) -> LossFn:
  """Cross entropy in nats, mean over all tokens; there is no extra state.

  Args:
    num_classes: the label of "no class".
    label_drop_prob: how often a row loses its class.
  """

  def loss_fn(params: Params, extra: PyTree, batch: PyTree, key: Key):
    classes = drop_labels(key, batch["labels"], num_classes, label_drop_prob)
    logits = all_scales(model, params, batch["inputs"], classes).need_logits()
    right = jnp.mean(jnp.argmax(logits, axis=-1) == batch["tokens"])
    return jnp.mean(token_losses(logits, batch["tokens"])), ({"right": right}, extra)

  return loss_fn


def scale_radii_loss_fn(
  draft: VARFns, target: VARFns, num_classes: int, objective: InterDro, *, label_drop_prob: float = 0.1
) -> LossFn:
  """The Inter-DRO loss of a draft with an Inter-Head, at all tokens; the extra state is the frozen target's weights.

  Both networks read the same classes, dropped ones too: with guidance both halves of the draft stand for those of the
  target.

  Args:
    num_classes: the label of "no class".
    objective: weights of the terms.
    label_drop_prob: how often a row loses its class.
  Raises:
    ValueError: for networks of other scales.
  """
  if draft.sides != target.sides:
    raise ValueError(f"Must have a draft of scales {target.sides}, we instead got {draft.sides}")

  def loss_fn(params: Params, extra: PyTree, batch: PyTree, key: Key):
    classes = drop_labels(key, batch["labels"], num_classes, label_drop_prob)
    wanted = all_scales(target, extra, batch["inputs"], classes).need_logits()
    intervals = all_scales(draft, params, batch["inputs"], classes).need_intervals()
    loss, terms = inter_dro(intervals, wanted, objective)
    p, q = jax.nn.softmax(wanted), jax.nn.softmax(intervals.centre[:, :, 0])
    figures = {
      "acceptance": jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1)),  # of a token by itself
      "radius": jnp.mean(intervals.radius),
    }
    return loss, (terms | figures, extra)

  return loss_fn
