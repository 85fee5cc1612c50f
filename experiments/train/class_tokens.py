"""Trains networks of continuous tokens, class-conditional on a set of images (`experiments.data.class_images`).

Commands (from the repository root; an interrupted run resumes). The autoencoder comes first
(``experiments.train.kl_vae --config digits``); each network is added to the bundle of its family::

    python -m experiments.train.class_tokens --config digits-mar-target --export checkpoints/digits32-mar
    python -m experiments.train.class_tokens --config digits-mar-draft --export checkpoints/digits32-mar
    python -m experiments.train.class_tokens --config digits-causal-target --export checkpoints/digits32-causal
    python -m experiments.train.class_tokens --config digits-causal-draft --export checkpoints/digits32-causal \\
      --set teacher=checkpoints/digits32-causal/target

``mar-target``, ``causal-target`` and their drafts are larger, for the 95 subgroups of the emoji images in 64x64 pixels. They
are not shipped; the causal pair is trained into ``runs/classes64-causal`` (``docs/mar.md``, section 5).

A target costs at least four times its draft (`cost_ratio`). Tokens are sampled from the autoencoder's posterior in every
step; earlier tokens as inputs have the noise of chains that stop at ``stop``. ``--estimate`` prints the time of a run.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.class_images import ImageSet, load_images
from experiments.train.class_network import (
  Batches,
  Entry,
  Recipe,
  check_classes,
  encoded_batches,
  exporter,
  hours_of,
  parts_of,
  sampled_latents,
  train_network,
)
from experiments.train.command import main
from experiments.train.kl_vae import latent_moments
from jaxspec.core.network import Network
from jaxspec.diffusion.schedule import kept_steps
from jaxspec.io import checkpoints
from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.models.mar.mar import MARConfig, mar_fns, multiply_adds, patchify
from jaxspec.training.causal_tokens_loss import Teacher, causal_loss_fn
from jaxspec.training.mar_loss import mar_loss_fn
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig

# Tokens of each set (`experiments.data.class_images`).
TOKENS = {
  "emoji": dict(num_tokens=64, latent_channels=8, num_classes=95),
  "digits": dict(num_tokens=64, latent_channels=4, num_classes=10),
}


def _mar(tokens: str, width: int, depth: int, heads: int, head_width: int, head_depth: int) -> MARConfig:
  return MARConfig(
    **TOKENS[tokens], buffer_size=8, encoder_dim=width, encoder_depth=depth, encoder_heads=heads, decoder_dim=width,
    decoder_depth=depth, decoder_heads=heads, diffloss_width=head_width, diffloss_depth=head_depth,
  )  # fmt: skip


def _causal(tokens: str, width: int, depth: int, heads: int, head_width: int, head_depth: int) -> CausalTokensConfig:
  return CausalTokensConfig(
    **TOKENS[tokens], dim=width, num_layers=depth, num_heads=heads, diffloss_width=head_width, diffloss_depth=head_depth
  )


NETWORKS = {
  "mar-target": _mar("emoji", 192, 4, 6, 320, 4),
  "mar-draft": _mar("emoji", 96, 2, 3, 160, 2),
  "causal-target": _causal("emoji", 256, 8, 8, 320, 4),
  "causal-draft": _causal("emoji", 128, 3, 4, 160, 2),
  "digits-mar-target": _mar("digits", 128, 3, 4, 192, 3),
  "digits-mar-draft": _mar("digits", 64, 1, 2, 96, 2),
  "digits-causal-target": _causal("digits", 160, 5, 5, 192, 3),
  "digits-causal-draft": _causal("digits", 80, 2, 5, 96, 2),
}


@dataclasses.dataclass(frozen=True)
class ClassTokensRun:
  """Everything a run depends on."""

  name: str
  model: MARConfig | CausalTokensConfig
  seed: int = 0
  batch_size: int = 32
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=200, weight_decay=0.02, clip_norm=3.0)
  loop: LoopConfig = LoopConfig(num_steps=6000, log_every=20, eval_every=500, checkpoint_every=250)
  ema_decay: float = 0.98  # from the first weights on: a longer mean would still hold them at the end of a short run
  batch_mul: int = 4
  label_drop: float = 0.1
  dropout: bool = False  # of MAR; runs this short do not overfit
  min_mask_ratio: float = 0.05  # token by token, all but a few tokens are known in the end
  num_steps: str = "ddim50"  # diffusion steps that the bundle's defaults ask for, and
  stop: int | None = 5  # where chains end there; None trains on clean tokens
  num_variants: int = 4  # paintings of each training image that are encoded; the first is plain
  num_images: int | None = None  # the first training images only, for a smoke run
  matmul_precision: str | None = "bfloat16"
  images: str = "emoji"
  vae: str = "runs/classes64-causal/vae"
  teacher: str = ""  # of a causal draft: a checkpoint to agree with at the steps that drafts take

  @property
  def is_draft(self) -> bool:
    return self.name.endswith("draft")

  @property
  def context_step(self) -> int | None:
    """The original diffusion step whose noise earlier tokens carry."""
    return None if not self.stop else kept_steps(self.num_steps)[self.stop - 1]


# Four steps down to the noise of step 432, and four more that are taken in the end. The first step is not 999: an error of
# the predicted noise would be multiplied by thousands there.
FAR_STEPS, FAR_STOP = "1,0,1,0,1,0,1,0,1,0,1,0,1,1", 4


def get_config(arg: str = "mar-target") -> ClassTokensRun:
  """Config of a run: a name of `NETWORKS`, or ``smoke`` (MAR) and ``causal-smoke`` for runs of seconds, of targets or, with
  ``-draft`` after it, drafts."""
  arg = arg or "mar-target"
  if arg in NETWORKS:
    far: dict = dict(num_steps=FAR_STEPS, stop=FAR_STOP) if "causal" in arg else {}
    digits: dict = dict(images="digits", vae="checkpoints/digits32-causal/vae") if arg.startswith("digits-") else {}
    return ClassTokensRun(arg, NETWORKS[arg], **far, **digits)
  kind = arg.removesuffix("-draft")
  if kind not in ("smoke", "causal-smoke"):
    raise ValueError(f"Must have config {', '.join(NETWORKS)}, smoke or causal-smoke, we instead got {arg!r}")
  small = dict(TOKENS["emoji"], latent_channels=2)
  if kind == "smoke":
    model = dataclasses.replace(_mar("emoji", 16, 1, 2, 16, 1), latent_channels=2)
  else:
    model = CausalTokensConfig(**small, dim=16, num_layers=1, num_heads=2, diffloss_width=16, diffloss_depth=1)
  loop = LoopConfig(num_steps=2, log_every=1, eval_every=0, checkpoint_every=1)
  return ClassTokensRun(arg, model, batch_size=2, batch_mul=1, loop=loop, num_variants=1, num_images=4)


def forward_cost(model: MARConfig | CausalTokensConfig, num_steps: int) -> float:
  """Multiply-adds of one token generated alone, with ``num_steps`` of the head: MAR from half of the tokens, the causal
  network from its cache."""
  if isinstance(model, MARConfig):
    return multiply_adds(model, model.num_tokens // 2, 1, num_steps)
  trunk, width = model.trunk, model.diffloss_width
  blocks = trunk.num_layers * (4 * trunk.dim**2 + 3 * trunk.dim * trunk.ffn_hidden + model.num_tokens * trunk.dim)
  return blocks + num_steps * (model.diffloss_depth * 5 * width**2 + 2 * width**2 + 3 * model.token_dim * width)


def cost_ratio(family: str) -> float:
  """Cost of the target of a family (``mar``, ``causal``, ``digits-mar``, ``digits-causal``) over that of its draft."""
  steps = len(kept_steps(get_config(f"{family}-target").num_steps))
  return forward_cost(NETWORKS[f"{family}-target"], steps) / forward_cost(NETWORKS[f"{family}-draft"], steps)


def load_vae(run: ClassTokensRun) -> Network:
  """The autoencoder; its latents must be those of the tokens."""
  vae = checkpoints.load(run.vae)
  side = load_images(run.images).side // vae.config.factor // run.model.patch_size
  channels = vae.config.latent_channels
  if (channels, side**2) != (run.model.latent_channels, run.model.num_tokens):
    wanted = f"{run.model.num_tokens} tokens of {run.model.latent_channels} channels"
    raise ValueError(f"Must have {wanted}, {run.vae} gives {side**2} of {channels}")
  return vae


def make_batch_fn(run: ClassTokensRun, images: ImageSet, vae: Network, split: str = "train"):
  """Batches of tokens and labels as a pure function of the step; all images are encoded once, here."""
  scale = latent_scale(run)

  def batch_of(rows: tuple[np.ndarray, np.ndarray], labels: np.ndarray, generator: np.random.Generator):
    latents = sampled_latents(rows, scale, generator)
    return {"tokens": np.asarray(patchify(latents, run.model.patch_size)), "labels": labels}

  return encoded_batches(
    getattr(images, split), functools.partial(latent_moments, vae.fns, vae.params), batch_of,
    batch_size=run.batch_size, seed=run.seed, num_variants=run.num_variants, num_images=run.num_images,
  )  # fmt: skip


def latent_scale(run: ClassTokensRun) -> float:
  """The factor on latents, from the bundle of the autoencoder."""
  return float(parts_of(run.vae)["latent_scale"])


def make_loss_fn(run: ClassTokensRun):
  """The objective of the network's family."""
  kwargs = dict(batch_mul=run.batch_mul, label_drop_prob=run.label_drop, context_step=run.context_step)
  if isinstance(run.model, MARConfig):
    if run.teacher:
      raise ValueError(f"Must have no teacher for a MAR network, we instead got {run.teacher}")
    kwargs |= dict(min_mask_ratio=run.min_mask_ratio, dropout=run.dropout)
    return mar_loss_fn(mar_fns(run.model), run.model.num_classes, **kwargs)
  if run.teacher:
    teacher = checkpoints.load(run.teacher, dtype=jnp.float32)
    if not isinstance(teacher.config, CausalTokensConfig):
      found = f"{run.teacher}, a {teacher.family_name}"
      raise ValueError(f"Must have a causal teacher of a causal draft, we instead got {found}")
    focus = tuple(kept_steps(run.num_steps)[run.stop or 0 :])
    kwargs |= dict(teacher=Teacher(teacher.fns, teacher.params), focus=focus)
  return causal_loss_fn(causal_token_fns(run.model), run.model.num_classes, **kwargs)


