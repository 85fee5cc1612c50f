"""What a command decodes: loaded networks, the settings of the user over theirs, and conditions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jaxspec.cli.declared import Chosen
from jaxspec.cli.errors import UserError, interruptible, reading
from jaxspec.decoder import Decoder
from jaxspec.hosts.base import Encoded
from jaxspec.loading import load_pipeline
from jaxspec.methods import Method, Plain, get_method
from jaxspec.options import values_of
from jaxspec.pipeline import Pipeline
from jaxspec.sampling import AnySampling
from jaxspec.types import PyTree


@dataclasses.dataclass(frozen=True)
class Job:
  """What is to be decoded, and how.

  Attributes:
    method: with its draft by name.
    condition: of all prompts, numpy leaves ``[prompts, ...]``.
    captions: one text per prompt.
    max_len: tokens of a row at most.
    warnings: what the user should know before looking at the results.
  """

  pipeline: Pipeline
  method: Method
  sampling: AnySampling
  condition: PyTree
  captions: list[str]
  max_len: int
  seed: int
  warnings: list[str]

  @property
  def noun(self) -> str:
    """What a row becomes: image or text."""
    return self.pipeline.host.noun

  def decoder(self, method: Method | None = None, *, audit: bool = False) -> Decoder:
    """The decode of the job's method, or of another one with the same sampling settings."""
    return self.pipeline.decoder(method or self.method, sampling=self.sampling, audit=audit)

  def settings(self, method: Method | None = None) -> dict[str, Any]:
    """Everything besides networks and conditions that decides the tokens; JSON."""
    method, mesh = self.decoder(method).method, self.pipeline.mesh
    settings = {
      "method": method.name,
      "draft": draft_name(method),
      "options": method.resolved(self.decoder(method).context).options(),
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


def load(path: str | Path | None, **kwargs: Any) -> Pipeline:
  """`load_pipeline`, with Ctrl-C, and one line about whatever a damaged file can cause."""
  with reading(path or "of the default bundle"):
    return interruptible(load_pipeline, path, **kwargs)


def make_job(
  pipeline: Pipeline, chosen: Chosen, prompts: Encoded, *, seed: int, max_len: int | None = None, compare: bool = False
) -> Job:
  """Resolves the settings, loads the draft and finds out whether everything fits.

  Args:
    prompts: what `Pipeline.encode` returned.
    compare: whether plain decoding will run too.
  Raises:
    ValueError: one line about what does not fit.
  """
  cls = get_method(chosen.method or pipeline.default_method)
  method = pipeline.method(cls.name, **chosen.for_method(cls))
  if compare and method.name == Plain.name:
    drafting = [name for name in pipeline.methods() if name != method.name]
    raise UserError(
      f"Must have a method besides {method.name} to compare with plain decoding: --method {' or '.join(drafting)}"
    )
  sampling = pipeline.sampling(**chosen.for_sampling(pipeline.host.sampling_type))
  length = pipeline.host.default_length(sampling) if max_len is None else max_len
  with reading(pipeline.name):
    decoder = interruptible(pipeline.decoder, method, sampling=sampling)
    interruptible(lambda: decoder.parts)
  warnings = chosen.unread(cls, type(sampling))
  warnings += [*pipeline.warnings(decoder, prompts.condition, length), *prompts.warnings]
  return Job(pipeline, method, sampling, prompts.condition, prompts.captions, length, seed, warnings)
