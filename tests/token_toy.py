"""Continuous tokens with a distribution in closed form, and tiny networks of continuous tokens, shared by the tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import jaxspec
from jaxspec.core.types import ModelFns, ModelOutput
from jaxspec.diffusion.chain import StepDistribution
from jaxspec.drafters.continuous_model import ContinuousModelDrafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.continuous_fns import ContinuousFns
from jaxspec.verifiers.continuous_target import ContinuousVerifier
from tests.helpers import side


def _apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
  """The features are the previous token."""
  if isinstance(inputs, ClassLabels):
    return ModelOutput(None, jnp.zeros((inputs.labels.shape[0], 1, 1))), cache
  features = inputs
  if logits_at is not None:
    features = jax.vmap(lambda row, at: row[at][None])(inputs, jnp.broadcast_to(logits_at, inputs.shape[:1]))
  return ModelOutput(None, features), cache


def _distribution(params, z, slot):
  """Step 1: ``N(shift, spread^2)``; step 0: ``N(x_1 + coef z, last^2)``."""

  def distribution(step, x):
    first = jnp.broadcast_to(params["shift"] + 0.0 * x, x.shape)
    before = z.reshape((1,) * (x.ndim - z.ndim) + z.shape)
    mean = jnp.where(step == 0, x + params["coef"] * before, first)
    spread = jnp.where(step == 0, params["last"], params["spread"])
    return StepDistribution(mean, 2 * jnp.log(jnp.broadcast_to(spread, x.shape)), mean)

  return distribution


TWO_STEPS = ContinuousFns(
  ModelFns(init=lambda key: {}, init_cache=lambda batch, max_len: (), apply=_apply, prefix_len=lambda condition: 1),
  _distribution,
  num_steps=2,
  token_dim=1,
  num_tokens=64,
  noisy_end=True,
)


def distribution_params(spread: float, shift: float = 0.0, coef: float = 0.0, last: float = 1.0):
  values = dict(spread=spread, shift=shift, coef=coef, last=last)
  return side({name: jnp.float32(value) for name, value in values.items()})


def decode(draft, target, rule, *, rows: int, length: int, window: int, key=None, **kwargs):
  """Tokens of many rows at once: ``(DecodeResult, [rows, length])``."""
  key = jax.random.key(0) if key is None else key
  out = jaxspec.speculate(
    jaxspec.SpecParams(draft, target), key, ClassLabels(jnp.zeros((rows,), jnp.int32)),
    drafter=ContinuousModelDrafter(TWO_STEPS, rule, window=window), verifier=ContinuousVerifier(TWO_STEPS, rule),
    max_len=length, **kwargs,
  )  # fmt: skip
  return out, out.tokens[..., 0]