def make_recipe(run: ClassTokensRun) -> Recipe:
  """Starting weights and losses."""
  fns = mar_fns(run.model) if isinstance(run.model, MARConfig) else causal_token_fns(run.model)
  params = fns.init(jax.random.key(run.seed))
  return Recipe(params, make_loss_fn(run), make_loss_fn(dataclasses.replace(run, label_drop=0.0)))


def random_batch_fn(run: ClassTokensRun):
  """Batches of the right shapes, for timing."""
  generator = np.random.default_rng(0)
  shape = (run.batch_size, run.model.num_tokens, run.model.token_dim)
  batch = {
    "tokens": generator.normal(size=shape).astype(np.float32),
    "labels": generator.integers(run.model.num_classes, size=run.batch_size).astype(np.int32),
  }
  return lambda step: batch


def estimate(run: ClassTokensRun) -> float:
  """Hours of a whole run without evaluations; needs no autoencoder."""
  return hours_of(run, make_recipe(run), random_batch_fn(run))


def entry_of(run: ClassTokensRun) -> Entry:
  """The network's place in its bundle."""
  sampling, masked = {"steps": run.num_steps, "stop": run.stop}, isinstance(run.model, MARConfig)
  # A quarter as many iterations as tokens, as MAR's own parallel decoding has, and guidance, as it is published with.
  options = {"num_iter": run.model.num_tokens // 4} if masked else {}
  sampling |= {"cfg_scale": 2.0} if masked else {"refine": bool(run.stop)}
  defaults = dict(method="parallel" if masked else "cspd", sampling=sampling, options=options)
  return Entry("draft" if run.is_draft else "target", "vae", run.vae, defaults)


def train(run: ClassTokensRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) adds the network to a bundle; returns the final state."""
  images, vae = load_images(run.images), load_vae(run)
  check_classes(run, images)
  held_out = dataclasses.replace(run, seed=run.seed + 1, num_variants=1)
  batches = Batches(make_batch_fn(run, images, vae), make_batch_fn(held_out, images, vae, "held_out"))
  script, default = f"class_tokens --config {run.name}", get_config(run.name)
  export = exporter(export_to, entry_of(run), run.model, run, script, default, images.licence)
  return train_network(run, make_recipe(run), batches, run_dir, resume=resume, export=export)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="mar-target", estimate=estimate)
