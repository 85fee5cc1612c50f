"""The steps that a decode with ``stop`` leaves out, taken for all tokens at once.

A causal network of vector tokens may draw its tokens only down to some noise (`jaxspec.decode.token_methods.TokenSampling`):
what later tokens read then is noisy, and drafts of such tokens are easier to keep. The fine part of every token given the
noisy ones before it is a law of its own: one pass of the network and ``stop`` steps of its head over all places together.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec import rng
from jaxspec.decode.token_methods import TokenSampling
from jaxspec.diffusion import chain
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.models.token_fns import HeadFns
from jaxspec.types import Array, Key, Params


def refine_tokens(
  head: HeadFns, params: Params, keys: Key, tokens: Array, condition: ClassLabels, *, sampling: TokenSampling
) -> Array:
  """Clean tokens ``[B, L, C]`` of noisy ones, raster order.

  Args:
    head: a causal network that reads a whole row at once (`jaxspec.models.causal_tokens`).
    params: its weights.
    keys: ``[B]`` row keys of the decode; a stream that no decode uses is consumed.
    tokens: ``[B, L, C]`` float32, drawn with ``sampling``.
    sampling: the settings of the decode; its last ``stop`` steps are taken, the last one without noise.
  Raises:
    ValueError: if the chains left no step out.
  """
  if not sampling.stop:
    raise ValueError(f"Must have chains that stop early (stop of at least 1) to refine, we instead got {sampling.stop}")
  side, fns = sampling.side(params), dataclasses.replace(sampling, stop=None).bind(head)
  places = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
  output, _ = fns.network.apply(side.model, Prefixed(condition, tokens[:, :-1]), positions=None)
  own = rng.stream_keys(keys, rng.Stream.REFINE, jnp.int32(0))
  noise = chain.token_noise(own, places, sampling.stop, head.token_dim)._replace(initial=tokens)
  return chain.run(fns.law(side.model, output.features, places), noise, side.sampling.temperature).token
