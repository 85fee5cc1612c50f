"""CIAR: the edge accepts certain tokens locally, and the cloud verifies the others."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from jaxspec.codecs.codec import SparseCodec, topk_lattice
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.core.types import AcceptFn, PyTree
from jaxspec.drafters.ciar_drafter import CiarDrafter, GatedParams
from jaxspec.drafters.ciar_draws import PICKS, DenseDraw, SparseDraw, WindowDraw
from jaxspec.intervals.gate import Gate, conformal_gate, constant_gate, rate_params
from jaxspec.intervals.heads import COMBINATIONS
from jaxspec.intervals.scores import make_score
from jaxspec.methods.common import Neighbours, check_chain, draft_side, of_ids, prefix_tokens, refuse_audit
from jaxspec.methods.method import BuildContext, DraftingMethod, Expected, Parts, need, option
from jaxspec.models.guidance import Guided
from jaxspec.models.heads.interval_features import INJECT, IntervalFeaturesConfig, IntervalFeaturesFns, interval_features_fns
from jaxspec.rules.dense_view import DenseView
from jaxspec.rules.greedy import greedy
from jaxspec.rules.lossless import lossless
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.verifiers.ciar_target import CiarVerifier, num_catch_ups

VERIFY = ("exact", "lantern", "greedy")
DRAWS = ("auto", "sparse", "dense")
# Quantization of sent distributions: the likeliest tokens, with denominator 1000.
DISTRIBUTION_SUPPORT, DISTRIBUTION_PARTS = 32, 1000
DEFAULT_RATE = 0.3
CALIBRATED_SCORE = "interval"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ciar(Neighbours, DraftingMethod):
  """Decoding on the edge, with the cloud where the edge is uncertain; lossy.

  The edge draws a token from its own distribution and scores its uncertainty U. While U is at most a threshold the token is
  accepted locally and follows the edge's distribution. The first token above it begins a window of up to ``gamma`` drafts.
  The cloud verifies the window and adds one token of its own.

  The threshold is ``tau``. With ``cloud_rate`` it adapts online to that rate of cloud calls per token. By default it is the
  draft network's calibrated threshold (``jaxspec calibrate``) for a rate of 0.3.

  The paper does not name the rule that judges a window. ``exact`` is lossless for the window, ``lantern`` is LANTERN++,
  ``greedy`` accepts a draft that is the cloud's arg-max and needs no proposal. For a comparison of rules, ``draw`` fixes the
  distribution of the drafts.
  """

  gamma: int = option(4, "Most drafts of an exchange.", ge=1)
  max_run: int = option(16, "Most tokens that the edge accepts locally in one round.", ge=1)
  tau: float | None = option(None, "Largest uncertainty of a token that the edge accepts locally.", infinite=True)
  cloud_rate: float | None = option(None, "Target rate of cloud calls; the threshold adapts online.", ge=0, le=1)
  target_prefix: float = option(0.0, "Leading share of tokens that the target draws alone.", ge=0, le=1)
  verify: str = option("exact", "How the cloud judges the drafts that it verifies.", choices=VERIFY)
  pick: str = option("sample", "How the edge draws tokens; argmax: the likeliest, verified as certain.", choices=PICKS)
  draw: str = option(
    "auto", "Window drafts from what a link can send (sparse), or from all logits (dense); auto: sparse for exact.",
    choices=DRAWS,
  )  # fmt: skip
  score: str = option(
    "interval", "Uncertainty: interval, entropy, max_prob, ..., merged:DISTANCE:SCORE; settings follow colons."
  )
  combination: str | None = option(
    None, "How several heads become one distribution; none: as the draft network says.", choices=COMBINATIONS
  )
  early_close: bool = option(False, "End a window before its first certain token.")
  inject: str = option("none", "Tokens that come with interval features.", choices=INJECT)

  name: ClassVar[str] = "ciar"
  title: ClassVar[str] = "tokens accepted locally on an edge"
  source: ClassVar[str] = "arXiv 2603.25463, Algorithm 1"
  draft_family: ClassVar[str | None] = "inter_head"

  @classmethod
  def published(cls, **options: Any) -> Self:
    """The published settings, all together: the paper's scaling of the bounds (eq. 29, 30), a prefix of 0.06, and interval
    features with every token that the edge drew; ``options`` override that.

    Guidance of both ends and trained features are those of the draft network. Its calibrated thresholds are of unscaled
    bounds, so ``tau`` or ``cloud_rate`` is needed. Not reproduced: the second cloud pass of Algorithm 1 (line 26), which
    draws with the features after line 24 has verified without them; here one pass does both.
    """
    settings: dict[str, Any] = {"score": "interval:paper", "target_prefix": 0.06, "inject": "both"}
    return cls(**(settings | options))

  def check(self) -> None:
    """See `Method.check`."""
    if self.tau is not None and self.cloud_rate is not None:
      raise ValueError(f"Must have tau or cloud_rate, we instead got both ({self.tau} and {self.cloud_rate})")
    if self.cloud_rate is not None and self.cloud_rate <= self.target_prefix:
      raise ValueError(
        f"Must have cloud_rate above target_prefix, {self.target_prefix:g}, we instead got {self.cloud_rate:g}"
      )
    if self.tau is None and self.cloud_rate is None and DEFAULT_RATE <= self.target_prefix < 1:
      raise ValueError(f"Must have tau or cloud_rate with a target_prefix from {DEFAULT_RATE:g} on, we instead got neither")
    if self.pick == "argmax" and self.draw == "sparse":
      raise ValueError("Must have draw dense or auto with pick argmax, we instead got sparse")
    make_score(self.score, self.combination or "ensemble")

  def drafts_per_round(self) -> int:
    """The longest run of local tokens, plus a window."""
    return self.max_run + self.gamma

  def longest_path(self) -> int:
    """The window; local tokens are not judged."""
    return self.gamma

  def expected(self, acceptance: float, num_tokens: int, calls: float | None = None) -> Expected:
    """One cloud call per ``1 / calls`` tokens (``cloud_rate``, `DEFAULT_RATE`), of which a window commits some.

    The edge takes a pass for each local token and for each draft of the window. A negative ``tau`` accepts none locally.
    The cloud reads local tokens and window at the narrowest width that fits; the number of local tokens is geometric.
    """
    window = expected_tokens(acceptance, self.gamma)
    if calls is not None and not 0 < calls <= 1 / window:
      most = f"{1 / window:.3g} with {self.gamma} drafts and acceptance {acceptance:g}"
      raise ValueError(f"Must have calls above 0, at most {most}, we instead got {calls:g}")
    rate = calls or self.cloud_rate or DEFAULT_RATE
    tokens = window if calls is None and self.tau is not None and self.tau < 0 else max(1 / rate, window)
    local = tokens - window
    return Expected(tokens, local + self.gamma, self._inputs(local, num_tokens))

  def _inputs(self, local: float, num_tokens: int) -> float:
    """Expected tokens that the cloud reads for an exchange after a geometric number of local tokens of this mean."""
    widths = pass_widths(self.gamma)
    left, total = 1.0, 0.0
    for unread in range(num_tokens):
      here = left / (1 + local) if unread < num_tokens - 1 else left
      caught_up = num_catch_ups(unread, self.gamma, widths[-1])
      needed = unread - widths[-1] * caught_up + self.gamma + 1
      total += here * (widths[-1] * caught_up + next(width for width in widths if width >= needed))
      left -= here
    return total

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("gamma", self.gamma, num_tokens, whole=True)

  @property
  def draws_sparse(self) -> bool:
    """Whether window drafts are drawn from the quantized distributions that a link can send."""
    return self.verify == "exact" and self.pick == "sample" if self.draw == "auto" else self.draw == "sparse"

  def codec(self, vocab_size: int) -> SparseCodec | None:
    """Quantization of the distributions of a window, for drawing and sending; None: full distributions."""
    return distribution_codec(vocab_size) if self.draws_sparse else None

  def resolved(self, context: BuildContext) -> Self:
    """See `Method.resolved`; resolves ``draw``."""
    return dataclasses.replace(self, draw="sparse" if self.draws_sparse else "dense")

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """The rule for windows, and its arrays."""
    if self.verify == "greedy":
      return greedy, ()
    if self.verify == "exact":
      return lossless_sparse if self.draws_sparse else lossless, ()
    rule, table = self.lantern(context)
    return DenseView(rule) if self.draws_sparse else rule, table

  def gate(self, calibration: dict[str, Any] | None, prefix: float) -> tuple[Gate, PyTree]:
    """The gate and its traced parameters.

    Args:
      calibration: output of ``jaxspec calibrate`` for the draft network.
      prefix: share of tokens that the target draws alone: ``target_prefix`` rounded to whole tokens.
    Raises:
      ValueError: without a threshold, a rate and a calibration for this score.
    """
    calibration = calibration if self.score == CALIBRATED_SCORE else None
    if self.tau is not None:
      return constant_gate, jnp.float32(self.tau)
    if self.cloud_rate is None:
      return constant_gate, jnp.float32(calibrated_tau(calibration, DEFAULT_RATE, self.target_prefix))
    try:
      start = calibrated_tau(calibration, self.cloud_rate, self.target_prefix)
    except ValueError:
      start = 1e-2  # arbitrary: a short row ends before the controller has converged
    return conformal_gate, rate_params(start, judged_rate(self.cloud_rate, prefix))

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft.meta["calibration"]`` has the thresholds, ``draft.config`` the interval features."""
    sampling, draft = of_ids(self, context), need(draft, "a draft network", self.name)
    edge, edge_side = draft_side(self, draft, context)
    refuse_audit(self, context, "where no rule judges what is accepted locally")
    vocab_size = need(context.space.vocab_size, "vocab_size", self.name)
    prefix, share = 0, 0.0
    if self.target_prefix > 0:
      num_tokens = need(context.space.num_tokens, "num_tokens", self.name)
      prefix = prefix_tokens(self.target_prefix, num_tokens)
      share = prefix / num_tokens
    gate, gate_params = self.gate(draft.meta.get("calibration"), share)
    rule, tables = self.rule(context)
    combination = self.combination or getattr(draft.config, "combination", None) or "ensemble"
    draw, draw_params = self._draw(vocab_size)
    features, features_params = self._features(draft, edge_side)
    score = make_score(self.score, combination)
    drafter = CiarDrafter(
      edge, score, gate, most_drafts=self.gamma, max_run=self.max_run, warp=context.warp(),
      combination=combination, draw=draw, early_close=self.early_close, features=features, inject=self.inject,
    )  # fmt: skip
    cloud, cloud_side = sampling.side(target)
    verifier = CiarVerifier(cloud, rule, warp=context.warp(), window=self.gamma, widths=pass_widths(self.gamma))
    params = GatedParams(
      model=edge_side, gate=gate_params, draw=draw_params, features=features_params, score=score.tables(context.space)
    )
    return Parts(SpecParams(params, cloud_side._replace(rule=tables)), drafter, verifier, target_prefix=prefix)

  def _draw(self, vocab_size: int) -> tuple[WindowDraw, PyTree]:
    """The draw of tokens of a window, and its traced settings."""
    if (codec := self.codec(vocab_size)) is None:
      return DenseDraw(self.pick), ()
    return SparseDraw(codec), TopKParams(jnp.int32(codec.max_support))

  def _features(self, draft: Network, side: ModelParams) -> tuple[IntervalFeaturesFns | None, PyTree]:
    """The interval features of the draft network, if any are injected and available."""
    config = getattr(draft.config, "features", None)
    if self.inject == "none" or not isinstance(config, IntervalFeaturesConfig):
      return None, ()
    if isinstance(side.model, Guided):
      raise ValueError(
        "Must have a draft network without guidance to inject its interval features, we instead got a guided one"
      )
    return interval_features_fns(config), side.model["features"]


