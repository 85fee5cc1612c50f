"""One training of a drafter: samples, student, updates, evaluations, checkpoint.

1. The outputs of the target that the loss reads are computed once if they fit into ``kept_gib``, else in every step.
2. `jaxspec.training.train_loop.fit` updates the student; every evaluation is the mean over the held-out rows.
3. The running mean of the parameters is written as a checkpoint, which may join a bundle.

A killed training that is started again continues from its newest checkpoint, bit for bit.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxspec.core.footprint import tree_bytes
from jaxspec.core.types import PyTree
from jaxspec.io import checkpoints
from jaxspec.io.bundle import read_bundle, write_bundle
from jaxspec.run.pipeline import Pipeline
from jaxspec.run.progress import SILENT, Progress
from jaxspec.training import train_state
from jaxspec.training.curves import write_curves
from jaxspec.training.distillation.samples import Batch, Samples, make_batch_fn, split_rows
from jaxspec.training.distillation.student import DistillationSettings, Student, teacher
from jaxspec.training.optimizer import make_optimizer
from jaxspec.training.train_loop import fit
from jaxspec.training.train_state import TrainState
from jaxspec.training.train_step import make_train_step

Figures = dict[str, float]


class Trained(NamedTuple):
  """The end of a training."""

  state: TrainState
  held_out: Figures  # means over the held-out rows
  seconds: float  # of this start


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
  """One training.

  Attributes:
    pipeline: the target.
    samples: at least ``settings.num_samples`` rows.
    student: the drafter.
    settings: see `DistillationSettings`.
  Raises:
    ValueError: if the settings do not fit the target, the samples or the devices.
  """

  pipeline: Pipeline
  samples: Samples
  student: Student
  settings: DistillationSettings

  def __post_init__(self):
    self.settings.check(self.pipeline.target)
    self.samples.first(self.settings.num_samples)
    check_devices(self.settings, len(self.devices))

  @property
  def devices(self) -> list[Any]:
    """The devices that share a batch: those of the pipeline's mesh, else all local ones."""
    mesh = self.pipeline.mesh
    return jax.local_devices() if mesh is None else list(mesh.devices.ravel())

  def run(
    self,
    run_dir: Path,
    *,
    resume: bool = True,
    progress: Progress = SILENT,
    on_eval: Callable[[int, Figures], None] = lambda step, figures: None,
  ) -> Trained:
    """Trains in a folder, or continues its training.

    Args:
      run_dir: gets ``metrics.jsonl``, ``eval.jsonl``, ``curves.png`` (with matplotlib) and ``checkpoints/``.
      on_eval: called after every evaluation with the updates done and the means over the held-out rows.
    Raises:
      jaxspec.training.train_loop.TrainingDiverged: if a logged loss is not finite.
      ValueError: if ``resume`` is off and the folder has a checkpoint.
    """
    settings, student, started = self.settings, self.student, time.perf_counter()
    samples, is_kept = self._taught(progress)
    frozen = self._replicated((student.frozen, () if is_kept else student.target))

    def loss_fn(params, extra, batch, key):
      frozen, target = extra
      taught = {} if is_kept else jax.lax.stop_gradient(student.teach_fn(target, batch))
      loss, metrics = student.loss_fn(params, frozen, batch | taught, key)
      return loss, (metrics, extra)

    optimizer = make_optimizer(settings.optimizer, settings.loop.num_steps)
    step = make_train_step(
      loss_fn, optimizer, ema_decay=settings.ema_decay, seed=settings.seed, devices=self.devices, frozen=frozen,
      matmul_precision=settings.matmul_precision,
    )  # fmt: skip
    train_rows, held_out = split_rows(settings.num_samples, settings.num_held_out)
    batches = make_batch_fn(samples, train_rows, settings.batch_size, settings.seed)

    @jax.jit
    def compute(params, extra, batch):
      loss, (metrics, _) = loss_fn(params, extra, batch, None)
      return metrics | {"loss": loss}

    def eval_fn(state: TrainState) -> Figures:
      groups = held_out.reshape(-1, settings.batch_size)
      parts = [jax.device_get(compute(state.ema, frozen, samples.batch(rows))) for rows in groups]
      return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}

    def evaluated(state: TrainState) -> Figures:
      figures = eval_fn(state)
      on_eval(int(state.step), figures)
      return figures

    first: list[int] = []

    def report(step: int, num_steps: int, metrics: Figures, rate: float) -> None:
      del rate
      first.append(step)
      shown = "  ".join(f"{name} {metrics[name]:.4f}" for name in ("loss", "acceptance") if name in metrics)
      progress.step(step, num_steps, "update", f"{student.name}  {shown}", since=first[0])

    progress(f"Training {student.name}")
    state = train_state.create(student.params, optimizer)
    state = fit(settings.loop, state, step, batches, run_dir=run_dir, eval_fn=evaluated, report_fn=report, resume=resume)
    write_curves(run_dir)
    return Trained(state, eval_fn(state), time.perf_counter() - started)

  def _taught(self, progress: Progress) -> tuple[Samples, bool]:
    """The samples, with the outputs of the target if they fit."""
    settings, student = self.settings, self.student
    samples, rows = self.samples.first(settings.num_samples), settings.batch_size
    one = samples.batch(np.zeros(rows, int))
    with jax.default_matmul_precision(settings.matmul_precision):
      shapes = jax.eval_shape(student.teach_fn, student.target, one)
      if not shapes or tree_bytes(shapes) / rows * settings.num_samples > settings.kept_gib * 2**30:
        return samples, False
      progress("Reading samples")
      target, sharded = self._replicated(student.target), self._sharding("data")
      teach, done = jax.jit(student.teach_fn), 0

      def read(batch: Batch):
        nonlocal done
        done = min(done + rows, settings.num_samples)
        progress.step(done, settings.num_samples, "sample")
        return teach(target, jax.device_put(batch, sharded))

      return samples.with_taught(read, rows), True

  def _sharding(self, *axes: str) -> NamedSharding:
    return NamedSharding(Mesh(np.array(self.devices), ("data",)), PartitionSpec(*axes))

  def _replicated(self, tree: PyTree) -> PyTree:
    return jax.device_put(tree, self._sharding())


