"""MAR's own decoding: the target draws several tokens at a time."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.types import Key, PyTree
from jaxspec.methods.common import of_continuous, refuse_audit
from jaxspec.methods.masked_decode import generate_masked
from jaxspec.methods.method import CONTINUOUS, BuildContext, Expected, Method, Parts, option
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.models.guidance import Guided
from jaxspec.models.mar.mar import MARFns
from jaxspec.sampling.unmasking import GuidanceFn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parallel(Method):
  """Masked generation of continuous tokens: in each of ``num_iter`` iterations several positions are drawn at once.

  Tokens of one iteration are independent given those before it, so the distribution differs from plain decoding, unless
  there are as many iterations as tokens. For masked networks (MAR) only.
  """

  num_iter: int = option(64, "Iterations of parallel decoding.", ge=1)

  name: ClassVar[str] = "parallel"
  title: ClassVar[str] = "the target alone, several tokens at a time"
  source: ClassVar[str] = "Li et al. 2024, arXiv 2406.11838, section 3"
  tokens: ClassVar[str] = CONTINUOUS

  def expected(self, acceptance: float, num_tokens: int) -> Expected:
    """The mean number of tokens of an iteration; there are no drafts."""
    return Expected(num_tokens / min(self.num_iter, num_tokens))

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    if self.num_iter > num_tokens:
      raise ValueError(f"Must have num_iter from 1 to {num_tokens}, we instead got {self.num_iter}")

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` is not read, and conditions are `OrderedLabels`."""
    sampling = of_continuous(self, context)
    refuse_audit(self, context, "whose continuous tokens have no table of probabilities")
    if not isinstance(target.fns, MARFns):
      raise ValueError(
        f"Must have a masked network (MAR) for method parallel, we instead got a {type(target.fns).__name__}: "
        f"others have a token per pass"
      )
    if sampling.is_refined:
      raise ValueError("Must have no refine with method parallel, we instead got it: steps are refined by causal networks")
    self.check_length(target.fns.num_tokens)
    decode = ParallelDecode(target.fns, self.num_iter, str(sampling.steps), sampling.stop, sampling.guidance_fn)
    return Parts(SpecParams((), sampling.side(target)), None, None, decode=decode)


@dataclasses.dataclass(frozen=True)
class ParallelDecode:
  """The decode of `Parallel`; a `jaxspec.methods.method.DecodeFn` for `OrderedLabels`."""

  model: MARFns
  num_iter: int
  steps: str
  stop: int | None
  guidance_fn: GuidanceFn
  window: ClassVar[int] = 0

  def __call__(
    self, params: SpecParams, keys: Key, condition: PyTree, max_len: int, end_token: int | tuple[int, ...] | None
  ) -> DecodeResult:
    """Draws whole rows in their generation order.

    Raises:
      ValueError: for a part of a row, an end token, or labels without an order.
    """
    if max_len != self.model.num_tokens:
      raise ValueError(
        f"Must have max_len {self.model.num_tokens}, whole rows, for parallel decoding, we instead got {max_len}"
      )
    if end_token not in (None, ()):
      raise ValueError(f"Must have no end_token for continuous tokens, we instead got {end_token}")
    if not isinstance(condition, OrderedLabels):
      raise ValueError(f"Must have OrderedLabels for parallel decoding, we instead got {type(condition).__name__}")
    side = params.target
    weights, scale = (side.model.model, side.model.scale) if isinstance(side.model, Guided) else (side.model, None)
    return generate_masked(
      self.model, weights, keys, ClassLabels(condition.labels), num_iter=self.num_iter, num_steps=self.steps,
      temperature=side.sampling.temperature, scale=scale, guidance_fn=self.guidance_fn, order=jnp.asarray(condition.order),
      stop=self.stop,
    )  # fmt: skip