def distribution_codec(vocab_size: int) -> SparseCodec:
  """Codec of the distributions of a window for the rule ``exact``."""
  return topk_lattice(vocab_size, min(DISTRIBUTION_SUPPORT, vocab_size), ell=DISTRIBUTION_PARTS, coding="rice")


def judged_rate(rate: float, prefix: float) -> float:
  """Cloud calls per token after the prefix, from a rate over all tokens."""
  return (rate - prefix) / (1 - prefix) if prefix < 1 else rate


def calibrated_tau(calibration: dict[str, Any] | None, rate: float, prefix: float = 0.0) -> float:
  """The threshold of a rate of cloud calls, between calibrated ones by interpolation in log tau.

  If the prefix is longer than in the calibration, rates are converted to the tokens after the prefix. If it is shorter they
  are used unchanged, which is closer, because the first tokens of an image often cause more calls. For an accurate rate,
  calibrate with the same prefix. A rate outside the calibrated range gets the threshold of its end.

  Args:
    calibration: output of ``jaxspec calibrate``: ``{"thresholds": [{"rate": .., "tau": ..}, ...], "target_prefix": ..}``.
    prefix: ``target_prefix`` of the decode.
  Raises:
    ValueError: without calibration, or if it is damaged.
  """
  try:
    known = calibration or {}
    theirs = float(known.get("target_prefix", 0.0))
    theirs, prefix = (theirs, prefix) if prefix > theirs else (0.0, 0.0)
    points = sorted((judged_rate(float(one["achieved"]), theirs), float(one["tau"])) for one in known.get("thresholds", []))
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise ValueError("Must have thresholds as `jaxspec calibrate` writes them: run it again") from error
  if not points:
    raise ValueError(
      "Must have tau or cloud_rate, or a draft with thresholds for this score (jaxspec calibrate), we instead got none"
    )
  rate = judged_rate(rate, prefix)
  if rate <= points[0][0]:
    return points[0][1]
  for (low, tau_low), (high, tau_high) in zip(points, points[1:]):
    if rate <= high:
      part = (rate - low) / max(high - low, 1e-12)
      return math.exp((1 - part) * math.log(tau_low) + part * math.log(tau_high))
  return points[-1][1]


def pass_widths(window: int) -> tuple[int, int]:
  """The two widths of passes: the smallest power of two that holds a window (at least 4, about the cost of 2), and twice it.

  Every width is compiled. Most exchanges of a row alone need the first.
  """
  first = max(4, 1 << window.bit_length())
  return first, 2 * first
