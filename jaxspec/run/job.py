"""A decode with resolved settings: checked networks, method, sampling and prompts."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxspec.core.options import values_of
from jaxspec.core.types import PyTree
from jaxspec.families.family import Encoded
from jaxspec.methods import Method
from jaxspec.run.batches import Batches, make_batches
from jaxspec.run.decoder import Decoder
from jaxspec.run.loaded_networks import LoadedNetworks
from jaxspec.sampling import AnySampling


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
  """Networks, prompts and settings of one decode; made by `jaxspec.run.pipeline.Pipeline.job`.

  Attributes:
    pipeline: the networks.
    decoder: method, sampling settings and their built parts.
    prompts: condition ``[P, ...]`` and captions of ``P`` prompts.
    max_len: largest number of tokens of a row.
    seed: seed of the row keys (`batches`); None if the caller has keys.
    ends: whether the family's end token ends a row.
    warnings: for the user, one line each.
  """

  pipeline: LoadedNetworks
  decoder: Decoder
  prompts: Encoded
  max_len: int
  seed: int | None = None
  ends: bool = True
  warnings: list[str] = dataclasses.field(default_factory=list)

  @property
  def method(self) -> Method:
    """The method, with its draft by name."""
    return self.decoder.method

  @property
  def sampling(self) -> AnySampling:
    """The sampling settings."""
    return self.decoder.sampling

  @property
  def condition(self) -> PyTree:
    """Leaves ``[P, ...]``."""
    return self.prompts.condition

  @property
  def captions(self) -> list[str]:
    """One text per prompt."""
    return self.prompts.captions

  @property
  def noun(self) -> str:
    """Kind of result: image or text."""
    return self.pipeline.family.noun

  @property
  def num_prompts(self) -> int:
    """``P``."""
    return self.condition.batch_size

  def but(self, method: Method | None = None, *, sampling: AnySampling | None = None, audit: bool | None = None) -> Job:
    """The same prompts and keys with another method or other settings.

    Raises:
      ValueError: for a method or settings that do not fit.
    """
    audit = self.decoder.audit if audit is None else audit
    decoder = self.pipeline.decoder(method or self.method, sampling=sampling or self.sampling, audit=audit)
    return dataclasses.replace(self, decoder=decoder.built())

  def part(self, prompts: slice) -> Job:
    """The job for some of the prompts."""
    condition = jax.tree.map(lambda leaf: leaf[prompts], self.condition)
    return dataclasses.replace(self, prompts=self.prompts._replace(condition=condition, captions=self.captions[prompts]))

  def batches(self, rows: int, *, samples: int = 1) -> Batches:
    """``samples`` rows of every prompt, with keys from the job's seed, in batches of ``rows``."""
    return make_batches(self.condition, samples=samples, seed=self.seed or 0, rows=rows)

  def settings(self) -> dict[str, Any]:
    """All settings that determine the tokens besides networks and conditions, as JSON."""
    method, mesh = self.method, self.pipeline.mesh
    settings = {
      "method": method.name,
      "draft": draft_name(method),
      "options": method.resolved(self.decoder.context).options(),
      "sampling": values_of(self.sampling),
      "seed": self.seed,
      "dtype": self.pipeline.dtype,
      "matmul_precision": self.pipeline.matmul_precision,
    }
    return settings if mesh is None else settings | {"mesh": dict(mesh.shape)}


def draft_name(method: Method) -> str | None:
  """Name of the draft network; None for a method without one."""
  draft = getattr(method, "draft", None)
  return getattr(draft, "name", draft)
