"""Scores of the edge's uncertainty about its next token: one interface for CIAR's score and its baselines.

A score is a function of the edge network's output at one position and of a key. A token is accepted locally where the score
is at most a threshold. No score reads the drawn token. All are computed before top-k, top-p and temperature.

===================  ==========================================================================================
`IntervalScore`      widths of InterFuse (CIAR)
`Entropy`            Shannon entropy of the edge's distribution
`EntropyLens`        its mean over the distributions of all layers (Entropy-Lens, arXiv 2502.16570)
`MaxProb`            1 - the largest probability (CIAR's "SoftmaxCorr", which in its source is another statistic)
`Random`             uniform on [0, 1): with threshold t a share t of the tokens is accepted locally
`TemperatureSpread`  how often a token drawn at another temperature differs (U-HLM, arXiv 2412.12687)
`DiscreteScore`      entropy of the set of distributions on k tokens
`Merged`             another score after nearly equal codes have been merged; in none of the papers
===================  ==========================================================================================

CoDe (first tokens from the cloud, the rest from the edge) needs no score: its threshold is infinite, and the cloud's share
is the ``target_prefix``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, Intervals, Key, PyTree
from jaxspec.intervals.discrete import DiscreteSet, entropy
from jaxspec.intervals.heads import check_combination, combined_logits, head_weights, mean_over_heads
from jaxspec.intervals.inter_fuse import SCALINGS, Bounds, inter_fuse, scale
from jaxspec.intervals.interval_uncertainty import Uncertainty
from jaxspec.intervals.merged_codes import groups_within, merge


class ScoreFn(Protocol):
  """Uncertainty of the edge at one position of every row.

  Args:
    intervals: output of the Inter-Heads, leaves ``[B, H, V]``.
    features: ``[B, ...]`` of the trunk at that position.
    keys: ``[B]`` random keys; consumed by scores that draw.
    tables: the score's `tables`.
  Returns:
    ``[B]`` float32, at least 0; larger is less certain.
  """

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array: ...

  def tables(self, space: TokenSpace) -> PyTree:
    """Traced arrays of the score for the tokens of a family; () for most scores."""
    return ()


@dataclasses.dataclass(frozen=True)
class IntervalScore(ScoreFn):
  """CIAR's score: the uncertainty of the InterFuse widths (arXiv 2603.25463, eq. 4).

  Attributes:
    uncertainty: function from widths to one number.
    scaling: ``paper`` as published (see `scaled_bounds`), or ``none``.
    combination: how several heads are combined; with ``voting`` each head of the majority is scored by itself, and the
      score is the mean.
    radius: one radius for all tokens instead of the learnt ones, as a control: the score then depends on the centre alone.
      None takes the learnt ones.
  Raises:
    ValueError: for an unknown scaling or combination, or a radius that is not above 0.
  """

  uncertainty: Uncertainty = Uncertainty()
  scaling: str = "none"
  combination: str = "ensemble"
  radius: float | None = None

  def __post_init__(self):
    if self.radius is not None and not 0 < self.radius < math.inf:
      raise ValueError(f"Must have a finite radius above 0, we instead got {self.radius}")
    check_combination(self.combination)
    if self.scaling not in SCALINGS:
      raise ValueError(f"Must have a scaling in {', '.join(SCALINGS)}, we instead got {self.scaling!r}")

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    del features, keys
    radius = intervals.radius if self.radius is None else jnp.full_like(intervals.radius, self.radius)
    bounds = inter_fuse(intervals.centre, radius)  # [B, H, V]
    weights = head_weights(intervals.centre, self.combination)
    if self.combination == "voting":
      return jnp.sum(weights * self.uncertainty(scale(bounds, self.scaling).width), axis=-1)
    common = Bounds(*(mean_over_heads(x, weights) for x in bounds))
    return self.uncertainty(scale(common, self.scaling).width)


@dataclasses.dataclass(frozen=True)
class Entropy(ScoreFn):
  """Shannon entropy in nats of the edge's distribution."""

  combination: str = "ensemble"

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    return entropy(jax.nn.softmax(combined_logits(intervals.centre, self.combination), axis=-1))


