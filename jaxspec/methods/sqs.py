"""Sparse quantize-and-sample decoding: drafts from distributions within a bit budget (K-SQS and C-SQS)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from jaxspec.codecs.bit_costs import CODINGS
from jaxspec.codecs.codec import SparseCodec, conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import Conformal, ConformalParams
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.core.network import Network
from jaxspec.core.options import MAX_PIPELINE
from jaxspec.core.state import SpecParams
from jaxspec.core.types import AcceptFn, PyTree
from jaxspec.drafters.sqs_drafter import ON_EMPTY, SqsDrafter, SqsParams
from jaxspec.methods.auto_length import in_plain_rounds
from jaxspec.methods.common import Bonus, ExactTest, check_chain, draft_side, of_ids, refuse_audit, target_side
from jaxspec.methods.method import SAME_FAMILY, BuildContext, DraftingMethod, Parts, need, option
from jaxspec.rules.block_rule import block_sparse
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.verifiers.target import no_feedback, target_logits

SPARSIFIERS = ("conformal", "topk")
FIXED, DELAY = LENGTHS = ("fixed", "delay")
# Draft passes that an exchange takes in the mean, for lengths before the first measured exchange and in one process.
EXCHANGE_PASSES = 8
MOST_CHOSEN = 256  # the program that chooses a length grows with the longest one
# Defaults: K of K-SQS, and the largest support of C-SQS.
_SUPPORT = {"topk": 32, "conformal": 256}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sqs(ExactTest, Bonus, DraftingMethod):
  """Sparse quantize-and-sample decoding under a bit budget; exact.

  Each draft is drawn from a sparse distribution with integer weights, which is also sent and used for verification. The
  output therefore follows the target's distribution for every support and threshold. A round ends when the next distribution
  would exceed ``budget`` bits, or after ``max_drafts`` drafts. ``topk`` keeps a fixed number of tokens (K-SQS);
  ``conformal`` keeps those above a threshold that is steered to a dropped mass of ``alpha`` (C-SQS). With
  ``verify="block"`` the drafts of a round are tested together (Sun et al. 2024, arXiv 2403.10444). Over a network, an edge
  with a ``pipeline`` above 1 sends drafts before the replies to earlier ones; the tokens are those of an edge that waits.
  With ``length="delay"`` a round ends after the number of drafts with the most expected tokens per second, by the verdicts
  and the measured times of earlier rounds.
  """

  sparsifier: str = option("conformal", "Which tokens of a distribution are sent.", choices=SPARSIFIERS)
  support: int | None = option(None, "Tokens of a distribution that topk keeps; the most for conformal.", ge=1)
  ell: int = option(100, "Denominator of the distributions that are sent.", ge=1, lt=1 << 16)
  budget: float = option(5000.0, "Bits that the distributions of one round may cost.", ge=0, infinite=True)
  max_drafts: int = option(16, "Most drafts of a round, whatever the budget.", ge=1)
  length: str = option("fixed", "Most drafts of a round: max_drafts, or chosen by acceptance and delay.", choices=LENGTHS)
  beta1: float = option(0.01, "First threshold of conformal; at least -eta (1 - alpha).")
  eta: float = option(0.001, "Step size of the threshold; 0 keeps it.", ge=0)
  alpha: float = option(0.0005, "Probability to be dropped, which the threshold is steered to.", ge=0, lt=1)
  policy: str = option("text", "Steps of the threshold that stay after a rejection.", choices=Conformal.POLICIES)
  empty_error: str = option("one", "Error recorded when no token exceeds the threshold.", choices=Conformal.EMPTY_ERRORS)
  on_empty: str = option("cloud_token", "Action when no distribution fits into the budget.", choices=ON_EMPTY)
  pipeline: int = option(1, "Drafts of a row that may wait for their replies.", ge=1, le=MAX_PIPELINE)
  coding: str = option("paper", "How a distribution becomes bits.", choices=CODINGS)

  name: ClassVar[str] = "sqs"
  title: ClassVar[str] = "sparse quantize-and-sample decoding"
  source: ClassVar[str] = "Bhattacharjee et al. 2025, arXiv 2510.09942, Algorithms 1 and 2"
  exact: ClassVar[bool] = True
  draft_family: ClassVar[str | None] = SAME_FAMILY

  def check(self) -> None:
    """See `Method.check`; the bound on the dropped mass requires a first threshold that is not too low."""
    if self.beta1 < -self.eta * (1 - self.alpha):
      raise ValueError(f"Must have a finite beta1 of at least -eta (1 - alpha), we instead got {self.beta1}")
    if self.verify == "block" and self.coding == "lazy":
      raise ValueError("Must have verify token with coding lazy, which sends one distribution, we instead got block")
    if self.length == DELAY and self.max_drafts > MOST_CHOSEN:
      raise ValueError(f"Must have max_drafts of at most {MOST_CHOSEN} with length delay, we instead got {self.max_drafts}")
    if self.pipeline > 1 and self.bonus:
      raise ValueError(f"Must have no bonus token (--no-bonus) with a pipeline of {self.pipeline}, we instead got one")
    if self.pipeline > 1 and self.coding == "lazy":
      raise ValueError(
        f"Must have a coding that sends distributions with a pipeline of {self.pipeline}, we instead got lazy"
      )

  def drafts_per_round(self) -> int:
    """Largest number of drafts of a round."""
    return self.max_drafts

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("max_drafts", self.max_drafts, num_tokens, whole=True)

  def codec(self, vocab_size: int) -> SparseCodec:
    """Codec that sparsifies, quantizes and prices distributions on ``vocab_size`` tokens; messages use it too.

    Raises:
      ValueError: for a support that the vocabulary or the coding does not allow.
    """
    support = self.support
    if support is None:
      support = vocab_size if self.coding == "dense" else min(_SUPPORT[self.sparsifier], vocab_size)
    kwargs = dict(ell=self.ell, coding=self.coding)
    if self.sparsifier == "topk":
      return topk_lattice(vocab_size, support, **kwargs)
    return conformal_lattice(vocab_size, support, policy=self.policy, empty_error=self.empty_error, **kwargs)

  def resolved(self, context: BuildContext) -> Self:
    """See `Method.resolved`; fills in ``support``."""
    vocab_size = need(context.space.vocab_size, "vocab_size", self.name)
    return dataclasses.replace(self, support=self.codec(vocab_size).max_support)

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """See `ExactTest.rule`; the rules read distributions on few tokens."""
    return (block_sparse if self.verify == "block" else lossless_sparse), ()

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    of_ids(self, context)
    fns, drafting = draft_side(self, draft, context)
    codec = self.codec(need(context.space.vocab_size, "vocab_size", self.name))
    refuse_audit(self, context, "whose drafts do not come with logits")
    if self.sparsifier == "topk":
      settings = TopKParams(jnp.int32(codec.max_support))
    else:
      settings = ConformalParams(*(jnp.float32(value) for value in (self.beta1, self.eta, self.alpha)))
    chosen: dict[str, Any] = dict(chooses_length=True, bonus=self.bonus) if self.length == DELAY else {}
    chosen["block"] = self.verify == "block"
    drafter = SqsDrafter(fns, codec, window=self.max_drafts, warp=context.warp(), on_empty=self.on_empty, **chosen)
    # If the distribution of a rejected draft is sent on demand, the target's own is stored until then.
    feedback_fn = target_logits if self.coding == "lazy" else no_feedback
    rule, tables = self.rule(context)
    side, verifier = target_side(target, rule, context, tables=tables, feedback_fn=feedback_fn, bonus=self.bonus)
    params = SqsParams(drafting, settings, jnp.float32(self.budget))
    if drafter.chooses_length:
      passes = [drafts + 1.0 + EXCHANGE_PASSES for drafts in range(self.max_drafts + 1)]
      params = params._replace(times=jnp.asarray(in_plain_rounds(passes)))
    return Parts(SpecParams(params, side), drafter, verifier)
