"""Faithfulness: whether what captions leave open is drawn from the right distribution.

`compare_sets` and `compare_with_painter` look at each aspect alone. `distance_between` has one figure of a method against
plain decoding, for tables; `closer` says which of two methods is nearer to it.

A caption such as "a cat" leaves style, size, position and background open. A lossy decoder may keep every image right and
still prefer, say, large cats on white. The distance of two sets of images in one such aspect is the total variation of
their frequencies, pooled over captions; its p value comes from permutations or from simulation, so small sets are no
evidence. Only right images count: in all others what is open is not well defined.

Aspects: ``style`` of sprites, ``cell`` (ninth of the image in which a centre lies), ``size``, ``background``, ``colour`` of
glyphs, ``number`` of "some"; each only where the caption leaves it open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.evaluation.scenes.reader import Reading
from jaxspec.evaluation.scenes.requests import LEAST_SOME, Request
from jaxspec.evaluation.scenes.sampling import sample_scene
from jaxspec.evaluation.scenes.score import Scores
from jaxspec.evaluation.scenes.world import BACKGROUNDS, COLOURS, GRID, MOST_OBJECTS, SIZES, STYLES
from jaxspec.statistics import Difference, t_quantile

ASPECTS: dict[str, tuple] = {
  "style": STYLES,
  "cell": tuple(range(9)),
  "size": tuple(SIZES),
  "background": tuple(BACKGROUNDS),
  "colour": tuple(COLOURS),
  "number": tuple(range(LEAST_SOME, MOST_OBJECTS + 1)),
}
_NUMBERS = {aspect: {value: number for number, value in enumerate(values)} for aspect, values in ASPECTS.items()}


class Faithfulness(NamedTuple):
  """One aspect of a set of images against another set.

  Attributes:
    distance: total variation, in [0, 1].
    expected: mean distance where the two distributions are equal; sampling alone makes it this large.
    p_value: of equal distributions.
    count: observations in the first set.
    first, second: frequencies ``[K]``, in the order of ``ASPECTS``.
  """

  distance: float
  expected: float
  p_value: float
  count: int
  first: np.ndarray
  second: np.ndarray


def open_values(request: Request, reading: Reading) -> dict[str, np.ndarray]:
  """Counts ``[K]`` of the values that an image takes in each aspect that its caption leaves open."""
  counts = {aspect: np.zeros(len(values)) for aspect, values in ASPECTS.items()}
  if request.background is None:
    counts["background"][_NUMBERS["background"][reading.background]] += 1
  for phrase in request.phrases:
    group = [one for one in reading.objects if one.noun == phrase.noun]
    if phrase.number is None and len(group) in _NUMBERS["number"]:
      counts["number"][_NUMBERS["number"][len(group)]] += 1
    for one in group:
      middle = (one.row + one.cells / 2, one.column + one.cells / 2)
      counts["cell"][sum(int(3 * at // GRID) * factor for at, factor in zip(middle, (3, 1), strict=True))] += 1
      if one.style in _NUMBERS["style"]:
        counts["style"][_NUMBERS["style"][one.style]] += 1
      if phrase.size is None:
        counts["size"][_NUMBERS["size"][one.size]] += 1
      if phrase.colour is None and one.colour is not None:
        counts["colour"][_NUMBERS["colour"][one.colour]] += 1
  return counts


def compare_sets(first: Scores, second: Scores, *, permutations: int = 999, seed: int = 0) -> dict[str, Faithfulness]:
  """Two methods against each other.

  All images of a request are one cluster. A permutation swaps the two methods within random clusters, so the test holds
  where images of a prompt resemble each other, whether or not the methods had the same prompts.

  Returns:
    Aspects that both sets have.
  """
  (one, other), swaps = _swappable((first, second), permutations, seed)
  table = {}
  for aspect in _common(one, other):
    sides = one[aspect].sum(0), other[aspect].sum(0)
    table[aspect] = _result(*sides, _distances(*_swapped(one[aspect], other[aspect], swaps)))
  return table


class Distance(NamedTuple):
  """How far one set is from another, over all aspects.

  Attributes:
    value: mean total variation of the aspects that both sets have, in [0, 1]. Each counts by the inverse of what chance
      moves it by, so that a change of one aspect shows beside others of which few captions say nothing.
    expected: its mean where the two distributions are equal; sampling alone makes it this large.
    standard_error: its standard deviation there.
    p_value: of equal distributions.
  """

  value: float
  expected: float
  standard_error: float
  p_value: float


def distance_between(first: Scores, second: Scores, *, permutations: int = 9999, seed: int = 0) -> Distance | None:
  """Two methods against each other in all aspects at once, by the permutations of `compare_sets`.

  Returns:
    None if the sets have no aspect in common: one of them has no right image.
  """
  (one, other), swaps = _swappable((first, second), permutations, seed)
  if not (aspects := _common(one, other)):
    return None
  nulls = [_distances(*_swapped(one[aspect], other[aspect], swaps)) for aspect in aspects]  # each [R]
  mean = _mean_by_noise(nulls)
  value, null = float(mean([_distances(one[aspect].sum(0), other[aspect].sum(0)) for aspect in aspects])), mean(nulls)
  return Distance(value, float(null.mean()), float(null.std()), _p_value(null, value))


def closer(
  first: Scores, second: Scores, reference: Scores, *, level: float = 0.95, permutations: int = 9999, seed: int = 0
) -> Difference | None:
  """How much farther from a reference one method is than another: the difference of the two mean total variations, in which
  each aspect counts as in `Distance`.

  A permutation swaps the two methods, not the reference, within random clusters (all images of a request), so the p value
  is that of two methods with one distribution. Both distances are raised by sampling; where the two sets are of like size,
  that cancels in the difference. The standard error is a jackknife over clusters.

  Returns:
    The difference, above 0 where ``second`` is closer; None if the three have no aspect in common.
  """
  (one, other, fixed), swaps = _swappable((first, second, reference), permutations, seed)
  if not (aspects := _common(one, other, fixed)):
    return None
  clusters = np.any([np.any(side[aspect], axis=1) for side in (one, other, fixed) for aspect in aspects], axis=0)
  values, nulls, without = [], [], []
  for aspect in aspects:
    sides = one[aspect], other[aspect], fixed[aspect]
    totals = [side.sum(0) for side in sides]
    beyond = lambda a, b, c: _distances(a, c) - _distances(b, c)
    values.append(beyond(*totals))
    nulls.append(beyond(*_swapped(*sides[:2], swaps), totals[2]))
    without.append(beyond(*(total - side[clusters] for total, side in zip(totals, sides, strict=True))))
  mean = _mean_by_noise(nulls)
  value, null, left = float(mean(values)), mean(nulls), mean(without)
  count = len(left)
  error = float(np.sqrt((count - 1) / count * np.sum((left - left.mean()) ** 2)))
  half = t_quantile(level, count - 1) * error if count > 1 else 0.0
  return Difference(value, value - half, value + half, _p_value(np.abs(null), abs(value)), error, count)


def compare_with_painter(scores: Scores, *, draws: int = 199, seed: int = 0) -> dict[str, Faithfulness]:
  """A set against the distribution of the painter for the same captions.

  For every right image the painter draws ``draws`` scenes of its caption. All of them together are the reference; each
  draw alone is a set as large as the one that is tested, and their distances from the reference make the p value.
  It takes independent images for granted; where several of one caption resemble each other, the p value says so.
  """
  generator = np.random.default_rng(seed)
  right = [number for number, held in enumerate(scores.held) if held["right"]]
  found = {aspect: np.zeros(len(values)) for aspect, values in ASPECTS.items()}
  drawn = {aspect: np.zeros((draws, len(values))) for aspect, values in ASPECTS.items()}
  for number in right:
    request = scores.requests[number]
    for aspect, counts in open_values(request, scores.readings[number]).items():
      found[aspect] += counts
    for draw in range(draws):
      scene = sample_scene(generator, request)
      for aspect, counts in open_values(request, Reading(scene.background, scene.objects, 0.0)).items():
        drawn[aspect][draw] += counts
  table = {}
  for aspect, counts in found.items():
    reference = drawn[aspect].sum(0)
    if counts.any() and reference.any():
      null = _distances(drawn[aspect], reference - drawn[aspect])
      table[aspect] = _result(counts, reference, null)
  return table


Counts = dict[str, np.ndarray]  # [clusters, K] by aspect


def _swappable(sets: Sequence[Scores], permutations: int, seed: int) -> tuple[list[Counts], np.ndarray]:
  """Counts of every set by the same requests, and which of them a permutation swaps, ``[R, clusters]``."""
  labels = {request: number for number, request in enumerate(dict.fromkeys(r for scores in sets for r in scores.requests))}
  swaps = np.random.default_rng(seed).integers(0, 2, (permutations, len(labels))).astype(np.float64)
  return [_sum_by_request(scores, labels) for scores in sets], swaps


def _swapped(one: np.ndarray, other: np.ndarray, swaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Both sides ``[R, K]`` of one aspect after each permutation."""
  moved = swaps @ (other - one)
  return one.sum(0) + moved, other.sum(0) - moved


