"""Pictures of classes from a bundle of vector tokens: every method as one decode of the same signature.

The command line and the experiments draw through here, so that they draw the same tokens from the same keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import orders
from jaxspec.decode.loop import autoregress, speculate
from jaxspec.decode.masked import generate_masked
from jaxspec.decode.refine import refine_tokens
from jaxspec.decode.state import Counters
from jaxspec.decode.token_methods import TokenSampling, assemble_tokens, prefilled, with_orders
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.token_bundle import TokenBundle, head_fns
from jaxspec.types import Array, Params
from jaxspec.verifiers.token_rule import TokenReport, TokenRule

METHODS = {
  "ar": "the target alone, token by token",
  "parallel": "the target alone, several tokens at a time",
  "cspd": "continuous speculative decoding",
}


@dataclasses.dataclass(frozen=True)
class ClassMethod:
  """How tokens are drawn; static.

  Attributes:
    method: one of `METHODS`.
    sampling: the chains, shared by all methods that are to be compared.
    draft: name of the bundle's draft; None is its first.
    gamma: tokens drafted per round.
    rule: the test of drafts; None is the published one.
    prefill: share of the tokens that the target draws alone, before anything is drafted.
    num_iter: iterations of ``parallel``.
    num_tokens: tokens drawn, the first ones of the order; None is a whole picture.
    alone: ``ar`` and ``parallel`` by the draft instead of the target.
    refine: whether the steps that ``sampling.stop`` leaves out are taken in the end, for all tokens at once (causal
      networks, `jaxspec.decode.refine`).
  """

  method: str = "cspd"
  sampling: TokenSampling = TokenSampling()
  draft: str | None = None
  gamma: int = 8
  rule: TokenRule | None = None
  prefill: float = 0.0
  num_iter: int = 64
  num_tokens: int | None = None
  alone: bool = False
  refine: bool = False

  def __post_init__(self):
    if self.method not in METHODS:
      raise ValueError(f"Must have a method in {', '.join(METHODS)}, we instead got {self.method!r}")
    if self.alone and self.method == "cspd":
      raise ValueError("Must have method ar or parallel for the draft alone, we instead got cspd")


class ClassTokens(NamedTuple):
  """What was drawn; the last three are None for ``parallel``."""

  tokens: Array  # [B, L, C] float32, raster order; zeros at places that were not asked for; refined if that was asked for
  counters: Counters
  origin: Array | None = None  # [B, L] int8, raster order, an `Origin`
  commit_round: Array | None = None  # [B, L] int32, raster order
  report: TokenReport | None = None  # leaves [B, L], raster order


# (parameters, key data [B, ...] uint32, ClassLabels of B rows) -> ClassTokens
ClassDecode = Callable[[Params, Array, ClassLabels], ClassTokens]


def class_decode(bundle: TokenBundle, method: ClassMethod) -> tuple[Params, ClassDecode]:
  """The parameters and the decode of a method, to be compiled.

  Raises:
    ValueError: if the bundle has no such draft, or its networks cannot be decoded so.
  """
  length = bundle.target.config.num_tokens
  draft = None
  if method.method == "cspd" or method.alone:
    if not bundle.drafts:
      raise ValueError("The bundle has no draft, only method ar can be used")
    if method.draft not in (None, *bundle.drafts):
      raise ValueError(f"Must have a draft in {', '.join(bundle.drafts)}, we instead got {method.draft!r}")
    draft = bundle.drafts[method.draft or next(iter(bundle.drafts))]
  if method.method == "parallel":
    return _parallel(bundle, draft if method.alone else bundle.target, method)
  host = draft if method.alone else bundle.target
  if method.refine and (bundle.is_masked or not method.sampling.stop or method.num_tokens not in (None, length)):
    raise ValueError("Must have whole pictures by a causal network, whose chains stop early, to refine")
  parts = ()
  if method.method == "cspd":
    if not 1 <= method.gamma < length:
      raise ValueError(f"Must have gamma from 1 to {length - 1}, we instead got {method.gamma}")
    parts = (head_fns(draft), draft.params)
  params, drafter, verifier = assemble_tokens(
    head_fns(host), host.params, *parts, sampling=method.sampling, rule=method.rule, gamma=method.gamma
  )
  lead = prefilled(method.prefill, length)
  count = method.num_tokens or length

  def decode(params: Params, key_data: Array, labels: ClassLabels) -> ClassTokens:
    keys = jax.random.wrap_key_data(key_data)
    condition = with_orders(keys, labels, length) if bundle.is_masked else labels
    if method.method == "ar":
      out = autoregress(params, keys, condition, verifier=verifier, max_len=count)
    else:
      out = speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=count, lead=lead)

    def raster(values: Array) -> Array:
      values = jnp.pad(values, ((0, 0), (0, length - count), *((0, 0),) * (values.ndim - 2)))
      return orders.to_raster(values, condition.order) if bundle.is_masked else values

    each = jax.tree.map(raster, (out.tokens, out.origin, out.commit_round, out.metrics))
    tokens = each[0]
    if method.refine:
      weights = params.target.model.model if method.sampling.is_guided else params.target.model
      tokens = refine_tokens(head_fns(host), weights, keys, tokens, labels, sampling=method.sampling)
    return ClassTokens(tokens, out.counters, *each[1:])

  return params, decode


def signal_of(method: ClassMethod) -> float:
  """``sqrt(A)`` of the tokens of a method: 1, or less where chains stop early (`TokenBundle.pictures`)."""
  sampling = method.sampling
  if sampling.stop is None or method.refine:
    return 1.0
  return float(diffusion_tables(str(sampling.num_steps)).alphas_cumprod_prev[sampling.stop] ** 0.5)


def _parallel(bundle: TokenBundle, host, method: ClassMethod) -> tuple[Params, ClassDecode]:
  """MAR's own decoding, several tokens per pass."""
  length, sampling = host.config.num_tokens, method.sampling
  if not bundle.is_masked:
    raise ValueError("Must have a masked network (MAR) for method parallel: a causal one has a token per pass")
  if method.refine or method.num_tokens is not None:
    raise ValueError("Must have whole pictures without refinement for method parallel")
  if not 1 <= method.num_iter <= length:
    raise ValueError(f"Must have num_iter from 1 to {length}, we instead got {method.num_iter}")

  def decode(params: Params, key_data: Array, labels: ClassLabels) -> ClassTokens:
    keys = jax.random.wrap_key_data(key_data)
    out = generate_masked(
      host.fns, params, keys, labels, num_iter=method.num_iter, num_steps=sampling.num_steps,
      temperature=sampling.temperature, scale=sampling.scale if sampling.is_guided else None, stop=sampling.stop,
      guidance_fn=sampling.guidance_fn,
    )  # fmt: skip
    calls, none = jnp.full(keys.shape, method.num_iter, jnp.int32), jnp.zeros(keys.shape, jnp.int32)
    return ClassTokens(out.tokens, Counters(calls, none, none, none, calls, none))

  return host.params, decode
