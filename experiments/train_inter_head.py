"""Trains a device with an Inter-Head against the shipped cloud (CIAR, arXiv 2603.25463, sections 3.2 and 3.4).

Command (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.train_inter_head --config 2 --run-dir runs/inter-2 --export checkpoints/emoji64

1. Contexts are pictures that the guided cloud drew for random training prompts (what a device meets while decoding). They
   are sampled once and kept beside the run; ``--set samples=FILE`` takes those of another run, also of
   `experiments.distill_draft`.
2. The device starts from the cloud's first layers, its norm and its output matrix; its radii are 0.5 everywhere.
3. Every step computes the frozen, guided cloud's laws over its batch and minimises the Inter-DRO loss. The device learns
   them from the condition alone and runs without guidance, at half the cost.

Configs: the layers, ``1``, ``2``, ``3`` or ``5`` (Table 5), optionally with heads (``2x3``: two layers, three heads;
Table 6) and an ablation of the loss (``2-without_upper``; Table 7, names in `jaxspec.training.inter_dro.ABLATIONS`).

Time: a step of 8 pictures at depth 2 takes one to one and a half processor seconds, so the default 800 steps take a quarter
of an hour, plus the sampling. On accelerators the same command runs data-parallel.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import logging
import re
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from experiments.distill_draft import sample_pictures
from jaxspec import bundle as bundles
from jaxspec import checkpoints
from jaxspec.bundle import Bundle, load_bundle
from jaxspec.cli.progress import TrainProgress
from jaxspec.intervals.scores import IntervalScore
from jaxspec.models.conditions import Prefixed
from jaxspec.models.inter_head import InterHeadConfig, device_from_cloud, inter_head_fns
from jaxspec.training import train_state
from jaxspec.training.inter_dro import ABLATIONS, InterDro, inter_dro
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.overrides import override
from jaxspec.training.step import make_train_step

HELD_OUT = 32  # pictures that no update sees
DEPTHS = (1, 2, 3, 5)


@dataclasses.dataclass(frozen=True)
class InterRun:
  """Everything a run depends on, besides the bundle.

  Attributes:
    samples: file of contexts to use instead of sampling.
    temperature: of the laws that the device learns; 1 as published. Thresholds are on scores at temperature 1 either way.
    guided: train a device that runs with guidance of its own, as the paper's does; its two halves then learn the cloud's
      two halves.
  """

  seed: int = 0
  num_layers: int = 2
  num_heads: int = 1
  combination: str = "ensemble"
  loss: InterDro = InterDro()
  num_samples: int = 512
  samples: str = ""
  batch_size: int = 8
  temperature: float = 1.0
  guided: bool = False
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=800, log_every=10, eval_every=200, checkpoint_every=200)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  tokens: str = "runs/tokens/emoji64.npz"
  bundle: str = "checkpoints/emoji64"


def get_config(arg: str = "2") -> InterRun:
  """Config of a run: ``layers``, ``layersxheads``, and ``-ablation`` behind either.

  Raises:
    ValueError: for anything else.
  """
  match = re.fullmatch(r"(\d+)(?:x(\d+))?(?:-(\w+))?", arg)
  if match is None or int(match[1]) not in DEPTHS or (match[3] or "full") not in ABLATIONS:
    raise ValueError(f"Must have layers in {DEPTHS}, heads, and one of {', '.join(ABLATIONS)}, we instead got {arg!r}")
  return InterRun(num_layers=int(match[1]), num_heads=int(match[2] or 1), loss=ABLATIONS[match[3] or "full"])


def name_of(run: InterRun) -> str:
  """Name of the device in its bundle."""
  heads = f"x{run.num_heads}" if run.num_heads > 1 else ""
  ablation = next((name for name, loss in ABLATIONS.items() if loss == run.loss), "custom")
  return f"inter-{run.num_layers}{heads}" + ("" if ablation == "full" else f"-{ablation}")


def make_loss_fn(run: InterRun, config: InterHeadConfig, bundle: Bundle):
  """The loss of a step; ``extra`` holds the frozen text encoder and cloud. Metrics are the terms, acceptance and U."""
  device, cloud = inter_head_fns(config), bundle.target.fns
  if run.guided:
    halves = lambda params, caption: jax.tree.map(
      lambda a, b: jnp.concatenate([a, b]), caption, cloud.null_condition(params, caption)
    )
  else:
    guided_cloud = jaxspec.guided(cloud)
    scale = jnp.float32(bundle.defaults["cfg_scale"])
  prefix = config.trunk.prefix_len
  score_fn = IntervalScore(combination=run.combination)

  def loss_fn(params, extra, batch, key):
    caption = bundle.text.fns.apply(extra["text"], batch["ids"], batch["mask"])
    fed = batch["tokens"][:, :-1]
    if run.guided:
      inputs = Prefixed(halves(extra["cloud"], caption), jnp.concatenate([fed, fed]))
      law = cloud.apply(extra["cloud"], inputs)[0].logits
    else:
      inputs = Prefixed(caption, fed)
      law = guided_cloud.apply(
        jaxspec.Guided(extra["cloud"], scale), inputs, positions=jnp.arange(prefix + fed.shape[1])[None]
      )[0].logits
    law = law[:, prefix - 1 :] / run.temperature
    intervals = jax.tree.map(lambda x: x[:, prefix - 1 :], device.apply(params, inputs)[0].intervals)
    loss, terms = inter_dro(intervals, law, run.loss)
    p, q = jax.nn.softmax(law), jnp.mean(jax.nn.softmax(intervals.centre), axis=-2)
    first = jax.tree.map(lambda x: x[:, 0], intervals)  # U of one place per picture: a glance, not an evaluation
    uncertainty = score_fn(first, jnp.zeros((p.shape[0], 1)), key)
    figures = {
      "acceptance": jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1)),
      "radius": jnp.mean(intervals.radius),
      "uncertainty": jnp.mean(uncertainty),
    }
    return loss, (terms | figures, extra)

  return loss_fn


def _prepare(run: InterRun, bundle: Bundle, run_dir: Path) -> dict[str, np.ndarray]:
  """Contexts, made once and kept beside the run."""
  file = Path(run.samples) if run.samples else run_dir / "samples.npz"
  if file.exists():
    with np.load(file) as archive:
      samples = {name: archive[name] for name in ("tokens", "ids", "mask")}
    if run.samples or len(samples["tokens"]) == run.num_samples:
      return samples
  elif run.samples:
    raise ValueError(f"Must have a file of samples, {file} is none")
  run_dir.mkdir(parents=True, exist_ok=True)
  report = lambda done, total: print(f"sampled {done}/{total} pictures", flush=True)
  with jax.default_matmul_precision(run.matmul_precision):
    samples = sample_pictures(run, bundle, report_fn=report)
  np.savez(run_dir / "samples.npz", **samples)
  return samples


def train(run: InterRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates on held-out contexts and (with ``export_to``) adds the device to the bundle."""
  run_dir, bundle = Path(run_dir), load_bundle(run.bundle, drafts=[])
  data = _prepare(run, bundle, run_dir)
  if len(data["tokens"]) <= HELD_OUT + run.batch_size:
    raise ValueError(f"Must have more than {HELD_OUT + run.batch_size} samples, we instead got {len(data['tokens'])}")
  train_rows = np.arange(HELD_OUT, len(data["tokens"]))
  config, params = device_from_cloud(
    bundle.target.config, bundle.target.params, run.num_layers, jax.random.key(run.seed),
    num_heads=run.num_heads, combination=run.combination,
  )  # fmt: skip
  loss_fn = make_loss_fn(run, config, bundle)
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  step = make_train_step(
    loss_fn, optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision
  )

  def pick(rows):
    return {name: leaf[rows].astype(np.int32) if name == "tokens" else leaf[rows] for name, leaf in data.items()}

  @functools.lru_cache(maxsize=2)
  def order(epoch):
    return np.random.default_rng((run.seed, epoch)).permutation(train_rows)

  def batch_fn(index):
    at = range(index * run.batch_size, (index + 1) * run.batch_size)
    return pick(np.array([order(i // len(train_rows))[i % len(train_rows)] for i in at]))

  @jax.jit
  def compute(params, extra, batch):
    keys = jax.random.split(jax.random.key(0), batch["tokens"].shape[0])
    loss, (terms, _) = loss_fn(params, extra, batch, keys)
    return terms | {"loss": loss}

  def eval_fn(state):
    parts = [compute(state.ema, state.extra, pick(np.arange(i, i + 8))) for i in range(0, HELD_OUT, 8)]
    return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}

  started = time.perf_counter()
  # The state is donated: the bundle keeps its own copies.
  frozen = jax.tree.map(jnp.copy, {"text": bundle.text.params, "cloud": bundle.target.params})
  state = train_state.create(params, optimizer, extra=frozen)
  with TrainProgress(name_of(run), items_per_step=run.batch_size) as progress:
    state = fit(run.loop, state, step, batch_fn, run_dir=run_dir, eval_fn=eval_fn, report_fn=progress, resume=resume)
  if export_to is not None:
    export(run, config, state, eval_fn(state), Path(export_to), bundle, time.perf_counter() - started)
  return state


def export(run, config, state, figures, path: Path, bundle: Bundle, seconds: float) -> None:
  """Writes the device and enters it into ``bundle.json``; thresholds come with ``jaxspec calibrate``."""
  name = name_of(run)
  meta = {
    "licence": bundle.target.meta.get("licence", "unknown"),
    "command": f"python -m experiments.train_inter_head --config {name.removeprefix('inter-')}",
    "guided": run.guided,
    "distilled_at_cfg": bundle.defaults["cfg_scale"],
    "distilled_at_temperature": run.temperature,
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
    "held_out": figures,
    "hours": round(seconds / 3600, 2),
  }
  checkpoints.save(path / name, config, state.ema, meta=meta, dtype=jnp.bfloat16)
  document = bundles.read_bundle(path)
  document["drafts"] = dict(sorted((document["drafts"] | {name: name}).items()))
  (path / bundles.BUNDLE_FILE).write_text(json.dumps(document, indent=2) + "\n")


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--config", default="2", help="layers, layersxheads, with -ablation behind")
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
  parser.add_argument("--run-dir", type=Path)
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", metavar="BUNDLE")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  run = override(get_config(args.config), args.set)
  train(run, args.run_dir or Path(f"runs/{name_of(run)}"), args.resume, args.export)


if __name__ == "__main__":
  main()
