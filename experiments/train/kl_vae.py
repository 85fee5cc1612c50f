"""Trains the autoencoder of the continuous tokens: 64x64 images to 8x8 latents of 8 channels.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.train.kl_vae --run-dir runs/kl_vae --export runs/classes64-causal
    python -m experiments.train.kl_vae --config digits --run-dir runs/digits_vae --export checkpoints/digits32-causal

Emoji are drawn on white in half of the cases, else on a colour of the palette, a quarter small, and judged on families that
no training image belongs to. ``--config digits`` makes 8x8 latents of 4 channels of 32x32 digits
(`experiments.data.digits`). ``--estimate`` prints how long a run takes.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.batches import in_batches
from experiments.data.class_images import ImageSet, load_images
from experiments.train.command import Progress, main, meta_of, predicted_hours
from experiments.train.tokenizer import image_grid, psnr
from jaxspec.io import checkpoints
from jaxspec.io.bundle import write_bundle
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig, VAEFns, kl_vae_fns
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8, to_uint8
from jaxspec.training import train_state
from jaxspec.training.epochs import epochs_of
from jaxspec.training.kl_vae_loss import VAEObjective, kl_vae_loss_fn
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.train_loop import LoopConfig, fit
from jaxspec.training.train_step import make_train_step

PROBE = 96


@dataclasses.dataclass(frozen=True)
class VAERun:
  """Everything a run depends on."""

  name: str = "kl_vae"
  images: str = "emoji"  # a set of `experiments.data.class_images`
  seed: int = 0
  batch_size: int = 16
  model: KLVAEConfig = KLVAEConfig(
    base_channels=24, multipliers=(1, 2, 3, 4), num_res_blocks=1, attention_levels=(), z_channels=8, latent_channels=8,
    num_groups=8,
  )  # fmt: skip
  objective: VAEObjective = VAEObjective()
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=50, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=4000, log_every=10, eval_every=500, checkpoint_every=250)
  ema_decay: float = 0.995


def get_config(arg: str = "") -> VAERun:
  """Config of a run: ``""`` (images) or ``digits`` for two CPU cores, ``smoke`` for a run of seconds."""
  if arg == "smoke":
    model = KLVAEConfig(
      base_channels=4, multipliers=(1, 1, 1, 2), num_res_blocks=1, attention_levels=(), z_channels=2, latent_channels=2,
      num_groups=2,
    )  # fmt: skip
    loop = LoopConfig(num_steps=2, log_every=1, eval_every=0, checkpoint_every=1)
    return VAERun(batch_size=2, model=model, loop=loop)
  if arg == "digits":
    model = dataclasses.replace(VAERun.model, base_channels=16, multipliers=(1, 2, 3), z_channels=4, latent_channels=4)
    loop = dataclasses.replace(VAERun.loop, num_steps=1500)
    return VAERun("digits_vae", "digits", batch_size=32, model=model, loop=loop)
  if arg:
    raise ValueError(f"Must have config '', 'digits' or 'smoke', we instead got {arg!r}")
  return VAERun()


def make_batch_fn(run: VAERun, images: ImageSet):
  """Batches of painted training images as a pure function of the step."""
  split = images.train
  chosen = epochs_of(np.arange(len(split.labels)), run.batch_size, (run.seed, 0))

  def batch_fn(step: int) -> dict[str, np.ndarray]:
    return {"images": split.draw(chosen(step), np.random.default_rng((run.seed, 1, step)))}

  return batch_fn


def latent_moments(vae: VAEFns, params, pixels: np.ndarray, batch: int = 32) -> tuple[np.ndarray, np.ndarray]:
  """Mean and deviation ``[M, h, w, c]`` float32 of the latents of ``[M, H, W, 3]`` uint8 images."""
  encode = jax.jit(
    lambda params, part: (lambda distribution: (distribution.mean, distribution.std))(vae.encode(params, from_uint8(part)))
  )
  return in_batches(lambda part: encode(params, part), pixels, batch=batch)


def reconstruct(vae: VAEFns, params, pixels: np.ndarray, std: float = 0.0, batch: int = 32) -> np.ndarray:
  """Images uint8 decoded from mean latents, with noise of a deviation on them."""
  mean, _ = latent_moments(vae, params, pixels, batch)
  latents = mean + std * np.random.default_rng(0).normal(size=mean.shape).astype(np.float32)
  decode = jax.jit(lambda params, part: to_uint8(vae.decode(params, part)))
  return in_batches(lambda part: decode(params, part), latents, batch=batch)


def evaluate(run: VAERun, params, pixels: np.ndarray) -> dict[str, float]:
  """PSNR of reconstructions from clean and from noisy latents, and the deviation of the latents."""
  vae = kl_vae_fns(run.model)
  mean, _ = latent_moments(vae, params, pixels)
  noisy = {"psnr": 0.0, "psnr_noisy": run.objective.min_std}
  quality = {name: float(psnr(reconstruct(vae, params, pixels, std), pixels).mean()) for name, std in noisy.items()}
  return quality | {"latent_std": float(mean.std())}


def _start(run: VAERun):
  vae = kl_vae_fns(run.model)
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  state = train_state.create(vae.init(jax.random.key(run.seed)), optimizer)
  step = make_train_step(kl_vae_loss_fn(vae, run.objective), optimizer, ema_decay=run.ema_decay, seed=run.seed)
  return state, step


def estimate(run: VAERun) -> float:
  """Hours of a whole run without evaluations."""
  state, step = _start(run)
  return predicted_hours(step, state, make_batch_fn(run, load_images(run.images)), run.loop.num_steps)


def train(run: VAERun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) begins a bundle; returns the final state."""
  images = load_images(run.images)
  state, step = _start(run)
  probe = np.random.default_rng(0).permutation(len(images.unseen.labels))[:PROBE]
  pixels = images.unseen.draw(probe, None)

  def sample_fn(state, path: Path) -> None:
    image_grid(pixels[:32], reconstruct(kl_vae_fns(run.model), state.ema, pixels[:32]), 16).save(path)

  started = time.perf_counter()
  state = fit(
    run.loop, state, step, make_batch_fn(run, images), run_dir=run_dir, report_fn=Progress(run.name, run.batch_size),
    resume=resume, eval_fn=(lambda state: evaluate(run, state.ema, pixels)) if run.loop.eval_every else None,
    sample_fn=sample_fn,
  )  # fmt: skip
  if export_to is not None:
    figures = evaluate(run, state.ema, pixels)
    config = run.images if run.images != "emoji" else ""
    script = "kl_vae" + (f" --config {config}" if config else "")
    about = dict(licence=images.licence, started=started, figures=figures)
    meta = meta_of(script, run, get_config(config), state, **about)
    path = Path(export_to)
    checkpoints.save(path / "vae", run.model, jax.tree.map(jnp.asarray, state.ema), meta=meta, dtype=jnp.bfloat16)
    # Tokens are latents of unit deviation.
    write_bundle(path, parts={"vae": "vae", "classes": images.classes, "latent_scale": 1.0 / figures["latent_std"]})
  return state


if __name__ == "__main__":
  main(__doc__, get_config, train, estimate=estimate)
