"""A plan: whether a configuration fits a device, and its limits of speed, without the device.

1. The network's parameters and caches are shapes of its own functions (`jax.eval_shape`).
2. The method builds its parts of these shapes: window, draft network, tables of its rule.
3. A mesh divides them (`jaxspec.core.mesh.divided_axis`).
4. Bytes by part are compared with the memory of the device, operations and bytes of a round with its peaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxspec.core.mesh import MeshSizes, allowed, check_fits
from jaxspec.core.options import options_of, values_of
from jaxspec.methods.ar import Plain
from jaxspec.methods.method import CONTINUOUS, DISCRETE, Method
from jaxspec.planning.assumed_acceptance import Acceptance, acceptance_of
from jaxspec.planning.devices import Slice
from jaxspec.planning.memory_plan import Memory, memory_of
from jaxspec.planning.parts import needs_of
from jaxspec.planning.published_models import Model
from jaxspec.planning.sizes import Sized
from jaxspec.planning.speed import Speed, speed_of
from jaxspec.sampling import AnySampling, ContinuousSampling, SamplingConfig

DTYPES = ("bfloat16", "float32")


class Batch(NamedTuple):
  """The plan of one batch size."""

  batch: int
  rows: int  # on each device
  bytes: float  # peak on each device
  missing: float  # bytes beyond the usable memory; 0 if it fits
  speed: Speed

  @property
  def fits(self) -> bool:
    return self.missing <= 0


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
  """Result of `make_plan`; see its arguments.

  Attributes:
    parameters: of the target.
    draft: name and parameters of the draft network.
    window: tokens that the target reads in a round besides the newest one.
    acceptance: None for a method without drafts.
    calls: given calls of the target per token; None: the method's own.
    halves: rows of a pass for each row of the batch, 2 with guidance.
    largest: largest batch that fits; 0 if none does.
    named_draft: the requested draft network.
  """

  model: Model
  target: Sized
  device: Slice
  mesh: MeshSizes
  method: Method
  sampling: AnySampling
  dtype: str
  parameters: int
  draft: tuple[str, int] | None
  window: int
  acceptance: Acceptance | None
  halves: int
  memory: Memory
  largest: int
  batches: tuple[Batch, ...]
  named_draft: Model | None = None
  calls: float | None = None

  def as_json(self) -> dict[str, Any]:
    """All fields as JSON values."""
    model, device = self.model, self.device
    return {
      "model": {
        "name": model.name, "family": model.family, "parameters": self.parameters, "num_tokens": model.num_tokens,
        "prefix": model.prefix, "dtype": self.dtype,
      },
      "device": {"name": device.name, "count": device.count, "memory": device.device.memory, "usable": self.memory.usable},
      "mesh": self.mesh._asdict(),
      "method": {"name": self.method.name, "options": values_of(self.method), "window": self.window},
      "sampling": values_of(self.sampling),
      "draft": None if self.draft is None else {"name": self.draft[0], "parameters": self.draft[1]},
      "acceptance": None if self.acceptance is None else self.acceptance._asdict(),
      "calls": self.calls,
      "rows_of_a_pass": self.halves,
      "largest_batch": self.largest,
      "batches": [_batch_json(self.memory, batch) for batch in self.batches],
    }  # fmt: skip


def _batch_json(memory: Memory, batch: Batch) -> dict[str, Any]:
  speed = batch.speed
  return {
    "batch": batch.batch,
    "fits": batch.fits,
    "bytes": batch.bytes,
    "missing_bytes": batch.missing,
    "parts": {need.name: need.bytes(batch.rows) for need in memory.needs},
    "target_pass": speed.target._asdict(),
    "draft_pass": None if speed.draft is None else speed.draft._asdict(),
    **{name: getattr(speed, name) for name in ("draft_calls", "tokens", "round_s", "tokens_per_s", "row_s", "over_plain")},
  }


def method_of(model: Model, cls: type[Method], **fields: Any) -> Method:
  """A method with the default options of the model's bundle, unless others are given."""
  declared = options_of(cls)
  return cls(**{name: value for name, value in model.defaults.options.items() if name in declared} | fields)


