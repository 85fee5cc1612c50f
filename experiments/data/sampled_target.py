"""The target of a bundle, as what learns from its samples reads it: its host, conditions and guided logits."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

import jaxspec
from jaxspec.hosts.images import CaptionHost
from jaxspec.models.conditions import Prompt
from jaxspec.pipeline import Pipeline
from jaxspec.types import Array, Params, PyTree


def caption_host(pipeline: Pipeline) -> CaptionHost:
  """The host of a pipeline whose captions are ids of word pieces.

  Raises:
    ValueError: for another one.
  """
  if not isinstance(pipeline.host, CaptionHost):
    hint = ": its prompts come from a file (--prompts FILE)" if pipeline.host.condition_type is Prompt else ""
    raise ValueError(f"Must have a target with a text encoder of its own for this, {pipeline.name} has none{hint}")
  return pipeline.host


def conditions_of(pipeline: Pipeline) -> tuple[Callable[[Params, Array, Array], PyTree], Params]:
  """What makes conditions of the prompts of samples, ``(params, ids [M, P], mask [M, P]) -> condition``, and its parameters.

  It is the text encoder of the target; a target that reads ids itself has none.

  Raises:
    ValueError: for another target.
  """
  if pipeline.host.condition_type is Prompt:
    return lambda params, ids, mask: Prompt(ids, mask), {}
  text = caption_host(pipeline).text
  return text.fns.apply, text.params


def guided_target(pipeline: Pipeline, **kwargs):
  """The target at the bundle's guidance scale, ``(fns, params)``; ``kwargs`` as for `jaxspec.guided`."""
  fns = jaxspec.guided(pipeline.target.fns, **kwargs)
  return fns, jaxspec.Guided(pipeline.target.params, jnp.float32(pipeline.sampling().cfg_scale))
