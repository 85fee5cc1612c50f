"""The lifted world: scenes whose background codes have many equal copies, without any training.

A flat background is one code, so that the tokens of scenes are almost certain. The codebooks of the papers have thousands of
near-synonyms. Here every background code is split into *twins*: codes of the same colour that lie a small step apart in the
codebook. The probability of a twin is that of its code times a *grain*, a kernel over twins that follows the token before.
Drafts know the codes and not the grain. Images are decoded from the codes, so a method that exchanges twins leaves the image
as it is and changes the grain alone. The grain's mean step between neighbours therefore measures its harm.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, Intervals, ModelFns, Params
from jaxspec.evaluation.scenes.world import BACKGROUNDS, IMAGE_SIZE
from jaxspec.families.token_images import CaptionFamily
from jaxspec.models import guidance
from jaxspec.models.guidance import Guided
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, from_uint8
from jaxspec.run.draft_networks import Drafts
from jaxspec.run.pipeline import Pipeline
from jaxspec.sampling.logit_processing import Sampling, Warp, sampling_params

STEP = 0.02  # between neighbouring twins in the codebook, whose rows have unit length


class Twins(NamedTuple):
  """The tokens of a lifted world.

  Attributes:
    code: ``[W]`` int32 code of each token; the first tokens are the codes themselves.
    number: ``[W]`` int32 number of each twin of its code, from 0.
    is_split: ``[W]`` bool, whether its code has twins.
  """

  code: Array
  number: Array
  is_split: Array


class LiftedParams(NamedTuple):
  """Weights of a lifted network.

  Attributes:
    model: the weights of the network of codes.
    twins: the tokens.
    grain: ``[M, M]`` log probabilities of a twin after a twin of the same code; None: uniform.
    sampling: top-p of the codes, before they are split.
  """

  model: Params
  twins: Twins
  grain: Array | None
  sampling: Sampling


@dataclasses.dataclass(frozen=True)
class Lift:
  """A lifted world.

  Attributes:
    twins: number of each background code, M; 1 is the flat world.
    sigma: standard deviation of the grain's steps, in twins; 0: twins are drawn uniformly.
    uniform: share of the grain that is uniform.
    top_p: of the codes.
  """

  twins: int = 64
  sigma: float = 4.0
  uniform: float = 0.1
  top_p: float = 0.95

  def __post_init__(self):
    if self.twins < 1 or self.sigma < 0 or not 0 <= self.uniform <= 1 or not 0 < self.top_p <= 1:
      raise ValueError(f"Must have twins from 1, sigma from 0, uniform in [0, 1] and top_p in (0, 1], we instead got {self}")

  def __call__(self, pipeline: Pipeline) -> Pipeline:
    """A pipeline of scenes in this world; its guidance and top-p are in its networks."""
    family = pipeline.family
    if not isinstance(family, CaptionFamily):
      raise ValueError(f"Must have a bundle of scenes to lift, we instead got {pipeline}")
    twins = self.tokens(family)
    nucleus = sampling_params(top_p=self.top_p)
    lifted = lambda params, grain: LiftedParams(params, twins, grain, nucleus)
    target, scale = pipeline.target, float(pipeline.defaults.sampling.get("cfg_scale", 1.0))
    fns = guidance.guided(target.fns, features="combined")
    params = lifted(Guided(target.params, jnp.float32(scale)), self.grain())
    made = _network(target, lifted_fns(fns, self.top_p < 1), params, twins)
    drafts = {
      name: _network(draft, lifted_fns(draft.fns, self.top_p < 1), lifted(draft.params, None), twins)
      for name, draft in pipeline.drafts.items()
      if draft.family_name != "eagle"  # the head of EAGLE shares the target's matrices
    }
    inner = family.tokenizer
    tokenizer = dataclasses.replace(inner, fns=lifted_tokenizer(inner.fns), params=(inner.params, twins))
    fields: dict[str, Any] = {field.name: getattr(family, field.name) for field in dataclasses.fields(family)}
    found = LiftedFamily(**(fields | dict(target=made, tokenizer=tokenizer)))
    sampling = {"cfg_scale": 1.0, "top_p": 1.0}
    defaults = dataclasses.replace(pipeline.defaults, method=None, draft=None, sampling=sampling)
    return dataclasses.replace(pipeline, family=found, target=made, drafts=Drafts(found, drafts), defaults=defaults)

  def tokens(self, family: CaptionFamily) -> Twins:
    """The tokens: all codes, then the other twins of each background code."""
    flat = np.array([np.full((IMAGE_SIZE, IMAGE_SIZE, 3), colour, np.uint8) for colour in BACKGROUNDS.values()])
    ids, _ = jax.jit(family.tokenizer.fns.encode)(family.tokenizer.params, from_uint8(jnp.asarray(flat)))
    codes = sorted({int(np.bincount(row).argmax()) for row in np.asarray(ids)})
    size = family.target.config.vocab_size
    others = np.arange(1, self.twins)
    code = np.concatenate([np.arange(size), np.repeat(codes, self.twins - 1)])
    number = np.concatenate([np.zeros(size, int), np.tile(others, len(codes))])
    return Twins(jnp.asarray(code, jnp.int32), jnp.asarray(number, jnp.int32), jnp.asarray(np.isin(code, codes)))

  def grain(self) -> Array | None:
    """``[M, M]`` log probabilities of a twin, by the twin of the same code before it; None if uniform."""
    if self.sigma == 0:
      return None
    gap = np.arange(self.twins)[:, None] - np.arange(self.twins)[None]
    near = np.exp(-0.5 * (gap / self.sigma) ** 2)
    near /= near.sum(axis=1, keepdims=True)
    return jnp.asarray(np.log((1 - self.uniform) * near + self.uniform / self.twins), jnp.float32)

  def nats(self) -> float:
    """Entropy of a twin after a twin of the same code, in nats; the mean over the twins before it."""
    grain = self.grain()
    return math.log(self.twins) if grain is None else float(jnp.mean(jnp.sum(jnp.exp(grain) * jnp.abs(grain), axis=1)))

  def mean_step(self, twins: Twins, tokens: np.ndarray) -> float:
    """The mean distance of neighbouring twins of one code, in twins; ``tokens [N, L]``; NaN without twins."""
    code, number, is_split = (np.asarray(leaf)[tokens] for leaf in twins)
    pairs = is_split[:, 1:] & (code[:, 1:] == code[:, :-1])
    return float(np.abs(np.diff(number, axis=1))[pairs].mean()) if pairs.any() else math.nan


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LiftedFamily(CaptionFamily):
  """Captions whose images are made of twins."""

  @property
  def twins(self) -> Twins:
    """The tokens."""
    return self.target.params.twins

  @functools.cached_property
  def space(self) -> TokenSpace:
    """That of the codes with a column more, the numbers of the twins."""
    config, target = self.target.config, self.target
    embedding = lambda: _with_numbers(target.params.model.model["tok_embeddings"]["weight"], self.twins)
    codebook = lambda: self.tokenizer.fns.codebook(self.tokenizer.params)
    kwargs = dict(vocab_size=config.vocab_size, num_tokens=config.num_tokens, grid=(config.grid, config.grid))
    return TokenSpace(codebook=codebook, embedding=embedding, unit_codes=False, **kwargs)


@functools.cache
def lifted_fns(fns: ModelFns, has_nucleus: bool) -> ModelFns:
  """A network of tokens from a network of codes, with `LiftedParams`.

  Args:
    has_nucleus: whether the codes have a top-p.
  """
  warp = Warp(nucleus=has_nucleus)

  def apply(params: LiftedParams, inputs, cache=None, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    codes, last = inputs, None
    if isinstance(inputs, jax.Array):
      codes, last = params.twins.code[inputs], inputs
      if logits_at is not None:
        last = jnp.take_along_axis(last, jnp.broadcast_to(logits_at, last.shape[:1])[:, None], axis=1)
    kwargs = dict(positions=positions, mask=mask, inject=inject, logits_at=logits_at, slot=slot)
    output, cache = fns.apply(params.model, codes, cache, **kwargs)
    shares = log_shares(params, last)
    logits = output.logits
    if logits is not None:
      logits = warp(logits, params.sampling, positions)[..., params.twins.code] + shares
    if output.intervals is not None:
      centre, radius, lens = jax.tree.map(lambda leaf: leaf[..., params.twins.code], output.intervals)
      among = shares[..., None, :]
      intervals = Intervals(centre + among, radius, None if lens is None else lens + among)
      output = output._replace(intervals=intervals)
    return output._replace(logits=logits), cache

  return fns._replace(apply=apply, null_condition=None, layers=None)


def log_shares(params: LiftedParams, last: Array | None) -> Array:
  """Log of each token's share of its code, ``[B, T, W]`` after tokens ``last [B, T]``, or ``[1, 1, W]`` without one."""
  code, number, is_split = (leaf[None, None] for leaf in params.twins)
  uniform = jnp.where(is_split, -jnp.log(jnp.max(number).astype(jnp.float32) + 1), 0.0)
  if params.grain is None or last is None:
    return uniform
  continues = is_split & (params.twins.code[last][..., None] == code)
  return jnp.where(continues, params.grain[params.twins.number[last]][..., params.twins.number], uniform)