@dataclasses.dataclass(frozen=True)
class EntropyLens(ScoreFn):
  """Mean entropy in nats over the layers of the edge network (Entropy-Lens, arXiv 2502.16570).

  A layer's distribution comes from its features through the final norm and the output matrix; that of the last layer is the
  combined distribution of the heads. For an edge network of one layer the score is `Entropy`.
  """

  combination: str = "ensemble"

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`.

    Raises:
      ValueError: for a network that does not return its layers' logits.
    """
    if intervals.lens is None:
      raise ValueError("Must have an edge that returns the logits of its layers for this score, we instead got none")
    last = combined_logits(intervals.centre, self.combination)
    layers = jnp.concatenate([intervals.lens, last[..., None, :]], axis=-2)  # [B, L, V]
    return jnp.mean(entropy(jax.nn.softmax(layers, axis=-1)), axis=-1)


@dataclasses.dataclass(frozen=True)
class MaxProb(ScoreFn):
  """1 minus the probability of the likeliest token."""

  combination: str = "ensemble"

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    return 1 - jnp.max(jax.nn.softmax(combined_logits(intervals.centre, self.combination), axis=-1), axis=-1)


@dataclasses.dataclass(frozen=True)
class Random(ScoreFn):
  """A uniform number in [0, 1); with threshold 1 - pi a token needs verification with probability pi."""

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    return jax.vmap(jax.random.uniform)(keys)


@dataclasses.dataclass(frozen=True)
class TemperatureSpread(ScoreFn):
  """U-HLM's temperature perturbation: the share of perturbed draws that differ from the unperturbed one.

  The expectation over the draws is computed exactly, ``1 - mean_k sum_x p(x) p_k(x)``; nothing is drawn.

  Attributes:
    temperatures: temperatures of the perturbed distributions.
  Raises:
    ValueError: for no temperatures, or one that is not positive.
  """

  temperatures: tuple[float, ...] = (0.5, 0.75, 1.25, 1.5, 2.0)
  combination: str = "ensemble"

  def __post_init__(self):
    if not self.temperatures or min(self.temperatures) <= 0:
      raise ValueError(f"Must have positive temperatures, we instead got {self.temperatures}")

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    logits = combined_logits(intervals.centre, self.combination)
    p = jax.nn.softmax(logits, axis=-1)
    same = [jnp.sum(p * jax.nn.softmax(logits / t, axis=-1), axis=-1) for t in self.temperatures]
    return 1 - jnp.asarray(sum(same)) / len(self.temperatures)


@dataclasses.dataclass(frozen=True)
class DiscreteScore(ScoreFn):
  """The discrete-k baseline on the unscaled bounds (`jaxspec.intervals.discrete`)."""

  discrete: DiscreteSet = DiscreteSet()
  combination: str = "ensemble"

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    weights = head_weights(intervals.centre, self.combination)
    bounds = Bounds(*(mean_over_heads(x, weights) for x in inter_fuse(intervals.centre, intervals.radius)))
    centre = mean_over_heads(jax.nn.softmax(intervals.centre, axis=-1), weights)
    return self.discrete(bounds, centre)


@dataclasses.dataclass(frozen=True)
class Merged(ScoreFn):
  """Another score, of the groups of nearly equal codes (`jaxspec.intervals.merged_codes`).

  Attributes:
    score: the score of the groups; it may have no tables of its own.
    distance: largest step between codes of a group, in units of the codes as a method compares them: of unit length for most
      image tokenizers. At 0 only equal codes are merged.
  Raises:
    ValueError: for a negative distance.
  """

  score: ScoreFn
  distance: float

  def __post_init__(self):
    if not 0 <= self.distance < math.inf:
      raise ValueError(f"Must have a distance of at least 0, we instead got {self.distance}")

  def __call__(self, intervals: Intervals, features: Array, keys: Key, tables: PyTree = ()) -> Array:
    """See `ScoreFn`."""
    return self.score(merge(intervals, tables), features, keys)

  def tables(self, space: TokenSpace) -> PyTree:
    """The `jaxspec.intervals.merged_codes.Groups`.

    Raises:
      ValueError: for tokens without a codebook, or if fewer than 2 groups remain.
    """
    if space.codebook is None:
      raise ValueError("Must have the codebook of an image tokenizer to merge codes, we instead got none")
    return groups_within(space.codebook(), self.distance, normalise=space.unit_codes)


_RADIUS, _MERGED = "radius=", "merged"
SCORES = {
  "interval": IntervalScore,
  "entropy": Entropy,
  "entropy_lens": EntropyLens,
  "max_prob": MaxProb,
  "random": Random,
  "temperature": TemperatureSpread,
  "discrete": DiscreteScore,
}


def make_score(text: str, combination: str = "ensemble") -> ScoreFn:
  """Makes a score from its name and settings: ``NAME[:SETTING...]``, settings in any order.

  ``interval`` takes a form of `Uncertainty`, ``paper`` for the paper's scaling, and one radius for all tokens
  (``interval:additive``, ``interval:paper``, ``interval:radius=0.5``); ``discrete`` takes k, a form and a solver of
  `DiscreteSet` (``discrete:50:gap``). ``merged:DISTANCE:SCORE`` is another score of merged codes
  (``merged:0.05:entropy``).

  Args:
    combination: how several heads are combined, one of `jaxspec.intervals.heads.COMBINATIONS`.
  Raises:
    ValueError: for an unknown name or setting.
  """
  name, *settings = text.split(":")
  if name == _MERGED:
    if len(settings) < 2 or settings[1] == _MERGED:
      raise ValueError(f"Must have a score as merged:DISTANCE:SCORE, we instead got {text!r}")
    return Merged(make_score(":".join(settings[1:]), combination), _number("distance", settings[0]))
  if name not in SCORES:
    raise ValueError(f"Must have a score in {', '.join((*SCORES, _MERGED))}, we instead got {name!r}")
  check_combination(combination)
  chosen: dict[str, Any] = {}
  for setting in settings:
    if name == "interval" and setting in Uncertainty.FORMS:
      chosen["uncertainty"] = Uncertainty(setting)
    elif name == "interval" and setting in SCALINGS:
      chosen["scaling"] = setting
    elif name == "interval" and setting.startswith(_RADIUS):
      chosen["radius"] = _number("radius", setting.removeprefix(_RADIUS))
    elif name == "discrete" and setting.isdecimal():
      chosen["k"] = int(setting)
    elif name == "discrete" and setting in DiscreteSet.FORMS:
      chosen["form"] = setting
    elif name == "discrete" and setting in DiscreteSet.SOLVERS:
      chosen["solver"] = setting
    else:
      known = {
        "interval": f"{', '.join((*Uncertainty.FORMS, *SCALINGS))} and {_RADIUS}NUMBER",
        "discrete": f"a number of tokens, {', '.join((*DiscreteSet.FORMS, *DiscreteSet.SOLVERS))}",
      }.get(name, "none")
      raise ValueError(f"Must have settings of the score {name} ({known}), we instead got {setting!r}")
  if name == "random":
    return Random()
  if name == "discrete":
    return DiscreteScore(DiscreteSet(**chosen), combination)
  return SCORES[name](**chosen, combination=combination)


def _number(name: str, text: str) -> float:
  try:
    return float(text)
  except ValueError:
    raise ValueError(f"Must have a number as {name}, we instead got {text!r}") from None