def _common(*sides: Counts) -> list[str]:
  """The aspects that all of them have."""
  return [aspect for aspect in ASPECTS if all(side[aspect].any() for side in sides)]


def _mean_by_noise(nulls: Sequence[np.ndarray]) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
  """The mean over aspects, each by the inverse of its standard deviation under permutations; those that never move do not
  count beside others."""
  noise = np.array([null.std() for null in nulls])
  weights = np.divide(1.0, noise, out=np.zeros_like(noise), where=noise > 0) if noise.any() else np.ones_like(noise)
  return lambda values: np.average(values, axis=0, weights=weights)


def _sum_by_request(scores: Scores, labels: dict[Request, int]) -> Counts:
  """Counts ``[clusters, K]`` of the right images by aspect."""
  sums = {aspect: np.zeros((len(labels), len(values))) for aspect, values in ASPECTS.items()}
  for request, reading, held in zip(scores.requests, scores.readings, scores.held, strict=True):
    if held["right"]:
      for aspect, counts in open_values(request, reading).items():
        sums[aspect][labels[request]] += counts
  return sums


def _distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Total variation of counts ``[..., K]``; 0 where one side is empty."""
  totals = first.sum(-1), second.sum(-1)
  shares = [side / np.maximum(total, 1e-9)[..., None] for side, total in zip((first, second), totals, strict=True)]
  return np.where((totals[0] > 0) & (totals[1] > 0), np.abs(shares[0] - shares[1]).sum(-1) / 2, 0.0)


def _result(first: np.ndarray, second: np.ndarray, null: np.ndarray) -> Faithfulness:
  distance = float(_distances(first, second))
  shares = first / first.sum(), second / second.sum()
  return Faithfulness(distance, float(null.mean()), _p_value(null, distance), int(first.sum()), *shares)


def _p_value(null: np.ndarray, found: float) -> float:
  """The share of what chance gives that is as large, with what was found counted among it."""
  return (1 + int((null >= found - 1e-12).sum())) / (1 + len(null))
