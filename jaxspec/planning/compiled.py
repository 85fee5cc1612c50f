"""A planned decode, compiled ahead of time for an absent TPU (`jax.experimental.topologies`, with libtpu's compiler).

The compiled program shows what a plan only estimates: temporary memory, exchanges between devices, and whether the caches
are updated in place.
"""

from __future__ import annotations

import importlib.util
import os
import time
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxspec.core import footprint, rng
from jaxspec.core import mesh as meshes
from jaxspec.core.platform import tracing_for
from jaxspec.core.types import PyTree
from jaxspec.planning import program_text
from jaxspec.planning.parts import Needs, needs_of
from jaxspec.planning.plan import Plan
from jaxspec.planning.sizes import Sized
from jaxspec.run.decoder import run_parts
from jaxspec.sampling import head_fns

# libtpu's names of accelerators, by kind; v5p counts cores, two a chip.
_ACCELERATORS = {"v5e": ("v5litepod", 1), "v5p": ("v5p", 2), "v6e": ("v6e", 1)}
_DTYPES = {"bfloat16": "bf16", "float32": "f32"}


class Compiled(NamedTuple):
  """Figures of the compiled program, on each device.

  Attributes:
    bytes: arguments, results, temporary buffers and code, less results that alias arguments.
    caches: bytes of the caches in the compiler's layout, with padding of tiles; a part of the temporary buffers.
    planned: the plan's estimate for the same parts, without tokenizer and text encoder.
    fits: whether the bytes are within the usable memory.
    copies: copies of whole cache buffers in loops, by shape; none if all updates are in place.
    moves: copies between memory and the memory on the chip.
    exchanges: exchanges in loops, by kind.
    exchanges_outside: those before and after the loops.
  """

  bytes: int
  arguments: int
  temporary: int
  results: int
  code: int
  caches: int
  planned: float
  fits: bool
  copies: dict[str, int]
  moves: dict[str, int]
  exchanges: dict[str, int]
  exchanges_outside: dict[str, int]
  lower_s: float
  compile_s: float


def compile_plan(plan: Plan, batch: int) -> Compiled:
  """Compiles the whole decode of a plan for its TPU; this takes minutes for a large network.

  JAX's caches of this process are cleared, because they were traced for another platform.

  Raises:
    ValueError: for a device that is no TPU, without libtpu, or for an unknown topology.
  """
  devices = tpu_devices(plan)
  over = meshes.over(plan.mesh, devices)
  plan.mesh.rows(batch)
  target = plan.target.as_divided(plan.mesh)
  needs = needs_of(plan.model, target, plan.method, plan.sampling, plan.named_draft, plan.dtype, guided=True)
  params = needs.parts.params
  tied = getattr(target.config, "tie_embeddings", False)
  specs = meshes.param_specs(params.target, plan.mesh.model, tied=tied) if plan.mesh.model > 1 else PartitionSpec()
  params = params._replace(draft=_placed(params.draft, over), target=_placed(params.target, over, specs))
  key_data = jax.eval_shape(lambda: jax.random.key_data(jax.random.split(jax.random.key(0), batch)))
  rows = [_placed(tree, over, PartitionSpec("data")) for tree in (key_data, plan.model.condition_shapes(batch))]

  def decode(params, key_data, condition):
    return run_parts(
      needs.parts, params, rng.of_key_data(key_data), condition, max_len=plan.model.num_tokens
    )  # fmt: skip

  jax.clear_caches()
  try:
    with tracing_for("tpu"), jax.set_mesh(over):
      start = time.perf_counter()
      lowered = jax.jit(meshes.over_rows(decode, over)).trace(params, *rows).lower(lowering_platforms=("tpu",))
      lower_s = time.perf_counter() - start
      start = time.perf_counter()
      compiled = lowered.compile()
      compile_s = time.perf_counter() - start
      buffers = _cache_buffers(plan, target, needs, batch)
  finally:
    jax.clear_caches()
  return _read(compiled, plan, batch, buffers, lower_s, compile_s)


def tpu_devices(plan: Plan) -> list[Any]:
  """The devices of a topology; none has to be attached.

  Raises:
    ValueError: see `compile_plan`.
  """
  device = plan.device
  if device.kind not in _ACCELERATORS:
    raise ValueError(f"Must have a TPU ({', '.join(_ACCELERATORS)}) to compile for without it, we instead got {device.kind}")
  if importlib.util.find_spec("libtpu") is None:
    raise ValueError("Must have libtpu to compile for a TPU that is not there: pip install 'jaxspec-decoding[tpu-plan]'")
  from jax.experimental import topologies

  name, cores = _ACCELERATORS[device.kind]
  os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no query of the cloud's metadata server
  os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no chip is opened, so another process may use them
  os.environ.setdefault("TPU_ACCELERATOR_TYPE", f"{name}-{cores * max(device.count, 4)}")
  os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
  if device.count < 4:
    raise ValueError(
      f"Must have a topology of at least 4 chips to compile for, as {device.kind}:2x2, we instead got {device.name}"
    )
  try:
    return list(topologies.get_topology_desc(platform="tpu", topology_name=device.name).devices)
  except Exception as error:  # the library raises various errors for a topology
    reason = " ".join(str(error).split())[:160]
    raise ValueError(f"Must have a topology that libtpu knows, we instead got {device.name} ({reason})") from error


def _placed(shapes: PyTree, over: Mesh, specs: PyTree | PartitionSpec = PartitionSpec()) -> PyTree:
  if isinstance(specs, PartitionSpec):
    specs = jax.tree.map(lambda _, spec=specs: spec, shapes)
  place = lambda leaf, spec: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(over, spec))
  return jax.tree.map(place, shapes, specs)


def _cache_buffers(plan: Plan, target: Sized, needs: Needs, batch: int) -> set[tuple[str, int]]:
  """Dtype and number of entries of the caches' buffers, whole and divided over either axis or both."""
  networks: list[Sized] = [target, *([] if needs.draft is None else [needs.draft])]
  found = set()
  for network in networks:
    fns = head_fns(network.network).network if network.draws_continuous else network.network.fns
    slots = plan.model.prefix + plan.model.num_tokens + plan.window
    for leaf in jax.tree.leaves(footprint.cache_shapes(fns.init_cache, plan.halves * batch, slots)):
      if (dtype := _DTYPES.get(leaf.dtype.name)) is not None:
        found |= {(dtype, leaf.size // parts) for parts in (1, plan.mesh.data, plan.mesh.model, plan.mesh.num_devices)}
  return found


def _read(
  compiled: Any, plan: Plan, batch: int, buffers: set[tuple[str, int]], lower_s: float, compile_s: float
) -> Compiled:
  memory, text = compiled.memory_analysis(), compiled.as_text()
  arguments, results = memory.argument_size_in_bytes, memory.output_size_in_bytes
  temporary, code = memory.temp_size_in_bytes, memory.generated_code_size_in_bytes
  total = arguments + results + temporary + code - memory.alias_size_in_bytes
  inside = program_text.loop_lines(text)
  of_loops, of_all = program_text.exchanges(inside), program_text.exchanges(text.splitlines())
  outside = {kind: count - of_loops.get(kind, 0) for kind, count in of_all.items() if count > of_loops.get(kind, 0)}
  return Compiled(
    total, arguments, temporary, results, code, program_text.padded(text, buffers),
    plan.memory.decode(plan.mesh.rows(batch)), total <= plan.memory.usable, *program_text.copies(inside, buffers), of_loops,
    outside, lower_s, compile_s,
  )  # fmt: skip
