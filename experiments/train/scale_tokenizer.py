"""Trains a tokenizer of scales for VAR: 32x32 digits to scales of codes of 1, 2, 3, 4, 6 and 8 tokens per side.

Command (from the repository root; an interrupted run resumes)::

    python -m experiments.train.scale_tokenizer --run-dir runs/digits_scales --export checkpoints/digits32-var

Images are those of `experiments.data.class_images` (digits: ``python -m experiments.data.digits`` first). The last updates
restart no codes. ``--estimate`` prints how long a run takes.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.class_images import load_images
from experiments.train.command import Progress, main, meta_of, predicted_hours
from experiments.train.kl_vae import PROBE, make_batch_fn
from experiments.train.tokenizer import evaluate, image_grid, reconstruct
from jaxspec.io import checkpoints
from jaxspec.io.bundle import write_bundle
from jaxspec.models.tokenizers.var_vae import VARVAEConfig, var_vae_fns
from jaxspec.training import train_state
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.scale_vq import CODEBOOK, scale_vq_loss_fn
from jaxspec.training.train_loop import LoopConfig, fit
from jaxspec.training.train_step import make_train_step
from jaxspec.training.vq_loss import VQObjective, init_usage, restart_dead_codes

SIDES = (1, 2, 3, 4, 6, 8)


@dataclasses.dataclass(frozen=True)
class ScaleTokenizerRun:
  """Everything a run depends on."""

  name: str = "digits_scales"
  images: str = "digits"  # a set of `experiments.data.class_images`
  seed: int = 0
  batch_size: int = 32
  model: VARVAEConfig = VARVAEConfig(
    base_channels=16, multipliers=(1, 2, 3), num_res_blocks=1, codebook_size=256, codebook_dim=8, sides=SIDES, num_groups=8
  )
  objective: VQObjective = VQObjective(restart_until=900)
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=50, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=1500, log_every=10, eval_every=500, checkpoint_every=250)
  ema_decay: float = 0.99
  ema_start_fraction: float = 0.7  # after the last restart of a code: a mean of two codes is none


def get_config(arg: str = "") -> ScaleTokenizerRun:
  """Config of a run: ``""`` (digits), or ``smoke`` for a run of seconds."""
  if arg == "smoke":
    model = VARVAEConfig(
      base_channels=4, multipliers=(1, 1, 1), num_res_blocks=1, codebook_size=16, codebook_dim=2, sides=(1, 4, 8),
      num_groups=2,
    )  # fmt: skip
    loop = LoopConfig(num_steps=2, log_every=1, eval_every=0, checkpoint_every=1)
    return ScaleTokenizerRun(batch_size=2, model=model, loop=loop)
  if arg:
    raise ValueError(f"Must have config '' or 'smoke', we instead got {arg!r}")
  return ScaleTokenizerRun()


def _start(run: ScaleTokenizerRun):
  tokenizer, images = var_vae_fns(run.model), load_images(run.images)
  if images.side != run.model.image_size:
    raise ValueError(f"Must have sides and multipliers that make {images.side} pixels, {run.model.image_size} are made")
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  usage = init_usage(run.model.codebook_size, run.model.codebook_dim)
  state = train_state.create(jax.jit(tokenizer.init)(jax.random.key(run.seed)), optimizer, usage)
  step = make_train_step(
    scale_vq_loss_fn(tokenizer, run.objective),
    optimizer,
    ema_decay=run.ema_decay,
    ema_start=round(run.ema_start_fraction * run.loop.num_steps),
    seed=run.seed,
    after_update_fn=restart_dead_codes(run.objective, CODEBOOK),
  )
  return state, step


def estimate(run: ScaleTokenizerRun) -> float:
  """Hours of a whole run without evaluations."""
  state, step = _start(run)
  return predicted_hours(step, state, make_batch_fn(run, load_images(run.images)), run.loop.num_steps)


def train(run: ScaleTokenizerRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) begins a bundle; returns the final state."""
  images, tokenizer = load_images(run.images), var_vae_fns(run.model)
  state, step = _start(run)
  probe = np.random.default_rng(0).permutation(len(images.unseen.labels))[:PROBE]
  pixels = images.unseen.draw(probe, None)
  figures_of = lambda params: evaluate(tokenizer, params, run.model.codebook_size, pixels)

  def sample_fn(state, path: Path) -> None:
    image_grid(pixels[:32], reconstruct(tokenizer, state.ema, pixels[:32])[1], 16).save(path)

  started = time.perf_counter()
  state = fit(
    run.loop, state, step, make_batch_fn(run, images), run_dir=run_dir, report_fn=Progress(run.name, run.batch_size),
    resume=resume, eval_fn=(lambda state: figures_of(state.ema)) if run.loop.eval_every else None, sample_fn=sample_fn,
  )  # fmt: skip
  if export_to is not None:
    about = dict(licence=images.licence, started=started, figures=figures_of(state.ema))
    meta = meta_of("scale_tokenizer", run, get_config(), state, **about)
    path = Path(export_to)
    checkpoints.save(path / "tokenizer", run.model, jax.tree.map(jnp.asarray, state.ema), meta=meta, dtype=jnp.bfloat16)
    write_bundle(path, parts={"tokenizer": "tokenizer", "classes": images.classes})
  return state


if __name__ == "__main__":
  main(__doc__, get_config, train, estimate=estimate)
