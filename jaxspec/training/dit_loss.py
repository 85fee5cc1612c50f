"""Training losses of networks of denoising steps: the diffusion loss of images (DiT, arXiv 2212.09748), and radii of a
draft.

1. Every latent image is diffused to ``copies`` random steps of the training schedule; a class is dropped at times.
2. The loss is the mean of ``mse + vb`` (`jaxspec.diffusion.diffusion_loss`): noise, and a variational bound for the
   variance.

A draft learns from its target instead. Its noise and v are fitted to the target's, and its radius r to the error of its
noise, by the likelihood of the target's noise under a Gaussian of deviation r around the draft's:

  mean((eps - eps*)^2) + w_v mean((v - v*)^2) + w_r mean(log r + (sg(eps) - eps*)^2 / (2 r^2))

CIAR (arXiv 2603.25463) defines its Inter-DRO loss for classes only; this loss is a choice of this project. A batch is
``states [B, C]`` float32 and ``labels [B]`` int32.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params, PyTree
from jaxspec.diffusion import ddpm, diffusion_loss
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.diffusion.schedule import NUM_TRAIN_STEPS, DiffusionTables, diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.dit import DiTFns
from jaxspec.training.dropped_labels import drop_labels
from jaxspec.training.train_step import LossFn

LEAST_RADIUS = 1e-3  # inside the logarithm


@dataclasses.dataclass(frozen=True)
class RadiusObjective:
  """Weights of a draft's losses besides that of its noise.

  Attributes:
    variance: w_v.
    radius: w_r.
  """

  variance: float = 0.1
  radius: float = 0.1

  def __post_init__(self):
    if not (self.variance >= 0 and self.radius >= 0):
      raise ValueError(f"Must have variance and radius of at least 0, we instead got {self.variance} and {self.radius}")


def radius_loss(prediction: Prediction, wanted: Prediction, objective: RadiusObjective) -> tuple[Array, dict[str, Array]]:
  """The loss ``[]`` of a draft's prediction against the target's, leaves ``[..., C]``, and its terms by name.

  Raises:
    ValueError: for a prediction without a radius.
  """
  if prediction.radius is None:
    raise ValueError("Must have a network that predicts a radius (radius=True), we instead got one without")
  error = prediction.eps - jax.lax.stop_gradient(wanted.eps)
  radius = jnp.maximum(prediction.radius, LEAST_RADIUS)
  fixed = jax.lax.stop_gradient(error)
  terms = {
    "eps": jnp.mean(jnp.square(error)),
    "v": jnp.mean(jnp.square(prediction.v - jax.lax.stop_gradient(wanted.v))),
    "likelihood": jnp.mean(jnp.log(radius) + 0.5 * jnp.square(fixed / radius)),
  }
  return terms["eps"] + objective.variance * terms["v"] + objective.radius * terms["likelihood"], terms


def denoising_loss_fn(model: DiTFns, num_classes: int, *, copies: int = 1, label_drop_prob: float = 0.1) -> LossFn:
  """The diffusion loss; there is no extra state.

  Args:
    num_classes: the label of "no class".
    copies: random steps of every image in an update.
    label_drop_prob: how often a row loses its class.
  """
  tables = diffusion_tables("", model.schedule)

  def loss_fn(params: Params, extra: PyTree, batch: PyTree, key: Key):
    classes, x0, index, noise, x = _diffused(tables, batch, key, num_classes, copies, label_drop_prob)
    prediction = model.predictor(params, classes, tables.timesteps)(index, x)
    rows = diffusion_loss.diffusion_losses(tables, x0, x, index, noise, prediction)
    return jnp.mean(rows.mse + rows.vb), ({"mse": jnp.mean(rows.mse), "vb": jnp.mean(rows.vb)}, extra)

  return loss_fn


def denoising_radii_loss_fn(
  draft: DiTFns,
  target: DiTFns,
  num_classes: int,
  objective: RadiusObjective,
  *,
  copies: int = 1,
  label_drop_prob: float = 0.1,
) -> LossFn:
  """The loss of a draft with radii (`radius_loss`); the extra state is the frozen target's weights.

  Raises:
    ValueError: for networks of another state size or schedule.
  """
  for name in ("state_dim", "schedule"):
    if (ours := getattr(draft, name)) != (theirs := getattr(target, name)):
      raise ValueError(f"Must have a draft with {name} {theirs} as its target, we instead got {ours}")
  tables = diffusion_tables("", target.schedule)

  def loss_fn(params: Params, extra: PyTree, batch: PyTree, key: Key):
    classes, _, index, _, x = _diffused(tables, batch, key, num_classes, copies, label_drop_prob)
    wanted = target.predictor(extra, classes, tables.timesteps)(index, x)
    prediction = draft.predictor(params, classes, tables.timesteps)(index, x)
    loss, terms = radius_loss(prediction, wanted, objective)
    assert prediction.radius is not None  # `radius_loss` refuses the others
    return loss, (terms | {"radius": jnp.mean(prediction.radius)}, extra)

  return loss_fn


def _diffused(
  tables: DiffusionTables, batch: PyTree, key: Key, num_classes: int, copies: int, label_drop_prob: float
) -> tuple[ClassLabels, Array, Array, Array, Array]:
  """Classes ``[B]``, clean states ``[R, B, C]``, steps ``[R, B, 1]``, noise and diffused states ``[R, B, C]``."""
  drop_key, time_key, noise_key = jax.random.split(key, 3)
  states = batch["states"].astype(jnp.float32)
  shape = (copies, *states.shape)
  index = jax.random.randint(time_key, (*shape[:2], 1), 0, NUM_TRAIN_STEPS)
  noise, x0 = jax.random.normal(noise_key, shape), jnp.broadcast_to(states[None], shape)
  classes = drop_labels(drop_key, batch["labels"], num_classes, label_drop_prob)
  return classes, x0, index, noise, ddpm.q_sample(tables, x0, index, noise)