def sampling_of(model: Model, **fields: Any) -> AnySampling:
  """The sampling settings of a model, those of its bundle or else its published guidance, unless others are given.

  Raises:
    ValueError: for a bundle with settings of other tokens.
  """
  kind = ContinuousSampling if model.vocab_size is None else SamplingConfig
  found: dict[str, Any] = dict(model.defaults.sampling) or {"cfg_scale": model.guidance}
  if unknown := sorted(found.keys() - options_of(kind).keys()):
    raise ValueError(f"Must have a bundle with sampling settings of {model.name}, we instead got {unknown[0]}")
  return kind(**found | fields)


def default_mesh(target: Sized, count: int) -> MeshSizes:
  """The mesh of ``count`` devices with the largest axis ``model`` that divides the network."""
  model = max(size for size in allowed(target.config) if count % size == 0)
  return MeshSizes(count // model, model)


def make_plan(
  model: Model,
  device: Slice,
  *,
  batches: Sequence[int] = (1,),
  method: Method = Plain(),
  sampling: AnySampling | None = None,
  draft: Model | None = None,
  mesh: MeshSizes | None = None,
  dtype: str = "bfloat16",
  acceptance: float | None = None,
  calls: float | None = None,
) -> Plan:
  """Plans a decode.

  Args:
    model: the target (`jaxspec.planning.published_models.find_model`).
    device: the devices (`jaxspec.planning.devices.parse_device`).
    batches: rows that are decoded together.
    method: the decoding method.
    sampling: settings; None: the published ones of the model.
    draft: the draft network; None: the published one, or the first layers of the target.
    mesh: division of the devices; None: `default_mesh`.
    dtype: of weights and arithmetic, one of `DTYPES`.
    acceptance: conditional acceptance probability of a draft; None: `jaxspec.planning.assumed_acceptance`.
    calls: calls of the target per token, of a method that accepts tokens locally; None: the method's own.
  Raises:
    ValueError: for arguments that do not fit together, in one line.
  """
  if dtype not in DTYPES:
    raise ValueError(f"Must have a dtype in {', '.join(DTYPES)}, we instead got {dtype!r}")
  if wrong := [batch for batch in batches if batch < 1]:
    raise ValueError(f"Must have batches of at least 1, we instead got {wrong[0]}")
  sampling = sampling_of(model) if sampling is None else sampling
  accepted = acceptance_of(method, acceptance)
  target = model.sized(dtype)
  kind = CONTINUOUS if target.draws_continuous else DISCRETE
  if not method.fits(kind):
    raise ValueError(f"Must have a method that draws {kind} tokens for {model.name}, we instead got {method.name}")
  mesh = default_mesh(target, device.count) if mesh is None else mesh
  if mesh.num_devices != device.count:
    raise ValueError(f"Must have a mesh of the {device.count} devices of {device.name}, we instead got {mesh}")
  check_fits(target.config, mesh.model, model.name)
  for batch in batches:
    mesh.rows(batch)
  needs = needs_of(model, target, method, sampling, draft, dtype)
  halves = 2 if sampling.is_guided else 1
  expected = method.expected(0.0 if accepted is None else accepted.value, model.num_tokens, calls)
  memory = memory_of(model, target, needs, device.device, mesh, halves=halves, dtype=dtype)

  def of(batch: int) -> Batch:
    rows = mesh.rows(batch)
    speed = speed_of(
      model, target, needs, expected, method.inputs_per_draft_call(), sampling, device.device, mesh, memory, batch=batch,
      halves=halves, dtype=dtype,
    )  # fmt: skip
    total = memory.total(rows)
    return Batch(batch, rows, total, max(total - memory.usable, 0.0), speed)

  return Plan(
    model=model, target=target, device=device, mesh=mesh, method=method, sampling=sampling, dtype=dtype,
    parameters=target.num_parameters,
    draft=None if needs.draft is None else (needs.draft.network.name, needs.draft.num_parameters),
    window=needs.parts.window,
    acceptance=accepted, halves=halves, memory=memory, largest=(memory.most_rows() or 0) * mesh.data,
    batches=tuple(map(of, batches)), named_draft=draft, calls=calls,
  )  # fmt: skip
