"""Memory and time of the training of a drafter on one device (`jaxspec.training.distillation`), without the device.

Bytes and operations are formulas over the shapes of the networks. A batch has ``B`` rows of ``P`` positions of a prompt and
``N`` tokens of ``V`` ids, ``T = P + N - 1``; guidance has ``G`` halves. A student reads its rows in ``A`` passes, 2 of an
EAGLE head and 1 of others. Its loss compares ``C`` distributions: ``A``, or 3 for each head of an Inter-Head. A block head
reads the inputs of its blocks instead of the rows; keys and values of its context are not counted. The windows of spatial
heads cover a row about once.

| part | bytes |
|---|---|
| target | its parameters in the dtype of the decode |
| student | 20 each: parameter, running mean, two moments and gradient in float32 |
| activations of the student | `activation_bytes` of a block in float32, for each layer and pass: the gradient reads them |
| distributions | 6 C arrays ``[B, N, V]`` in float32: logits, two temporaries, and their gradients |
| outputs of the target | those of ``B`` rows, beside the two above |
| reading | a pass of the target: `activation_bytes` of a block for ``B G`` rows, 3 arrays ``[B G, T, V]`` in float32 |
| drawing | caches and activations of the rows that are drawn together |

Drawing, reading and updates follow each other, so the largest of the three counts. Times are limits
(`jaxspec.planning.speed.timed`):

| part | passes |
|---|---|
| drawing | ``N`` passes of the target over one input, for each batch |
| reading | a pass of the target over ``T`` inputs for each row, if its outputs are kept; else for each row of each step |
| updates | 3 A passes of the student over ``T`` inputs for each step: one forward, two backward |
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from jaxspec.core import footprint
from jaxspec.core.mesh import MeshSizes
from jaxspec.models import registry
from jaxspec.models.heads.block_head import BlockHeadConfig
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.planning.devices import USABLE, Device
from jaxspec.planning.memory_plan import cache_of
from jaxspec.planning.published_models import Model
from jaxspec.planning.sizes import Sized, activation_bytes, pass_cost, sized
from jaxspec.planning.speed import timed
from jaxspec.training.distillation.block_head_student import BlockHeadSettings
from jaxspec.training.distillation.eagle_student import EagleSettings
from jaxspec.training.distillation.inter_head_student import InterHeadSettings
from jaxspec.training.distillation.spatial_student import SpatialSettings
from jaxspec.training.distillation.student import DistillationSettings

_STATE_BYTES = 20  # of a parameter: itself, mean, two moments, gradient
_BACKWARD = 2  # passes as costly as the forward one
_ONE = MeshSizes()


class TrainingPlan(NamedTuple):
  """A training on one device.

  Attributes:
    student: as shapes.
    memory: bytes by part; of drawing, reading and updates only the largest counts.
    usable: usable bytes of the device.
    row_bytes: outputs of the target for one row.
    is_kept: whether the outputs of all rows fit into ``kept_gib`` of the host.
    seconds: limits by part.
  """

  student: Sized
  memory: dict[str, float]
  usable: float
  row_bytes: float
  is_kept: bool
  seconds: dict[str, float]

  @property
  def total(self) -> float:
    """Peak bytes."""
    *both, drawing, reading, updates = self.memory.values()
    return sum(both) + max(drawing, reading, updates)

  @property
  def fits(self) -> bool:
    """Whether the device has the memory."""
    return self.total <= self.usable


def student_of(model: Model, settings: DistillationSettings) -> Sized:
  """The student of a target as shapes, in float32.

  Raises:
    ValueError: for a target that has no such student.
  """
  settings.check(dataclasses.replace(model.sized("float32").drawing, family_name=model.family))
  host = dataclasses.replace(model.config, dtype="float32")
  if isinstance(settings, EagleSettings):
    config: Any = EagleConfig.of(host)
  elif isinstance(settings, BlockHeadSettings):
    config = BlockHeadConfig.of(host, settings.num_layers)
  elif isinstance(settings, SpatialSettings):
    config = settings.config_of(host)
  else:
    config = dataclasses.replace(host, num_layers=settings.num_layers)  # pyright: ignore
    if isinstance(settings, InterHeadSettings):
      config = InterHeadConfig(config, num_heads=settings.num_heads)
  return sized(registry.family_name(config), config, "student", dtype="float32")


def training_plan(model: Model, settings: DistillationSettings, device: Device, *, dtype: str, batch: int) -> TrainingPlan:
  """The plan of a training.

  Args:
    dtype: of the target.
    batch: rows that are drawn together.
  Raises:
    ValueError: for a target that has no such student.
  """
  student, target = student_of(model, settings), model.sized(dtype)
  on_features = registry.FAMILIES[registry.family_name(student.config)].head_of is not None
  halves, rows = (2 if model.guidance != 1 else 1), settings.batch_size
  num_tokens, vocab = model.num_tokens, model.vocab_size
  if vocab is None:
    raise ValueError(f"Must have a target that draws discrete tokens for this, {model.name} draws others")
  length = model.prefix + num_tokens - 1
  passes, compared = (2, 2) if isinstance(settings, EagleSettings) else (1, 1)
  read, compared_tokens = length, num_tokens  # inputs and outputs of a student for one row
  if isinstance(settings, BlockHeadSettings):
    read = compared_tokens = settings.num_anchors * settings.gamma
  if isinstance(settings, SpatialSettings):
    read = num_tokens
  if isinstance(settings, InterHeadSettings):
    compared = 3 * settings.num_heads
  students_rows = rows * (2 if getattr(settings, "guided", False) else 1)
  layers = passes * sum(trunk.layers for trunk in student.trunks)
  if on_features:
    num_levels = 1 + len(getattr(student.config, "levels", ()))
    num_features = num_tokens if isinstance(settings, SpatialSettings) else length + 1
    row_bytes = 2 * num_features * num_levels * target.trunks[0].width  # float16
  else:
    row_bytes = (4 * (students_rows // rows) if isinstance(settings, InterHeadSettings) else 2) * num_tokens * vocab
  is_kept = row_bytes * settings.num_samples <= settings.kept_gib * 2**30
  teaching = activation_bytes(target, _ONE, rows * halves, length, length)
  teaching += footprint.logits_bytes(rows * halves, length, vocab)
  learning = layers * activation_bytes(student, _ONE, students_rows, read, length)
  learning += 2 * compared * footprint.logits_bytes(students_rows, compared_tokens, vocab)
  slots = model.prefix + num_tokens
  caches = batch * cache_of(target, _ONE, halves, slots, device.platform)
  widest = max(activation_bytes(target, _ONE, halves * batch, inputs, slots) for inputs in (1, model.prefix))
  memory = {
    "target": target.weight_bytes(),
    "student, its mean, moments and gradient": _STATE_BYTES * student.num_parameters,
    "drawing: caches and activations": caches + widest,
    "reading: a pass of the target": teaching,
    "updates: activations and distributions": learning + rows * row_bytes,
  }
  peak = "bfloat16" if settings.matmul_precision == "bfloat16" else "float32"
  step = timed(pass_cost(target, _ONE, halves * batch, 1, slots, cache_bytes=caches, logits=vocab), 1, device, dtype)
  reading = timed(pass_cost(target, _ONE, halves * rows, length, length, logits=vocab), length, device, dtype)
  cost = pass_cost(student, _ONE, students_rows, read, length)
  if on_features:  # its output matrix is the target's
    cost = cost._replace(operations=cost.operations + 2.0 * students_rows * read * vocab * target.trunks[0].width)
  updates = timed(cost * (passes * (1 + _BACKWARD)), read, device, peak)
  num_read = -(-settings.num_samples // rows) if is_kept else settings.loop.num_steps
  seconds = {
    "drawing": -(-settings.num_samples // batch) * num_tokens * step.seconds,
    "reading": num_read * reading.seconds,
    "updates": settings.loop.num_steps * updates.seconds,
  }
  return TrainingPlan(student, memory, USABLE * device.memory, row_bytes, is_kept, seconds)
