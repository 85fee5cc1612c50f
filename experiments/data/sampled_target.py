"""The target of a bundle for training on its samples: its family, conditions and guided logits."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from experiments.data.samples import Samples
from jaxspec.core.types import Params, PyTree
from jaxspec.families.token_images import CaptionFamily
from jaxspec.methods import DISCRETE
from jaxspec.models.conditions import ClassLabels, Prompt
from jaxspec.models.guidance import Guided, guided
from jaxspec.run.pipeline import Pipeline


def caption_family(pipeline: Pipeline) -> CaptionFamily:
  """The family of a pipeline whose captions are ids of word pieces.

  Raises:
    ValueError: for another pipeline.
  """
  if not isinstance(pipeline.family, CaptionFamily):
    hint = ": its prompts come from a file (--prompts FILE)" if pipeline.family.condition_type is Prompt else ""
    raise ValueError(f"Must have a target with a small text encoder of its own for this, {pipeline.name} has none{hint}")
  return pipeline.family


def conditions_of(pipeline: Pipeline) -> tuple[Callable[[Params, Samples], PyTree], Params]:
  """Function from the prompts of samples to conditions, ``(params, samples) -> condition``, and its parameters.

  It is the text encoder of the target; a target that reads ids or classes has none.

  Raises:
    ValueError: for a target with other prompts, or one that does not draw discrete tokens of images.
  """
  family = pipeline.family
  if (family.space.kind, family.noun) != (DISCRETE, "image"):
    drawn = family.space.noun if family.noun == "image" else "texts"
    raise ValueError(f"Must have a target that draws images of discrete tokens for this, {pipeline.name} draws {drawn}")
  if family.condition_type is Prompt:
    return lambda params, samples: Prompt(samples["ids"], samples["mask"]), {}
  if family.condition_type is ClassLabels:
    return lambda params, samples: ClassLabels(samples["labels"]), {}
  text = caption_family(pipeline).text
  return lambda params, samples: text.fns.apply(params, samples["ids"], samples["mask"]), text.params


def guided_target(pipeline: Pipeline, **kwargs):
  """The target at the bundle's guidance scale, ``(fns, params)``; ``kwargs`` as for `jaxspec.models.guidance.guided`."""
  fns = guided(pipeline.target.fns, **kwargs)
  return fns, Guided(pipeline.target.params, jnp.float32(pipeline.sampling().cfg_scale))
