"""Takes the remaining denoising steps of a decode with ``stop``, for all tokens at once.

With `jaxspec.ContinuousSampling.stop`, a causal network of continuous tokens ends its chains before their last steps. Its
tokens are still noisy, later tokens depend on noisy ones, and drafts of noisy tokens are accepted more often. A clean token
is drawn given the noisy tokens up to it. This takes one pass of the network and ``stop`` steps of its head, over all
positions at once.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.network import Network
from jaxspec.core.types import Array, Key, Params
from jaxspec.diffusion import chain
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.models.continuous_fns import HeadFns
from jaxspec.sampling import ContinuousSampling


def refine_tokens(
  head: HeadFns, params: Params, keys: Key, tokens: Array, condition: ClassLabels, *, sampling: ContinuousSampling
) -> Array:
  """Clean tokens ``[B, L, C]`` float32 from noisy ones, in raster order.

  Args:
    head: a causal network that reads a full row (`jaxspec.models.mar.causal_tokens`).
    params: its weights.
    keys: ``[B]`` row keys of the decode; the stream ``REFINE`` is consumed; no decode uses it.
    tokens: ``[B, L, C]`` float32, drawn with ``sampling``.
    sampling: the settings of the decode; its last ``stop`` steps are taken, the last one without noise.
  Raises:
    ValueError: if ``sampling.stop`` is 0 or None, so that no step remains.
  """
  if not sampling.stop:
    raise ValueError(f"Must have chains that stop early (stop of at least 1) to refine, we instead got {sampling.stop}")
  side, fns = sampling.side(Network(head, params)), dataclasses.replace(sampling, stop=None).bind(head)
  positions = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
  output, _ = fns.network.apply(side.model, Prefixed(condition, tokens[:, :-1]), None, positions=None)
  own = rng.stream_keys(keys, rng.Stream.REFINE, jnp.int32(0))
  noise = chain.token_noise(own, positions, sampling.stop, head.token_dim)._replace(initial=tokens)
  return chain.run(fns.distribution(side.model, output.features, positions), noise, side.sampling.temperature).token
