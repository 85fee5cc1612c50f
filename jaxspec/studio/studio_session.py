"""The loaded networks of a studio, their description for the page, and decodes of requests."""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import jax

from jaxspec.core.options import values_of
from jaxspec.core.token_kinds import DISCRETE
from jaxspec.families.token_images import FeatureFamily
from jaxspec.methods import METHODS
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.batches import Batches
from jaxspec.run.decode_options import DecodeOptions
from jaxspec.run.job import Job
from jaxspec.run.memory_check import check_memory
from jaxspec.run.method_schema import method_schema, option_schemas, range_text
from jaxspec.run.pipeline import Pipeline
from jaxspec.run.prompt_request import PromptRequest, check_prompts
from jaxspec.run.sources import Sources
from jaxspec.serving.wire.link_model import NETWORKS
from jaxspec.studio import schema as limits
from jaxspec.studio.schema import ComparisonRequest

_EXAMPLES = {"prompt": "a red heart", "text": "a large river: "}


class Entrant(NamedTuple):
  """One method of a comparison.

  Attributes:
    job: networks, method and settings, with the audit if it is requested.
    program: equal for decodes that run the same compiled programs.
  """

  job: Job
  program: Any


class Resolved(NamedTuple):
  """A valid request for the networks."""

  request: ComparisonRequest
  entrants: list[Entrant]
  batches: Batches  # one, with a row for each prompt


class StudioSession:
  """Loaded networks, and their compiled programs.

  Args:
    pipeline: of `jaxspec.load_pipeline`, with weights and without a mesh.
    networks: its sources, as options of ``jaxspec generate``.
  Raises:
    ValueError: for networks that do not read typed prompts.
  """

  def __init__(self, pipeline: Pipeline, networks: Sources = Sources()):
    if isinstance(pipeline.family, FeatureFamily):
      raise ValueError(f"{pipeline.name} draws from features of a text encoder: the studio needs networks that read prompts")
    self.pipeline, self.networks = pipeline, networks
    self.compiled: set[Any] = set()
    self._lock = threading.Lock()  # the pipeline caches decoders without a lock

  @property
  def kind(self) -> str:
    """The kind of prompts: prompt, class or text, as the options of ``jaxspec generate``."""
    family = self.pipeline.family
    return "class" if family.condition_type is ClassLabels else "text" if family.noun == "text" else "prompt"

  def describe(self) -> dict[str, Any]:
    """Prompts, methods, settings with their options, and limits; JSON."""
    pipeline, family = self.pipeline, self.pipeline.family
    sampling = values_of(pipeline.sampling())
    classes = list(getattr(family, "classes", ()))
    return {
      "bundle": pipeline.name,
      "noun": family.noun,
      "kind": self.kind,
      "example": classes[0] if classes else _EXAMPLES.get(self.kind, "0"),
      "classes": classes,
      "grid": family.space.grid,
      "can_audit": family.space.kind == DISCRETE,
      "method": pipeline.default_method,
      "methods": [self._method(name) for name in pipeline.methods()],
      "sampling": _controls(option_schemas(family.sampling_type), sampling),
      "networks": {name: [network.bits_per_s / 1e6, network.latency_s * 1e3] for name, network in NETWORKS.items()},
      "limits": {
        name.removeprefix("MAX_").lower(): getattr(limits, name) for name in dir(limits) if name.startswith("MAX_")
      },
    }

  def _method(self, name: str) -> dict[str, Any]:
    cls, pipeline = METHODS[name], self.pipeline
    found, made = method_schema(cls), pipeline.method(name)
    drafts = [] if cls.draft_family is None else pipeline.drafts_of(cls)
    about = {key: found[key] for key in ("name", "title", "exact", "drafts_by", "source")}
    about |= {"about": found["about"].partition("\n")[0], "drafts": drafts, "draft": getattr(made, "draft", None)}
    return about | {"options": _controls(found["options"], made.options())}

  def resolve(self, request: ComparisonRequest) -> Resolved:
    """The decodes of a request, with each setting checked against the networks.

    Raises:
      ValueError: in one line.
    """
    with self._lock:
      pipeline = self.pipeline
      if self.kind != "class":
        check_prompts(request.prompts)
      if request.max_tokens is not None and pipeline.family.noun != "text":
        raise ValueError("Must have no max_tokens for images, which have all of their tokens, we instead got one")
      encoded = pipeline.encode(PromptRequest(self.kind, request.prompts).for_family(pipeline.family))
      rows = len(encoded.captions)
      entrants = [self._entrant(chosen, encoded, request, rows) for chosen in request.entrants]
      return Resolved(request, entrants, entrants[0].job.batches(rows))

  def _entrant(self, chosen: DecodeOptions, encoded, request: ComparisonRequest, rows: int) -> Entrant:
    job = chosen.job(self.pipeline, encoded, seed=request.seed, max_len=request.max_tokens).but(audit=request.audit)
    check_memory(job, rows)
    leaves, tree = jax.tree.flatten((job.decoder.parts.params, job.condition))
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    return Entrant(job, (self.pipeline.static_key(job.decoder, job.max_len), tree, shapes))

  def check(self, request: ComparisonRequest) -> dict[str, Any]:
    """Whether each entrant of a request must be compiled first, and warnings; JSON.

    Raises:
      ValueError: as `resolve`.
    """
    resolved = self.resolve(request)
    return {
      "compiles": [entrant.program not in self.compiled for entrant in resolved.entrants],
      "warnings": list(dict.fromkeys(warning for entrant in resolved.entrants for warning in entrant.job.warnings)),
    }


def _controls(options: dict[str, dict[str, Any]], values: dict[str, Any]) -> dict[str, dict[str, Any]]:
  """Controls of the page: options with the defaults of the networks. Infinity is a word, because JSON has no infinity."""
  return {name: option | {"default": _word(values[name]), "range": range_text(option)} for name, option in options.items()}


def _word(value: Any) -> Any:
  return "inf" if isinstance(value, float) and math.isinf(value) else value
