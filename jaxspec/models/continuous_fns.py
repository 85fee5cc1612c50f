"""Networks of continuous tokens, the interface for drafters and verifiers.

Such a network has two parts: a `ModelFns` that returns features of the next token (there are no logits), and a chain of
Gaussian steps that draws the token given these features (`jaxspec.diffusion.chain`). `diffusion_tokens` makes the chain of a
diffusion head; `guided_tokens` guides both. Causal networks, masked networks in their generation order
(`jaxspec.models.mar.masked_network`) and toys with a distribution in closed form all have this interface.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, ModelFns, Params
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.chain import DistributionFn, StepDistribution
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.models.guidance import Guided, guided


class ContinuousFns(NamedTuple):
  """A network of continuous tokens and the chain that draws them; pure functions and static numbers.

  ``network.apply`` takes tokens ``[B, T, C]`` float or the condition; its features ``[B, T, Z]`` belong to the token after
  each input, and with ``logits_at`` only that input's are returned, ``[B, 1, Z]``. The condition takes one cache slot.

  ``distribution(params, z, slot)`` binds the chain to features ``z [B, T, Z]`` of the tokens at ``slot [B or 1, T]`` int32
  (0 is the first token of a row): a `DistributionFn` for states ``[B, T, C]``, or ``[R, B, T, C]`` with steps of that rank.
  """

  network: ModelFns
  distribution: Callable[[Params, Array, Array], DistributionFn]
  num_steps: int  # T of a chain
  token_dim: int  # C
  num_tokens: int  # largest number of tokens of a row
  noisy_end: bool  # whether step 0 adds noise (`jaxspec.diffusion.chain`); exact speculation needs it


class HeadFns(NamedTuple):
  """A network of continuous tokens with a diffusion head, without a sampler."""

  network: ModelFns
  predictor: Callable[[Params, Array, np.ndarray], ddpm.PredictFn]  # as `MARFns.predictor`
  num_tokens: int
  token_dim: int

  @property
  def init(self):
    """Parameters from a key."""
    return self.network.init


# (tokens still masked after this one, tokens of a row, scale) -> scale of this token; see `jaxspec.sampling.unmasking`.
GuidanceFn = Callable[[Array, int, Array], Array]


@functools.cache
def diffusion_tokens(head: HeadFns, *, num_steps: int | str = 100, stop: int | None = None) -> ContinuousFns:
  """Tokens drawn by a diffusion head.

  Args:
    num_steps: diffusion steps, or a respacing as in `jaxspec.diffusion.schedule.kept_steps`; static.
    stop: the last diffusion step of a chain, including its noise. None is the usual chain, which ends in a mean.
  Raises:
    ValueError: for an impossible respacing, or a ``stop`` beyond its steps.
  """
  tables = diffusion_tables(str(num_steps))
  ddpm.check_stop(tables, stop)

  def distribution(params: Params, z: Array, slot: Array) -> DistributionFn:
    del slot
    return ddpm.distribution_fn(head.predictor(params, z, tables.timesteps), tables, stop)

  steps = tables.num_steps - (stop or 0)
  return ContinuousFns(head.network, distribution, steps, head.token_dim, head.num_tokens, stop is not None)


@functools.cache
def guided_tokens(
  head: HeadFns, guidance_fn: GuidanceFn, *, num_steps: int | str = 100, stop: int | None = None
) -> ContinuousFns:
  """Like `diffusion_tokens`, with classifier-free guidance; parameters become `Guided`.

  The noise prediction is guided; the variance is the conditional one (MAR, arXiv 2406.11838). Both halves of the network
  run as one batch. Both halves of the head also run as one batch, at the same state.

  Args:
    guidance_fn: the scale by token, as if one token were generated at a time.
  """
  tables = diffusion_tables(str(num_steps))
  ddpm.check_stop(tables, stop)

  def distribution(params: Guided, z: Array, slot: Array) -> DistributionFn:
    both = jnp.concatenate(jnp.split(z, 2, axis=-1))  # [2 B, T, Z]
    predict_fn = head.predictor(params.model, both, tables.timesteps)
    # MAR counts one masked token in its last iteration.
    masked = jnp.maximum(head.num_tokens - 1 - slot, 1).astype(jnp.float32)
    scale = guidance_fn(masked, head.num_tokens, params.scale)[..., None]  # [B or 1, T, 1]

    def of_state(step: Array, x: Array) -> StepDistribution:
      factor = scale.reshape((1,) * (x.ndim - scale.ndim) + scale.shape)
      return ddpm.distribution_fn(ddpm.guided(predict_fn, factor, axis=-3), tables, stop)(step, x)

    return of_state

  steps = tables.num_steps - (stop or 0)
  return ContinuousFns(guided(head.network), distribution, steps, head.token_dim, head.num_tokens, stop is not None)
