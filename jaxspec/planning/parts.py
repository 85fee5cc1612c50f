"""Parts of a method on a network of shapes: its drafter, its draft network, and the tables of its acceptance rule.

The method itself builds its parts of shapes, so that every registered method can be planned.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import footprint
from jaxspec.core.token_space import TokenSpace
from jaxspec.methods.method import SAME_FAMILY, BuildContext, Method, Parts, need
from jaxspec.models import registry
from jaxspec.models.heads.feature_head import attach, borrowed
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.trunk import trunk_of
from jaxspec.planning.published_models import Model, find_model
from jaxspec.planning.sizes import Sized, sized
from jaxspec.planning.uses import Use
from jaxspec.sampling import AnySampling

# Blocks of a draft network made of its target's first layers, if none is published.
DRAFT_LAYERS = 2

# Any calibrated threshold of an edge network: it changes no shape.
ANY_THRESHOLD = {"calibration": {"thresholds": [{"achieved": 0.3, "tau": 1.0}]}}


class Needs(NamedTuple):
  """Parts of a method, as shapes.

  Attributes:
    parts: built by the method; parameters are shapes.
    draft: the draft network; None without one.
    reads: the network of the draft side: ``draft``, with the tables that it borrows.
    table_bytes: bytes of the arrays that the acceptance rule reads.
  """

  parts: Parts
  draft: Sized | None
  reads: Sized | None
  table_bytes: int

  @property
  def draft_calls(self) -> int:
    """Passes of the draft network in a round."""
    return self.parts.drafter.calls_per_round if self.parts.drafter is not None else 0


def needs_of(
  model: Model,
  target: Sized,
  method: Method,
  sampling: AnySampling,
  draft: Model | None,
  dtype: str,
  *,
  guided: bool = False,
) -> Needs:
  """Builds the parts of a method.

  Args:
    draft: the draft network; None: the published one of the model, or the first layers of the model.
    guided: whether the parts follow the guidance of the sampling settings, for running them. A plan does not need it: it
      counts the two halves as two rows.
  Raises:
    ValueError: if the method does not run on the model.
  """
  method.check_length(model.num_tokens)
  drafting = None
  if method.draft_family is not None:
    drafting = dataclasses.replace(draft_of(model, method, draft, dtype), is_draft=True)
  sampling = sampling if guided else dataclasses.replace(sampling, cfg_scale=1.0)
  found: list[Parts] = []

  def build(target_params, draft_params):
    space = TokenSpace(sampling.tokens, model.vocab_size, model.num_tokens, model.grid)
    if getattr(model.tokenizer, "codebook_size", None):
      space = dataclasses.replace(space, codebook=lambda: jnp.zeros((model.vocab_size, model.tokenizer.codebook_dim)))
    if vocab := model.vocab_size:
      space = dataclasses.replace(space, embedding=lambda: _embedding(target, vocab))
    networks = dataclasses.replace(target.drawing, params=target_params), None
    if drafting is not None:
      networks = networks[0], dataclasses.replace(drafting.drawing, params=draft_params)
    found.append(method.build(*networks, BuildContext(sampling, space)))
    return found[0].params

  draft_params = () if drafting is None else drafting.drawing.params
  params = jax.eval_shape(build, target.drawing.params, draft_params)
  reads, family = drafting, registry.FAMILIES.get(method.draft_family or "")
  if drafting is not None and family is not None and family.head_of is not None:
    attached = attach(drafting.network.params, borrowed(target.config, target.drawing.params))
    reads = Sized(dataclasses.replace(drafting.network, params=attached), is_draft=True)
  return Needs(found[0]._replace(params=params), drafting, reads, footprint.tree_bytes(params.target.rule))


def _embedding(target: Sized, vocab_size: int):
  """An array of the shape of the token table's first rows."""
  tables = [leaf for leaf in target.leaves if leaf.use in (Use.LOOKUP, Use.HEAD) and leaf.shape[0] >= vocab_size]
  return jnp.zeros((vocab_size, tables[0].shape[1]))


def draft_of(model: Model, method: Method, draft: Model | None, dtype: str) -> Sized:
  """Returns the draft network of a method.

  Raises:
    ValueError: if none fits.
  """
  if draft is not None:
    spec = registry.FAMILIES.get(method.draft_family or "")
    if spec is not None and spec.head_of is not None:
      raise ValueError(
        f"Must have no draft for method {method.name}, whose head is made for the model, we instead got {draft.name}"
      )
    if (ours := draft.vocab_size) != (theirs := model.vocab_size):
      raise ValueError(f"Must have a draft with the {theirs} tokens of {model.name}, we instead got {ours} of {draft.name}")
    return _with_threshold(draft.sized(dtype))
  if method.draft_family == SAME_FAMILY:
    if model.draft is not None:
      return find_model(model.draft).sized(dtype)
    if not hasattr(model.config, "num_layers"):
      raise ValueError(f"Must have a draft network for {model.name} (--draft), it has no published one")
    layers = min(DRAFT_LAYERS, model.config.num_layers)
    config, family = dataclasses.replace(model.config, num_layers=layers), model.family
    return sized(family, config, f"{layers} layers of {model.name}", dtype=dtype)
  try:
    trunk_of(model.config)
  except ValueError as error:
    raise ValueError(f"{error}: {model.name}, for the {method.draft_family} of method {method.name}") from error
  name = need(method.draft_family, "a draft network", method.name)
  head_of = registry.FAMILIES[name].head_of
  if head_of is not None:
    return sized(name, head_of(model.config), f"head of {model.name}", dtype=dtype)
  config = InterHeadConfig(dataclasses.replace(model.config, num_layers=1, dtype=dtype))
  return _with_threshold(sized(name, config, f"edge of {model.name}", dtype=dtype))


def _with_threshold(draft: Sized) -> Sized:
  return Sized(dataclasses.replace(draft.network, meta=ANY_THRESHOLD))