@functools.cache
def lifted_tokenizer(fns: TokenizerFns) -> TokenizerFns:
  """A tokenizer whose indices are tokens, with parameters ``(those of the codes, twins)``; its images have first twins."""
  return fns._replace(
    init=lambda key: (fns.init(key), ()),
    encode=lambda params, images: fns.encode(params[0], images),
    decode=lambda params, tokens, grid=None: fns.decode(params[0], params[1].code[tokens], grid),
    decode_latent=lambda params, latent: fns.decode_latent(params[0], latent),
    features=lambda params, images: fns.features(params[0], images),
    codebook=lambda params: _with_numbers(_unit(fns.codebook(params[0])), params[1]),
  )


def _with_numbers(rows: Array, twins: Twins) -> Array:
  """``[W, D + 1]``: the rows ``[V, D]`` of the codes, and the twin's place."""
  return jnp.concatenate([rows[twins.code], STEP * twins.number[:, None].astype(rows.dtype)], axis=1)


def _unit(rows: Array) -> Array:
  return rows / jnp.maximum(jnp.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def _network(network: Network, fns: ModelFns, params: LiftedParams, twins: Twins) -> Network:
  size = int(twins.code.shape[0])
  meta = {name: value for name, value in network.meta.items() if name != "calibration"} | {"guided": False}
  return dataclasses.replace(network, fns=fns, params=params, config=_resized(network.config, size), meta=meta)


def _resized(config: Any, size: int) -> Any:
  """A config with another vocabulary."""
  if hasattr(config, "trunk"):
    return dataclasses.replace(config, trunk=_resized(config.trunk, size))
  return dataclasses.replace(config, vocab_size=size)
