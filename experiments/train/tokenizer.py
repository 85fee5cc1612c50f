"""Trains the image tokenizer of scenes: 96 x 96 pixels to 12 x 12 tokens.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.train.tokenizer --config scenes --run-dir runs/scenes-all --export runs/scenes-tokenizer \\
      --store-dtype bfloat16 --results experiments/results/scenes_tokenizer.json
    python -m experiments.train.tokenizer --config scenes-decoder --set start_from=runs/scenes-tokenizer \\
      --run-dir runs/scenes-decoder --export checkpoints/scenes/tokenizer --store-dtype bfloat16 \\
      --grid docs/images/scenes_tokenizer.png --results experiments/results/scenes_tokenizer_decoder.json
    python -m experiments.train.tokenizer --config textures --run-dir runs/textures-all --export runs/textures-tokenizer \\
      --store-dtype bfloat16 --results experiments/results/textures_tokenizer.json

The images are those of `experiments.train.tokenizer_images`; evaluation uses what training lacks. The encoder of scenes
looks at each patch alone: a flat background is one token repeated, and an object has the same tokens wherever it lies. The
second command trains its decoder further: images keep their tokens, and more of them are read right.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import time
from pathlib import Path

import click
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from experiments.train.command import Progress, command_of, spent, training_options
from experiments.train.tokenizer_images import LICENCE, RoundTrip, scene_images
from jaxspec.core.command_line import PATH, script
from jaxspec.core.overrides import override
from jaxspec.evaluation.scenes import FLAT_WORLD, TEXTURED_WORLD
from jaxspec.io import checkpoints
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, patch_vq_fns
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, from_uint8, to_uint8
from jaxspec.training import run_record, train_state
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.run_log import read_metrics
from jaxspec.training.train_loop import LoopConfig, fit
from jaxspec.training.train_step import make_train_step
from jaxspec.training.vq_loss import VQObjective, init_usage, restart_dead_codes, vq_loss_fn


@dataclasses.dataclass(frozen=True)
class TokenizerRun:
  """Everything a run depends on."""

  seed: int = 0
  batch_size: int = 16
  model: PatchVQConfig = PatchVQConfig(96, (32, 80, 160), (1, 1, 2), (1, 1, 3), num_codes=1024, encoder_kernel=1)
  objective: VQObjective = VQObjective(restart_until=1800)
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-3, warmup_steps=50, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=3000, log_every=10, eval_every=500, checkpoint_every=250)
  ema_decay: float = 0.99
  ema_start_fraction: float = 0.75
  materials: tuple[str, ...] = FLAT_WORLD  # of the backgrounds
  start_from: str | None = None  # checkpoint folder the run starts from


def get_config(arg: str = "scenes") -> TokenizerRun:
  """Config of a run: ``"scenes"`` (also where none is named), ``"scenes-decoder"`` (with ``--set start_from=FOLDER``),
  ``"textures"``, or ``"smoke"`` for a run of seconds."""
  if arg in ("", "scenes"):
    return TokenizerRun()
  if arg == "scenes-decoder":
    return _decoder_alone(TokenizerRun())
  if arg == "textures":
    run = TokenizerRun(materials=TEXTURED_WORLD)
    model = dataclasses.replace(run.model, num_codes=8192)
    loop = dataclasses.replace(run.loop, num_steps=5000)
    return dataclasses.replace(run, model=model, loop=loop, objective=VQObjective(restart_until=4000))
  if arg == "smoke":
    model = PatchVQConfig(96, widths=(8, 16), encoder_blocks=(1, 1), decoder_blocks=(1, 1), num_codes=32)
    loop = LoopConfig(num_steps=4, log_every=1, eval_every=0, checkpoint_every=2)
    return TokenizerRun(batch_size=4, model=model, loop=loop)
  raise ValueError(f"Must have config 'scenes', 'scenes-decoder', 'textures' or 'smoke', we instead got {arg!r}")


def _decoder_alone(run: TokenizerRun) -> TokenizerRun:
  """The decoder goes on alone, at half the rate. Images keep their tokens: networks of tokens stay as good as they are."""
  optimizer = dataclasses.replace(run.optimizer, learning_rate=1e-3, frozen=("codebook", "encoder", "to_code"))
  loop = dataclasses.replace(run.loop, num_steps=1000, eval_every=250)
  objective = dataclasses.replace(run.objective, restart_until=0)
  return dataclasses.replace(run, optimizer=optimizer, loop=loop, objective=objective)


def psnr(images: np.ndarray, targets: np.ndarray) -> np.ndarray:
  """Peak signal-to-noise ratio in dB of each of ``[B, H, W, 3]`` uint8 images."""
  error = np.mean(np.square(images.astype(np.float64) - targets.astype(np.float64)), axis=(1, 2, 3))
  return 10 * np.log10(255**2 / np.maximum(error, 1e-2))


@functools.cache
def _round_trip(tokenizer: TokenizerFns):
  def round_trip(params, pixels):
    indices, _ = tokenizer.encode(params, from_uint8(pixels))
    return indices, to_uint8(tokenizer.decode(params, indices))

  return jax.jit(round_trip)


def reconstruct(tokenizer: TokenizerFns, params, pixels: np.ndarray, batch: int = 32) -> tuple[np.ndarray, np.ndarray]:
  """Indices ``[M, N]`` int32 and decoded images ``[M, H, W, 3]`` uint8."""
  indices, images = [], []
  for start in range(0, len(pixels), batch):
    part = pixels[start : start + batch]
    padded = np.concatenate([part, np.repeat(part[:1], batch - len(part), axis=0)])
    i, x = jax.device_get(_round_trip(tokenizer)(params, padded))
    indices.append(i[: len(part)])
    images.append(x[: len(part)])
  return np.concatenate(indices), np.concatenate(images)


def _round_trip_fn(tokenizer: TokenizerFns, params) -> RoundTrip:
  return lambda pixels: reconstruct(tokenizer, params, pixels)


def evaluate(tokenizer: TokenizerFns, params, num_codes: int, pixels: np.ndarray) -> dict[str, float]:
  """PSNR and code statistics on ``[M, H, W, 3]`` uint8 images."""
  indices, images = reconstruct(tokenizer, params, pixels)
  counts = np.bincount(indices.reshape(-1), minlength=num_codes)
  distribution = counts / counts.sum()
  entropy = -np.sum(distribution * np.log(np.maximum(distribution, 1e-30)))
  return {
    "psnr": float(psnr(images, pixels).mean()),
    "codes_used": int((counts > 0).sum()),
    "perplexity": float(np.exp(entropy)),
    "most_frequent_code": float(distribution.max()),
  }


def image_grid(originals: np.ndarray, reconstructions: np.ndarray, columns: int = 12) -> Image.Image:
  """Rows of originals, each above its row of reconstructions; ``[M, H, W, 3]`` uint8 both."""
  rows = []
  for start in range(0, len(originals), columns):
    for images in (originals, reconstructions):
      row = np.pad(images[start : start + columns], ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
      row = np.concatenate([*row], axis=1)
      rows.append(np.pad(row, ((0, 0), (0, columns * (originals.shape[2] + 2) - row.shape[1]), (0, 0)), constant_values=255))
  return Image.fromarray(np.concatenate(rows, axis=0))


def train(config: TokenizerRun, run_dir: str | Path, resume: bool = True, tensorboard: bool = False):
  """Trains in ``run_dir``; returns the final state."""
  run_dir = Path(run_dir)
  run_dir.mkdir(parents=True, exist_ok=True)
  (run_dir / "config.json").write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n")
  source, tokenizer = scene_images(config.materials), patch_vq_fns(config.model)
  optimizer = make_optimizer(config.optimizer, config.loop.num_steps)
  params = checkpoints.load(config.start_from).params if config.start_from else tokenizer.init(jax.random.key(config.seed))
  state = train_state.create(params, optimizer, init_usage(config.model.num_codes, config.model.code_dim))
  train_step = make_train_step(
    vq_loss_fn(tokenizer, config.objective),
    optimizer,
    ema_decay=config.ema_decay,
    ema_start=round(config.ema_start_fraction * config.loop.num_steps),
    seed=config.seed,
    after_update_fn=restart_dead_codes(config.objective),
  )
  probe = source.probe()

  def eval_fn(state):
    figures = evaluate(tokenizer, state.ema, config.model.num_codes, probe)
    return figures | source.extra_fn(_round_trip_fn(tokenizer, state.ema))

  def sample_fn(state, path):
    _, images = reconstruct(tokenizer, state.ema, probe[:32])
    image_grid(probe[:32], images, 16).save(path)

  wall, cpu = time.perf_counter(), time.process_time()
  state = fit(
    config.loop, state, train_step, source.batch_fn(config.batch_size, config.seed),
    run_dir=run_dir, eval_fn=eval_fn, sample_fn=sample_fn, report_fn=Progress("tokenizer", config.batch_size),
    resume=resume, tensorboard=tensorboard,
  )  # fmt: skip
  spent(run_dir, time.perf_counter() - wall, time.process_time() - cpu)
  return state


@script(__doc__)
@training_options()
@click.option("--tensorboard", is_flag=True, help="Write a log for TensorBoard too.")
@click.option("--store-dtype", default="float32", metavar="NAME", help="Dtype of the exported weights.")
@click.option("--grid", type=PATH, metavar="FILE", help="Picture of reconstructions of unseen images (.png).")
@click.option("--results", type=PATH, metavar="FILE", help="Curves and final figures (.json).")
def main(
  config: str, assignments: tuple[str, ...], run_dir: Path | None, resume: bool, export: Path | None, tensorboard: bool,
  store_dtype: str, grid: Path | None, results: Path | None,
) -> None:  # fmt: skip
  logging.basicConfig(level=logging.WARNING)
  run_dir = run_dir or Path("runs/tokenizer")
  run = override(get_config(config), assignments)
  run_record.begin(run_dir, type(run).__name__, run, {}, resume=resume)
  state = train(run, run_dir, resume, tensorboard)
  if export is None and grid is None and results is None:
    return

  tokenizer, source = patch_vq_fns(run.model), scene_images(run.materials)
  times = json.loads((run_dir / "time.json").read_text())
  params = jax.tree.map(lambda x: x.astype(store_dtype).astype(x.dtype), jax.device_get(state.ema))
  figures = {name: evaluate(tokenizer, params, run.model.num_codes, pixels) for name, pixels in source.splits().items()}
  figures |= source.extra_fn(_round_trip_fn(tokenizer, params))
  if export is not None:
    meta = {
      "licence": LICENCE,
      "command": command_of("tokenizer", run, TokenizerRun()),
      "run": dataclasses.asdict(run),
      "steps": int(state.step),
      "seed": run.seed,
      "images": source.counts,
      "figures": figures,
      "time": times,
    }
    checkpoints.save(export, run.model, jax.tree.map(jnp.asarray, params), meta=meta, dtype=store_dtype)
  if grid is not None:
    grid.parent.mkdir(parents=True, exist_ok=True)
    examples = source.examples()
    image_grid(examples, reconstruct(tokenizer, params, examples)[1]).save(grid, optimize=True)
  if results is not None:
    results.parent.mkdir(parents=True, exist_ok=True)
    document = {"config": dataclasses.asdict(run), "versions": {"jax": jax.__version__}, "time": times}
    document |= {"figures": figures, "eval": read_metrics(run_dir / "eval.jsonl")}
    document["train"] = [
      {name: record[name] if name == "step" else round(record[name], 5) for name in ("step", "loss", "l1", "psnr", "used")}
      for record in read_metrics(run_dir / "metrics.jsonl")
    ]
    results.write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
  main()
