"""The loaded networks of a studio: what the page is told about them, and requests turned into decodes."""

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
from jaxspec.studio.schema import Asked

_EXAMPLES = {"prompt": "a red heart", "text": "a large river: "}


class Entrant(NamedTuple):
  """One method of a race, ready to decode.

  Attributes:
    job: networks, method and settings, audited where the request says so.
    program: equal for decodes that run the same compiled programs.
  """

  job: Job
  program: Any


class Resolved(NamedTuple):
  """A request that fits the networks."""

  asked: Asked
  entrants: list[Entrant]
  batches: Batches  # one, with a row for each prompt


class Session:
  """Loaded networks, and which of their programs are compiled.

  Args:
    pipeline: of `jaxspec.load_pipeline`, with weights and without a mesh.
    networks: what it was loaded from, as options of ``jaxspec generate`` name it.
  Raises:
    ValueError: for networks that no typed prompt can drive.
  """

  def __init__(self, pipeline: Pipeline, networks: Sources = Sources()):
    if isinstance(pipeline.family, FeatureFamily):
      raise ValueError(f"{pipeline.name} draws from features of a text encoder: the studio needs networks that read prompts")
    self.pipeline, self.networks = pipeline, networks
    self.compiled: set[Any] = set()
    self._lock = threading.Lock()  # decoders are made and kept by the pipeline, which is not made for threads

  @property
  def kind(self) -> str:
    """What rows begin with, as options of ``jaxspec generate`` call it: prompt, class or text."""
    family = self.pipeline.family
    return "class" if family.condition_type is ClassLabels else "text" if family.noun == "text" else "prompt"

  def describe(self) -> dict[str, Any]:
    """What the page shows: kinds of prompts, methods and settings with their options, limits; JSON."""
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

  def resolve(self, asked: Asked) -> Resolved:
    """Everything that a request needs, each setting checked against the networks.

    Raises:
      ValueError: in one line.
    """
    with self._lock:
      pipeline = self.pipeline
      if self.kind != "class":
        check_prompts(asked.prompts)
      if asked.max_tokens is not None and pipeline.family.noun != "text":
        raise ValueError("Must have no max_tokens for images, which have all of their tokens, we instead got one")
      encoded = pipeline.encode(PromptRequest(self.kind, asked.prompts).for_family(pipeline.family))
      rows = len(encoded.captions)
      entrants = [self._entrant(chosen, encoded, asked, rows) for chosen in asked.entrants]
      return Resolved(asked, entrants, entrants[0].job.batches(rows))

  def _entrant(self, chosen: DecodeOptions, encoded, asked: Asked, rows: int) -> Entrant:
    job = chosen.job(self.pipeline, encoded, seed=asked.seed, max_len=asked.max_tokens).but(audit=asked.audit)
    check_memory(job, rows)
    leaves, tree = jax.tree.flatten((job.decoder.parts.params, job.condition))
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    return Entrant(job, (self.pipeline.static_key(job.decoder, job.max_len), tree, shapes))

  def check(self, asked: Asked) -> dict[str, Any]:
    """Whether a request fits, and whether each entrant has to be compiled first; JSON.

    Raises:
      ValueError: as `resolve`.
    """
    resolved = self.resolve(asked)
    return {
      "compiles": [entrant.program not in self.compiled for entrant in resolved.entrants],
      "warnings": list(dict.fromkeys(warning for entrant in resolved.entrants for warning in entrant.job.warnings)),
    }


def _controls(options: dict[str, dict[str, Any]], values: dict[str, Any]) -> dict[str, dict[str, Any]]:
  """Options as the page makes controls of them, with the values of the networks; infinity is a word, as in JSON."""
  return {name: option | {"default": _word(values[name]), "range": range_text(option)} for name, option in options.items()}


def _word(value: Any) -> Any:
  return "inf" if isinstance(value, float) and math.isinf(value) else value
