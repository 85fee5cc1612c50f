"""Naive lossy rules: a scaled acceptance ratio, and no test at all.

`ScaledRule` multiplies the ratio by a constant. It is the "amplify" baseline in the tables of GSD (So et al. 2025, arXiv
2508.07747); COOL-SD has the same a = min(1, omega p / q) with the optimal residual. The rule ignores similarity of tokens:
the additional acceptance goes to tokens that the draft model overrates.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Self

import jax.numpy as jnp

from jaxspec.core.types import Array, PyTree
from jaxspec.rules.chain_rule import ChainRule, ratio
from jaxspec.sampling.residual import at


@dataclasses.dataclass(frozen=True)
class ScaledRule(ChainRule):
  """Accepts x with probability min(1, factor * p(x) / q(x)); factor 1 is the lossless rule.

  For factors of at least 1 both residuals are the same. A factor below 1 rejects more than the lossless rule. It is lossless
  with the optimal residual, but not with the published one.

  Attributes:
    factor: multiplier of the ratio.
  Raises:
    ValueError: for a factor that is not finite and positive.
  """

  factor: float = 1.0

  def __post_init__(self):
    super().__post_init__()
    if not (math.isfinite(self.factor) and self.factor > 0):
      raise ValueError(f"Must have a finite factor above 0, we instead got {self.factor}")

  @property
  def numbers(self) -> tuple[str, ...]:
    """See `ChainRule`; the optimal residual depends on whether the factor is below 1."""
    return ("factor",) if self.residual == "paper" else ()

  def without_numbers(self) -> Self:
    """See `ChainRule`."""
    return dataclasses.replace(self, factor=1.0)

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`."""
    return self.factor >= 1

  def accept_prob(self, tables: PyTree, tokens: Array, p: Array, q: Array) -> Array:
    return ratio(self.factor * at(p, tokens), at(q, tokens))

  def accept_all(self, tables: PyTree, p: Array, q: Array) -> Array:
    return ratio(self.factor * p, q)


@dataclasses.dataclass(frozen=True)
class AlwaysRule(ChainRule):
  """Accepts every draft: the upper limit of speed. The output follows the draft model's own distribution."""

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`."""
    return True

  def accept_prob(self, tables: PyTree, tokens: Array, p: Array, q: Array) -> Array:
    return jnp.ones(tokens.shape, p.dtype)

  def accept_all(self, tables: PyTree, p: Array, q: Array) -> Array:
    return jnp.ones_like(p)


always = AlwaysRule()
