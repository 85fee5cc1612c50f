"""Shared parts of methods: the target's side, relaxed rules by neighbouring codes, and common checks."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

import jax.numpy as jnp

from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.core.network import Network
from jaxspec.core.types import AcceptFn, Array, ModelFns, PyTree, Verifier
from jaxspec.methods.method import LARGEST, BuildContext, Method, need, option
from jaxspec.rules.audited import audited
from jaxspec.rules.block_rule import block
from jaxspec.rules.distances import neighbour_table
from jaxspec.rules.lantern_rule import LanternRule, lantern_plus_plus
from jaxspec.rules.lossless import lossless
from jaxspec.rules.traced_numbers import traced_numbers
from jaxspec.sampling import ContinuousSampling, DenoisingSampling, SamplingConfig, ScaleSampling
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.verifiers.target import FeedbackFn, TargetVerifier, no_feedback

VERIFY = ("token", "block")

Settings = TypeVar("Settings", SamplingConfig, ContinuousSampling, ScaleSampling, DenoisingSampling)


def of_ids(method: Method, context: BuildContext) -> SamplingConfig:
  """The sampling settings of a method for discrete tokens.

  Raises:
    ValueError: if the settings are those of other tokens.
  """
  return _settings(method, context, SamplingConfig)


def of_continuous(method: Method, context: BuildContext) -> ContinuousSampling:
  """The sampling settings of a method for continuous tokens.

  Raises:
    ValueError: if the settings are those of other tokens.
  """
  return _settings(method, context, ContinuousSampling)


def of_scales(method: Method, context: BuildContext) -> ScaleSampling:
  """The sampling settings of a method for scales.

  Raises:
    ValueError: if the settings are those of other tokens, or an option is not available for scales.
  """
  settings = _settings(method, context, ScaleSampling)
  refuse_audit(method, context, "whose scales have no single table of probabilities")
  return settings


def of_denoising(method: Method, context: BuildContext) -> DenoisingSampling:
  """The sampling settings of a method for denoising steps.

  Raises:
    ValueError: if the settings are those of other tokens, or an option is not available for denoising steps.
  """
  settings = _settings(method, context, DenoisingSampling)
  refuse_audit(method, context, "whose denoising steps have no table of probabilities")
  return settings


def target_side(
  target: Network,
  rule: AcceptFn,
  context: BuildContext,
  *,
  tables: PyTree = (),
  features: str = "both",
  levels: tuple[int, ...] = (),
  feedback_fn: FeedbackFn = no_feedback,
  widths: tuple[int, ...] = (),
  bonus: bool = True,
) -> tuple[ModelParams, Verifier]:
  """The target's parameters, and the verifier that scores a whole draft in one pass.

  Args:
    rule: the acceptance rule, and ``tables`` its arrays; the context decides whether it is audited.
    features: features of a guided target, see `jaxspec.models.guidance.guided`.
    levels: layers below the last whose features are fed back too, see `jaxspec.models.feature_levels`.
    feedback_fn: feedback to the drafter, see `jaxspec.TargetVerifier`.
    widths: inputs of narrower passes, see `jaxspec.TargetVerifier`.
    bonus: also draw a token after full acceptance.
  """
  sampling: SamplingConfig = context.sampling
  fns, side = sampling.side(target, features=features, levels=levels)
  rule, tables = traced_numbers(audited(rule) if context.audit else rule, tables)
  verifier = TargetVerifier(fns, rule, warp=context.warp(), feedback_fn=feedback_fn, widths=widths, bonus=bonus)
  return side._replace(rule=tables), verifier


def draft_side(method: Method, draft: Network | None, context: BuildContext) -> tuple[ModelFns, ModelParams]:
  """The draft network's functions and parameters, guided like the target unless it was trained on guided targets.

  Raises:
    ValueError: without a draft network.
  """
  return context.sampling.side(need(draft, "a draft network", method.name))


def refuse_audit(method: Method, context: BuildContext, why: str) -> None:
  """Raises a ValueError if an audit is requested; ``why`` says why it is impossible."""
  if context.audit:
    raise ValueError(f"Must have no audit with method {method.name}, {why}, we instead got audit=True")


def code_vectors(method: Method, context: BuildContext) -> Array:
  """``[V, C]``, the rows of the image tokenizer's codebook.

  Raises:
    ValueError: without a codebook.
  """
  return need(context.space.codebook, "the codebook of the image tokenizer", method.name)()


def check_chain(name: str, length: int, num_tokens: int, *, whole: bool = False) -> None:
  """Raises a ValueError if a chain of ``length`` drafts (the option ``name``) does not fit into a row of ``num_tokens``.

  Args:
    whole: whether a chain may have the length of the row.
  """
  if length > num_tokens or (length == num_tokens and not whole):
    bound = "of at most" if whole else "below"
    raise ValueError(f"Must have {name} {bound} the {num_tokens} tokens of a row, we instead got {length}")


def prefix_tokens(share: float, num_tokens: int) -> int:
  """Number of tokens that the target draws alone at one end of a row: ``share`` of it, rounded down."""
  return math.floor(share * num_tokens + 1e-9)


def threshold_of(method: Any) -> Array:
  """The required ``tau`` of a method without calibrated thresholds; ``[]`` float32.

  Raises:
    ValueError: without one.
  """
  if method.tau is None:
    raise ValueError(
      f"Must have tau for method {method.name}, whose edges have no calibrated thresholds, we instead got none"
    )
  return jnp.float32(method.tau)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactTest:
  """The option of exact methods whose drafts are chains: each draft is tested alone, or all of a round together.

  ``block`` accepts more drafts of a chain in the mean (`jaxspec.rules.block_rule`).
  """

  verify: str = option("token", "Whether drafts are tested one by one (token) or together (block).", choices=VERIFY)

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """The acceptance rule and its arrays."""
    return (block if self.verify == "block" else lossless), ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bonus:
  """The option of methods whose rounds may end with a fully accepted chain of drafts."""

  bonus: bool = option(True, "Also draw a token after full acceptance.")

  def draws_bonus(self) -> bool:
    """See `jaxspec.methods.speculative.ChainMethod`."""
    return self.bonus

  def tokens_per_pass(self: Any, acceptance: float, num_tokens: int) -> float:
    """See `Method.tokens_per_pass`."""
    drafts = self.longest_path()
    return expected_tokens(acceptance, drafts if self.bonus else max(drafts - 1, 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbours:
  """The options of LANTERN++: a draft borrows the probability of its nearest codes, up to a factor.

  ``delta`` is the bound of LANTERN (arXiv 2410.03355), which takes the factor's place: the most probability that a draft
  borrows. It does not bound the bias of a token (`jaxspec.rules.lantern_rule`).
  """

  num_neighbours: int = option(10, "Nearest codes that lend their probability (k of LANTERN++).", ge=1)
  factor: float = option(2.0, "Largest factor on an acceptance ratio.", ge=1, le=LARGEST)
  delta: float | None = option(None, "LANTERN's bound in place of the factor: most borrowed probability.", ge=0, le=1)

  def lantern(self: Any, context: BuildContext) -> tuple[LanternRule, Array]:
    """The rule and its table of nearest codes.

    Raises:
      ValueError: without a codebook, or if it has too few codes.
    """
    table = neighbour_table(code_vectors(self, context), self.num_neighbours, normalise=context.space.unit_codes)
    if self.delta is not None:
      return LanternRule(self.num_neighbours, self.delta), table
    return lantern_plus_plus(self.num_neighbours, self.factor), table


def _settings(method: Method, context: BuildContext, wanted: type[Settings]) -> Settings:
  """The settings of a context, which must be of this kind."""
  found = context.sampling
  if not isinstance(found, wanted):
    raise ValueError(
      f"Must have a {wanted.__name__} for method {method.name}, which draws {wanted.tokens}; "
      f"we instead got {type(found).__name__}"
    )
  return found
