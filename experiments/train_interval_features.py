"""Trains the interval features of a device (CIAR, arXiv 2603.25463, section 3.3); cloud and device stay as they are.

Commands (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.own_samples --num-samples 512 --out runs/samples.npz
    python -m experiments.train_interval_features --config inter-2 --export checkpoints/emoji64

Config: the device of the bundle, with ``-all`` behind it for features that read all bounds in place of those of the token.
The exported device is ``NAME-features``: the same trunk and heads, and phi. Its thresholds are those of the device at
``inject=none``; others need ``jaxspec calibrate`` or a table that searches for them.

The objective is in `jaxspec.training.interval_features`. ``gain`` is what injection takes off the cloud's cross-entropy
behind the same prefix, in nats per token; 0 at the start, where features are zero.

Time: every step runs the guided cloud four times over 8 pictures, twice with gradients to its inputs: some 8 processor
seconds, so the default 300 steps take 40 minutes on two cores, and minutes on an accelerator.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxspec
from experiments.drafter_training import Student, check_export, main, samples_of, train_student
from jaxspec.bundle import Bundle, load_bundle
from jaxspec.checkpoints import Checkpoint
from jaxspec.models.conditions import Prefixed
from jaxspec.models.interval_features import IntervalFeaturesConfig, interval_features_fns
from jaxspec.models.sampling import sample
from jaxspec.training.interval_features import device_places, injection_loss
from jaxspec.training.loop import LoopConfig
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.types import Array

SUFFIX = "-features"


@dataclasses.dataclass(frozen=True)
class FeaturesRun:
  """Everything a run depends on, besides the bundle.

  Attributes:
    device: of the bundle; runs without guidance.
    source: what the features read, see `IntervalFeaturesConfig`; ``hidden`` the width of their layer.
    kl_weight: of the term that keeps the cloud undisturbed behind its own prefix.
    least_share: of the tokens of a picture that the device makes.
  """

  device: str = "inter-2"
  source: str = "token"
  hidden: int = 256
  kl_weight: float = 1.0
  least_share: float = 0.3
  seed: int = 0
  num_samples: int = 512
  samples: str = "runs/samples.npz"
  batch_size: int = 8
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=300, log_every=10, eval_every=100, checkpoint_every=50)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  bundle: str = "checkpoints/emoji64"


def get_config(arg: str = "inter-2") -> FeaturesRun:
  """``DEVICE`` or ``DEVICE-all``."""
  device = arg.removesuffix("-all")
  return FeaturesRun(device=device, source="all" if device != arg else "token")


def name_of(run: FeaturesRun) -> str:
  """Name of the trained device in its bundle."""
  return run.device + ("-all" if run.source == "all" else "") + SUFFIX


def make_loss_fn(run: FeaturesRun, config: IntervalFeaturesConfig, device: Checkpoint, bundle: Bundle):
  """The loss of a step; ``extra`` holds the frozen text encoder, cloud and device."""
  cloud, phi = jaxspec.guided(bundle.target.fns), interval_features_fns(config)
  scale, prefix = jnp.float32(bundle.defaults["cfg_scale"]), bundle.target.config.prefix_len
  temperature = bundle.defaults["temperature"]

  def laws(extra, caption, tokens: Array, features: Array | None) -> Array:
    """The guided cloud's logits ``[B, N, V]`` of every place, features ``[B, N, D]`` of the tokens injected."""
    positions = jnp.arange(prefix + tokens.shape[1] - 1)[None]
    inject = None if features is None else jnp.pad(features[:, :-1], ((0, 0), (prefix, 0), (0, 0)))
    inputs = Prefixed(caption, tokens[:, :-1])
    output, _ = cloud.apply(jaxspec.Guided(extra["cloud"], scale), inputs, positions=positions, inject=inject)
    return output.logits[:, prefix - 1 :]

  def device_says(extra, caption, tokens: Array):
    """Intervals ``[B, N, H, V]`` and features ``[B, N, D]`` at the places that draw the tokens."""
    output, _ = device.fns.apply(extra["device"], Prefixed(caption, tokens[:, :-1]))
    return jax.tree.map(lambda leaf: leaf[:, prefix - 1 :], (output.intervals, output.features))

  def loss_fn(params, extra, batch, key):
    key = jax.random.key(run.seed) if key is None else key  # evaluations: the same draws every time
    mask_key, draw_key = jax.random.split(key)
    caption = bundle.text.fns.apply(extra["text"], batch["ids"], batch["mask"])
    own = batch["tokens"]
    masked = device_places(mask_key, own.shape, run.least_share)
    of_own = device_says(extra, caption, own)
    drawn = sample(of_own[0].centre[..., 0, :] / temperature, jax.random.uniform(draw_key, own.shape))
    mixed = jnp.where(masked, drawn, own)
    of_mixed = device_says(extra, caption, mixed)
    injected = lambda said, tokens: phi.apply(params, *jax.lax.stop_gradient(said), tokens) * masked[..., None]
    undisturbed = jax.lax.stop_gradient(laws(extra, caption, own, None))
    loss, terms = injection_loss(
      laws(extra, caption, mixed, injected(of_mixed, mixed)), laws(extra, caption, own, injected(of_own, own)), undisturbed,
      own, kl_weight=run.kl_weight,
    )  # fmt: skip
    silent = jax.nn.log_softmax(jax.lax.stop_gradient(laws(extra, caption, mixed, None)))
    without = -jnp.mean(jnp.take_along_axis(silent, own[..., None], axis=-1))
    return loss, (terms | {"gain": without - terms["cross_entropy"]}, extra)

  return loss_fn


def train(run: FeaturesRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains phi (see `train_student`) and exports the device with it."""
  check_export(export_to)
  bundle = load_bundle(run.bundle, drafts=[run.device])
  device = bundle.drafts[run.device]
  if device.family != "inter_head" or device.meta.get("guided", True) is not False:
    raise ValueError(f"Must have a device without guidance, we instead got {run.device}, a {device.family}")
  trunk = device.config.trunk
  config = IntervalFeaturesConfig(
    width=bundle.target.config.dim, input_width=trunk.dim, vocab=trunk.vocab_size, hidden=run.hidden, source=run.source,
    combination=device.config.combination,
  )  # fmt: skip
  frozen = {"text": bundle.text.params, "cloud": bundle.target.params, "device": device.params}
  meta = {
    "command": f"python -m experiments.train_interval_features --config {name_of(run).removesuffix(SUFFIX)}",
    "device": device.meta,
  }
  if "calibration" in device.meta:
    meta["calibration"] = device.meta["calibration"]
  student = Student(
    name_of(run), dataclasses.replace(device.config, features=config),
    interval_features_fns(config).init(jax.random.key(run.seed)), frozen, make_loss_fn(run, config, device, bundle), meta,
    lambda params: device.params | {"features": params},
  )  # fmt: skip
  return train_student(run, bundle, samples_of(run), student, run_dir, resume, export_to)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="inter-2", name_of=name_of)
