"""Bytes on each device, by part: permanent parts, the rounds, and the making of pixels after them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxspec.core import footprint
from jaxspec.core.mesh import MeshSizes
from jaxspec.core.platform import tracing_for
from jaxspec.core.types import Cache
from jaxspec.models import registry
from jaxspec.models.nn import kv_cache
from jaxspec.planning.devices import USABLE, Device
from jaxspec.planning.parts import Needs
from jaxspec.planning.published_models import Model
from jaxspec.planning.sizes import Sized, activation_bytes, sized
from jaxspec.sampling import head_fns

STAYS, BESIDE, ROUNDS, PIXELS = "stays", "beside", "rounds", "pixels"
_PIXEL_ARRAYS = 3  # arrays of the size of the largest feature map that are alive at once in an image decoder


class Need(NamedTuple):
  """Bytes of one part on each device, for ``rows`` rows of the batch there: ``fixed + each * rows``."""

  name: str
  phase: str
  fixed: float = 0.0
  each: float = 0.0

  def bytes(self, rows: int) -> float:
    return self.fixed + self.each * rows


@dataclasses.dataclass(frozen=True)
class Memory:
  """All parts of a decode.

  Attributes:
    needs: the parts. Memory of the rounds is free when pixels are made. Tokenizer and text encoder stay in memory like the
      weights, but the decode does not read them.
    usable: usable bytes of a device.
  """

  needs: tuple[Need, ...]
  usable: float

  def total(self, rows: int) -> float:
    """Peak bytes on each device, for ``rows`` rows there."""
    return self._of(rows, STAYS, BESIDE) + max(self._of(rows, ROUNDS), self._of(rows, PIXELS))

  def decode(self, rows: int) -> float:
    """Bytes of the decode alone on each device, without the idle networks."""
    return self._of(rows, STAYS, ROUNDS)

  def most_rows(self, *phases: str) -> int | None:
    """Largest number of rows on a device that fits in the given phases (default: all); 0 if none does, None without a
    limit."""
    found = []
    for phase in phases or (ROUNDS, PIXELS):
      needs = [need for need in self.needs if need.phase in (STAYS, BESIDE, phase)]
      left = self.usable - sum(need.fixed for need in needs)
      each = sum(need.each for need in needs)
      if left < 0 or each:
        found.append(0 if left < 0 else int(left // each))
    return min(found, default=None)

  def _of(self, rows: int, *phases: str) -> float:
    return sum(need.bytes(rows) for need in self.needs if need.phase in phases)


def cache_of(network: Sized, mesh: MeshSizes, halves: int, slots: int, platform: str) -> float:
  """Bytes of the caches of one row of the batch on each device; heads are divided, masks and tokens are not."""
  fns = head_fns(network.network).network if network.draws_continuous else network.network.fns
  with tracing_for(platform):
    cache: Cache = footprint.cache_shapes(fns.init_cache, halves, slots)
  whole = footprint.tree_bytes(cache)
  if not isinstance(cache, kv_cache.KVCache):
    return whole
  heads = footprint.tree_bytes((cache.k, cache.v))
  return whole - heads + heads / network.fitting(mesh).model


def memory_of(
  model: Model, target: Sized, needs: Needs, device: Device, mesh: MeshSizes, *, halves: int, dtype: str
) -> Memory:
  """The parts of a decode.

  Args:
    halves: 2 where every row of the batch has an unconditional partner, else 1.
    dtype: of the transformers; image tokenizers run in float32.
  """
  window = needs.parts.window
  has_cache = needs.parts.decode is None or not target.draws_continuous  # parallel decoding keeps its tokens only
  slots = model.prefix + model.num_tokens + window
  inputs = window + 1
  found = [Need("weights", STAYS, target.weight_bytes(mesh))]
  if needs.draft is not None:
    found.append(Need("draft weights", STAYS, needs.draft.weight_bytes(needs.draft.fitting(mesh))))
  if needs.table_bytes:
    found.append(Need("table of the acceptance rule", STAYS, needs.table_bytes))
  if model.text is not None:
    found.append(Need(model.text.name, BESIDE, model.text.parameters * target.itemsize))
  if model.tokenizer is not None:
    tokenizer = sized(registry.family_name(model.tokenizer), model.tokenizer, "tokenizer")
    found.append(Need("image tokenizer", BESIDE, tokenizer.weight_bytes()))
  if has_cache:
    found.append(Need("caches", ROUNDS, each=cache_of(target, mesh, halves, slots, device.platform)))
  if needs.draft is not None:
    found.append(Need("draft caches", ROUNDS, each=cache_of(needs.draft, mesh, halves, slots, device.platform)))
  widest = max(activation_bytes(target, mesh, halves, t, slots) for t in (inputs, _prefill_inputs(model, target)))
  found.append(Need("activations", ROUNDS, each=widest))
  if model.vocab_size is not None:
    logits = footprint.logits_bytes(halves, inputs, model.vocab_size)
    drafted = footprint.logits_bytes(halves, inputs, model.vocab_size) if needs.draft is not None else 0
    found.append(Need("logits", ROUNDS, each=logits + drafted))
  if model.tokenizer is not None and model.side is not None:
    pixels = 4 * model.side**2 * model.tokenizer.channels[0]
    found.append(Need("making of pixels, after the rounds", PIXELS, each=_PIXEL_ARRAYS * pixels))
  return Memory(tuple(found), USABLE * device.memory)


def _prefill_inputs(model: Model, target: Sized) -> int:
  """Inputs of the pass over the condition; a masked network has no such pass."""
  return 1 if target.draws_continuous else model.prefix
