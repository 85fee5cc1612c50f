"""Networks whose tokens are vectors, as drafters and verifiers of vectors see them.

Such a network is two things: a `ModelFns` whose features say what is known about the next token (there are no logits), and
a chain of Gaussian steps that draws the token given these features (`jaxspec.diffusion.chain`). `diffusion_tokens` makes the
chain of a diffusion head; `guided_tokens` guides both. A causal network, a masked one that is read in its generation order
(`jaxspec.models.masked_network`) and a toy with a law in closed form then look the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.diffusion import ddpm
from jaxspec.diffusion.chain import LawFn, StepLaw
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.models.guidance import Guided, guided
from jaxspec.types import Array, ModelFns, Params


class TokenFns(NamedTuple):
  """A network of vector tokens and the chain that draws them; pure functions and static numbers.

  ``network.apply`` takes tokens ``[B, T, C]`` float or the condition; its features ``[B, T, Z]`` belong to the token behind
  each input, and with ``logits_at`` only that input's are returned, ``[B, 1, Z]``. The condition takes one position.

  ``law(params, z, slot)`` binds the chain to features ``z [B, T, Z]`` of the tokens at ``slot [B or 1, T]`` int32 (0 is the
  first token of a row): a `LawFn` for states ``[B, T, C]``, or ``[R, B, T, C]`` with steps of that rank.
  """

  network: ModelFns
  law: Callable[[Params, Array, Array], LawFn]
  num_steps: int  # T of a chain
  token_dim: int  # C
  num_tokens: int  # the most tokens of a row
  noisy_end: bool  # whether step 0 adds noise (`jaxspec.diffusion.chain`); exact speculation needs it


class HeadFns(NamedTuple):
  """A network of vector tokens with a diffusion head, before a sampler is chosen."""

  network: ModelFns
  predictor: Callable[[Params, Array, np.ndarray], ddpm.PredictFn]  # as `MARFns.predictor`
  num_tokens: int
  token_dim: int

  @property
  def init(self):
    """Parameters from a key."""
    return self.network.init


# (tokens still masked behind this one, tokens of a row, scale) -> scale of this token; see `jaxspec.decode.unmasking`.
GuidanceFn = Callable[[Array, int, Array], Array]


@functools.cache
def diffusion_tokens(head: HeadFns, *, num_steps: int | str = 100, stop: int | None = None) -> TokenFns:
  """Tokens drawn by a diffusion head.

  Args:
    num_steps: diffusion steps, or a respacing as in `jaxspec.diffusion.schedule.kept_steps`; static.
    stop: the diffusion step, noise included, behind which a token is done. None is the usual end in a mean.
  Raises:
    ValueError: for steps that cannot be kept, or a ``stop`` beyond them.
  """
  tables = diffusion_tables(str(num_steps))
  ddpm.check_stop(tables, stop)

  def law(params: Params, z: Array, slot: Array) -> LawFn:
    del slot
    return ddpm.law_fn(head.predictor(params, z, tables.timesteps), tables, stop)

  steps = tables.num_steps - (stop or 0)
  return TokenFns(head.network, law, steps, head.token_dim, head.num_tokens, stop is not None)


@functools.cache
def guided_tokens(
  head: HeadFns, guidance_fn: GuidanceFn, *, num_steps: int | str = 100, stop: int | None = None
) -> TokenFns:
  """As `diffusion_tokens`, under classifier-free guidance; parameters become `Guided`.

  The noise prediction is guided, the variance is the conditional one (MAR, arXiv 2406.11838). Both halves of the network
  run as one batch, and so do both halves of the head, at one state.

  Args:
    guidance_fn: how the scale depends on the token, as if one token were generated at a time.
  """
  tables = diffusion_tables(str(num_steps))
  ddpm.check_stop(tables, stop)

  def law(params: Guided, z: Array, slot: Array) -> LawFn:
    both = jnp.concatenate(jnp.split(z, 2, axis=-1))  # [2 B, T, Z]
    predict_fn = head.predictor(params.model, both, tables.timesteps)
    # MAR counts one masked token in its last iteration.
    masked = jnp.maximum(head.num_tokens - 1 - slot, 1).astype(jnp.float32)
    scale = guidance_fn(masked, head.num_tokens, params.scale)[..., None]  # [B or 1, T, 1]

    def of_state(step: Array, x: Array) -> StepLaw:
      factor = scale.reshape((1,) * (x.ndim - scale.ndim) + scale.shape)
      return ddpm.law_fn(ddpm.guided(predict_fn, factor, axis=-3), tables, stop)(step, x)

    return of_state

  steps = tables.num_steps - (stop or 0)
  return TokenFns(guided(head.network), law, steps, head.token_dim, head.num_tokens, stop is not None)