def check_devices(settings: DistillationSettings, num_devices: int) -> None:
  """Raises a ValueError unless the devices divide the batch."""
  if settings.batch_size % num_devices:
    raise ValueError(
      f"Must have a batch_size that {num_devices} devices divide, we instead got {settings.batch_size}: "
      "set it, or use fewer devices (--mesh data=N)"
    )


def export(training: Training, trained: Trained, folder: Path, *, command: str) -> None:
  """Writes the checkpoint of a trained student, in bfloat16.

  Args:
    folder: of the checkpoint; an old one is replaced.
    command: that trained it, for its metadata.
  """
  pipeline, student, settings = training.pipeline, training.student, training.settings
  sampling = teacher(pipeline).sampling
  meta = {
    "guided": False,
    "distilled_at_cfg": sampling.cfg_scale,
    "distilled_at_temperature": sampling.temperature,
    "held_out": trained.held_out,
    "licence": pipeline.target.meta.get("licence", "unknown"),
    "command": command,
    "run": dataclasses.asdict(settings),
    "steps": int(trained.state.step),
    "hours_of_last_start": round(trained.seconds / 3600, 2),
    "jax": jax.__version__,
  }

  def copy(into: Path) -> None:
    for file in student.files:
      shutil.copyfile(file, into / file.name)

  params = student.finish_fn(trained.state.ema)
  checkpoints.save(folder, student.config, params, meta=meta | student.meta, dtype=jnp.bfloat16, write_more=copy)


def join(pipeline: Pipeline, bundle_folder: Path, name: str) -> None:
  """Adds the checkpoint ``bundle_folder / name`` to the drafts of a bundle, or of a folder of converted networks."""
  bundle = read_bundle(bundle_folder)
  whole: dict[str, Any] = {}
  if bundle.version is None:  # the published settings of a converted folder would not be read once it is a bundle
    whole = dict(target=bundle.target, parts=bundle.parts, sampling=pipeline.family.published_sampling())
  draft = bundle.defaults.draft or name
  write_bundle(bundle_folder, **whole, drafts={**bundle.drafts, name: name}, draft=draft)
