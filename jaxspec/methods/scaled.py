"""Jacobi decoding with a scaled acceptance ratio: the naive relaxation, a baseline."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.types import AcceptFn, PyTree
from jaxspec.methods.method import LARGEST, BuildContext, option
from jaxspec.methods.sjd import JacobiMethod
from jaxspec.rules.scaled_rule import ScaledRule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled(JacobiMethod):
  """Jacobi decoding that accepts a draft x with probability ``min(1, factor p(x) / q(x))``; lossy above a factor of 1."""

  factor: float = option(2.0, "Largest factor on an acceptance ratio.", ge=1, le=LARGEST)

  name: ClassVar[str] = "scaled"
  title: ClassVar[str] = "Jacobi decoding with a scaled ratio"
  source: ClassVar[str] = 'So et al. 2025, arXiv 2508.07747, main table, row "amplify"'

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """See `JacobiMethod.rule`."""
    return ScaledRule(self.factor), ()
