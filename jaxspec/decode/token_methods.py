"""From networks of vector tokens and settings to what a decode needs: continuous speculative decoding, published and exact.

`jaxspec.decode.assemble` does the same for ids.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from jaxspec import orders, rng
from jaxspec.decode.state import SpecParams
from jaxspec.decode.unmasking import GuidanceFn, linear_guidance
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.drafters.token_model import token_model
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.models.guidance import Guided
from jaxspec.models.sampling import ModelParams, sampling_params
from jaxspec.models.token_fns import HeadFns, TokenFns, diffusion_tokens, guided_tokens
from jaxspec.types import Drafter, Key, Params, Verifier
from jaxspec.verifiers.path_ratio import PathRatio
from jaxspec.verifiers.token_rule import TokenRule
from jaxspec.verifiers.token_target import token_target


@dataclasses.dataclass(frozen=True)
class TokenSampling:
  """How vector tokens are drawn; both networks and every method that is to be compared share it.

  Attributes:
    num_steps: diffusion steps, or a respacing as in `jaxspec.diffusion.schedule.kept_steps`.
    stop: the diffusion step, noise included, behind which a token is done; None is MAR's end in a mean. The exact rule
      needs a number (`jaxspec.diffusion.ddpm.law_fn`).
    temperature: factor of the noise of every step but the first state.
    scale: guidance scale; 1 switches guidance off.
    guidance_fn: how it depends on the token.
  """

  num_steps: int | str = 100
  stop: int | None = None
  temperature: float = 1.0
  scale: float = 1.0
  guidance_fn: GuidanceFn = linear_guidance

  def __post_init__(self):
    steps = diffusion_tables(str(self.num_steps)).num_steps
    if steps < 2:
      raise ValueError(f"Must have at least 2 diffusion steps, we instead got {self.num_steps}")
    if self.stop is not None and not 0 <= self.stop < steps - 1:
      raise ValueError(f"Must have stop from 0 to {steps - 2}, we instead got {self.stop}")
    if not (math.isfinite(self.temperature) and self.temperature > 0):
      raise ValueError(f"Must have a finite temperature above 0, we instead got {self.temperature}")
    if not (math.isfinite(self.scale) and self.scale >= 1):
      raise ValueError(f"Must have a finite cfg_scale of at least 1 (1 is no guidance), we instead got {self.scale}")

  @property
  def is_guided(self) -> bool:
    return self.scale > 1

  def bind(self, head: HeadFns) -> TokenFns:
    """The network with the chain of these settings."""
    kwargs = dict(num_steps=self.num_steps, stop=self.stop)
    return guided_tokens(head, self.guidance_fn, **kwargs) if self.is_guided else diffusion_tokens(head, **kwargs)

  def side(self, params: Params) -> ModelParams:
    """Parameters of one side; what is a number here is traced."""
    weights = Guided(params, jnp.float32(self.scale)) if self.is_guided else params
    return ModelParams(weights, sampling_params(self.temperature))


def nearest_stop(num_steps: int | str, trained_steps: int | str, trained_stop: int) -> int:
  """The ``stop`` of another respacing whose tokens carry most nearly the noise that networks were trained to read."""
  kept = diffusion_tables(str(num_steps)).alphas_cumprod_prev[:-1]
  wanted = diffusion_tables(str(trained_steps)).alphas_cumprod_prev[trained_stop]
  return int(np.argmin(np.abs(np.asarray(kept) ** 0.5 - wanted**0.5)))


def assemble_tokens(
  target: HeadFns,
  target_params: Params,
  draft: HeadFns | None = None,
  draft_params: Params | None = None,
  *,
  sampling: TokenSampling,
  rule: TokenRule | None = None,
  gamma: int = 8,
) -> tuple[SpecParams, Drafter, Verifier]:
  """Binds a target and a draft into what `jaxspec.speculate` and `jaxspec.autoregress` take.

  Args:
    target: the target network (`causal_token_fns`, or `masked_network` of MAR); ``target_params`` its weights.
    draft: the draft network; None for plain decoding.
    rule: `PathRatio` (as published, the default) or `PathCoupling` (exact).
    gamma: tokens drafted per round.
  Returns:
    ``(params, drafter, verifier)``; without a draft the drafter is `NO_DRAFTER`.
  Raises:
    ValueError: if the networks do not fit each other, or the rule cannot judge such chains.

  Example:
    >>> import jax, jax.numpy as jnp, jaxspec
    >>> from jaxspec.models.causal_tokens import CausalTokensConfig, causal_token_fns
    >>> from jaxspec.verifiers.path_coupling import PathCoupling
    >>> fns = causal_token_fns(CausalTokensConfig(num_tokens=4, latent_channels=2, num_classes=3, dim=8, num_layers=1,
    ...   num_heads=2, diffloss_width=8, diffloss_depth=1))
    >>> weights = fns.init(jax.random.key(0))
    >>> params, drafter, verifier = assemble_tokens(fns, weights, fns, weights, gamma=2, rule=PathCoupling(),
    ...   sampling=TokenSampling(num_steps=5, stop=1))
    >>> out = jaxspec.speculate(params, jax.random.key(1), ClassLabels(jnp.array([0, 2])), drafter=drafter,
    ...   verifier=verifier, max_len=4)
    >>> out.tokens.shape, out.lengths.tolist()
    ((2, 4, 2), [4, 4])
  """
  if draft is not None:
    for name in ("num_tokens", "token_dim"):
      if (ours := getattr(draft, name)) != (theirs := getattr(target, name)):
        raise ValueError(f"Must have a draft with {name} {theirs} as its target, we instead got {ours}")
  rule = rule or PathRatio()
  verifier = token_target(sampling.bind(target), rule)
  host = sampling.side(target_params)
  if draft is None:
    return SpecParams((), host), NO_DRAFTER, verifier
  drafter = token_model(sampling.bind(draft), rule, window=gamma)
  return SpecParams(sampling.side(draft_params), host), drafter, verifier


def prefilled(fraction: float, num_tokens: int) -> int:
  """Tokens ``lead`` of `jaxspec.speculate` for a prefilled share (arXiv 2411.11925, section 4.3: 0, 5 and 15 %).

  Raises:
    ValueError: for a share outside [0, 1].
  """
  if not 0 <= fraction <= 1:
    raise ValueError(f"Must have prefill from 0 to 1, we instead got {fraction}")
  return round(fraction * num_tokens)


def with_orders(keys: Key, condition: ClassLabels, num_tokens: int) -> OrderedLabels:
  """Class labels with one random generation order per row, from the ``[B]`` row keys of the decode (or one key)."""
  keys = rng.row_keys(keys, condition.labels.shape[0])
  return OrderedLabels(condition.labels, orders.random_order(keys, num_tokens))
