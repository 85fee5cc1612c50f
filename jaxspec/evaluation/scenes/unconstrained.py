"""Distribution of the attributes that captions leave unconstrained, compared with a reference.

`compare_sets` and `compare_with_painter` test each attribute alone. `distance_between` gives one figure of a method against
plain decoding, for tables; `closer` compares the distances of two methods.

A caption such as "a cat" does not constrain style, size, position and background. A lossy decoder may draw only correct
images and still prefer, say, large cats on white. The distance of two sets of images in one such attribute is the total
variation of their frequencies, pooled over captions. Its p value comes from permutations or from simulation, so that it is
valid for small sets. Only correct images count: in others the attributes are not well defined.

Aspects: ``style`` of sprites, ``cell`` (ninth of the image in which a centre lies), ``size``, ``background``, ``colour`` of
glyphs, ``number`` of "some", ``material``; each only where the caption does not constrain it. In the flat world the material
is no aspect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.evaluation.scenes.reader import Reading
from jaxspec.evaluation.scenes.requests import LEAST_SOME, Request
from jaxspec.evaluation.scenes.sampling import sample_scene
from jaxspec.evaluation.scenes.score import Scores
from jaxspec.evaluation.scenes.world import (
  BACKGROUNDS,
  COLOURS,
  FLAT,
  FLAT_WORLD,
  GRID,
  MATERIALS,
  MOST_OBJECTS,
  SIZES,
  STYLES,
  TEXTURED_WORLD,
)
from jaxspec.statistics import Difference, t_quantile

ASPECTS: dict[str, tuple] = {
  "style": STYLES,
  "cell": tuple(range(9)),
  "size": tuple(SIZES),
  "background": tuple(BACKGROUNDS),
  "colour": tuple(COLOURS),
  "number": tuple(range(LEAST_SOME, MOST_OBJECTS + 1)),
  "material": MATERIALS,
}
_NUMBERS = {aspect: {value: number for number, value in enumerate(values)} for aspect, values in ASPECTS.items()}


class AttributeDistance(NamedTuple):
  """Comparison of one attribute between two sets of images.

  Attributes:
    distance: total variation, in [0, 1].
    expected: mean distance for equal distributions, from sampling alone.
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
  """Counts ``[K]`` of the values of an image in each unconstrained attribute."""
  counts = {aspect: np.zeros(len(values)) for aspect, values in ASPECTS.items()}
  if request.background is None:
    counts["background"][_NUMBERS["background"][reading.background]] += 1
  if request.material is None:
    counts["material"][_NUMBERS["material"][reading.material]] += 1
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


def compare_sets(first: Scores, second: Scores, *, permutations: int = 999, seed: int = 0) -> dict[str, AttributeDistance]:
  """Compares two methods, attribute by attribute.

  All images of a request are one cluster. A permutation swaps the two methods within random clusters, so the test is valid
  for dependent images of a prompt, with shared prompts or without.

  Returns:
    Attributes that both sets have.
  """
  (one, other), swaps = _swappable((first, second), permutations, seed)
  table = {}
  for aspect in _common(one, other):
    sides = one[aspect].sum(0), other[aspect].sum(0)
    table[aspect] = _result(*sides, _distances(*_swapped(one[aspect], other[aspect], swaps)))
  return table


class Distance(NamedTuple):
  """Distance of one set from another, over all attributes.

  Attributes:
    value: weighted mean total variation of the attributes that both sets have, in [0, 1]. The weight of an attribute is the
      inverse of its standard deviation for equal distributions, so that attributes with few images add little noise.
    expected: its mean for equal distributions, from sampling alone.
    standard_error: its standard deviation for equal distributions.
    p_value: of equal distributions.
  """

  value: float
  expected: float
  standard_error: float
  p_value: float


def distance_between(first: Scores, second: Scores, *, permutations: int = 9999, seed: int = 0) -> Distance | None:
  """Compares two methods over all attributes, by the permutations of `compare_sets`.

  Returns:
    None if the sets have no attribute in common: one of them has no correct image.
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
  """Difference of the distances of two methods from a reference, with the weights of `Distance`.

  A permutation swaps the two methods, not the reference, within random clusters (all images of a request), so the p value is
  for the hypothesis that both methods have one distribution. Sampling raises both distances; for sets of similar size this
  cancels in the difference. The standard error is a jackknife over clusters.

  Returns:
    The difference, above 0 where ``second`` is closer; None if the three have no attribute in common.
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


def compare_with_painter(scores: Scores, *, draws: int = 199, seed: int = 0) -> dict[str, AttributeDistance]:
  """Compares a set with the distribution of the painter for the same captions.

  For every correct image the painter draws ``draws`` scenes of its caption. All of them together are the reference. Each
  draw alone is a set as large as the tested one; the distances of these sets from the reference give the p value. It assumes
  independent images: dependence between images of one caption makes it small too. Its world is the flat one if all images
  are flat, and the textured one otherwise.
  """
  materials = FLAT_WORLD if all(reading.material == FLAT for reading in scores.readings) else TEXTURED_WORLD
  generator = np.random.default_rng(seed)
  right = [number for number, held in enumerate(scores.held) if held["right"]]
  found = {aspect: np.zeros(len(values)) for aspect, values in ASPECTS.items()}
  drawn = {aspect: np.zeros((draws, len(values))) for aspect, values in ASPECTS.items()}
  for number in right:
    request = scores.requests[number]
    for aspect, counts in open_values(request, scores.readings[number]).items():
      found[aspect] += counts
    for draw in range(draws):
      scene = sample_scene(generator, request, materials)
      reading = Reading(scene.background, scene.objects, 0.0, scene.material)
      for aspect, counts in open_values(request, reading).items():
        drawn[aspect][draw] += counts
  table = {}
  for aspect, counts in found.items():
    reference = drawn[aspect].sum(0)
    if counts.any() and reference.any() and not _is_flat(aspect, counts, reference):
      null = _distances(drawn[aspect], reference - drawn[aspect])
      table[aspect] = _result(counts, reference, null)
  return table


Counts = dict[str, np.ndarray]  # [clusters, K] by aspect


def _swappable(sets: Sequence[Scores], permutations: int, seed: int) -> tuple[list[Counts], np.ndarray]:
  """Counts of every set by request, and the swaps of each permutation, ``[R, clusters]`` bool."""
  labels = {request: number for number, request in enumerate(dict.fromkeys(r for scores in sets for r in scores.requests))}
  swaps = np.random.default_rng(seed).integers(0, 2, (permutations, len(labels))).astype(np.float64)
  return [_sum_by_request(scores, labels) for scores in sets], swaps


def _swapped(one: np.ndarray, other: np.ndarray, swaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Both sides ``[R, K]`` of one attribute after each permutation."""
  moved = swaps @ (other - one)
  return one.sum(0) + moved, other.sum(0) - moved


def _common(*sides: Counts) -> list[str]:
  """The attributes that all of them have."""
  found = [aspect for aspect in ASPECTS if all(side[aspect].any() for side in sides)]
  return [aspect for aspect in found if not _is_flat(aspect, *(side[aspect].sum(0) for side in sides))]


def _is_flat(aspect: str, *sides: np.ndarray) -> bool:
  """Whether the aspect is the material and all counts ``[K]`` are of flat backgrounds."""
  flat = MATERIALS.index(FLAT)
  return aspect == "material" and all(counts.sum() == counts[flat] for counts in sides)


def _mean_by_noise(nulls: Sequence[np.ndarray]) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
  """Mean over attributes, weighted by the inverse standard deviation under permutations; constant ones are left out beside
  others."""
  noise = np.array([null.std() for null in nulls])
  weights = np.divide(1.0, noise, out=np.zeros_like(noise), where=noise > 0) if noise.any() else np.ones_like(noise)
  return lambda values: np.average(values, axis=0, weights=weights)


def _sum_by_request(scores: Scores, labels: dict[Request, int]) -> Counts:
  """Counts ``[clusters, K]`` of the correct images by attribute."""
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


def _result(first: np.ndarray, second: np.ndarray, null: np.ndarray) -> AttributeDistance:
  distance = float(_distances(first, second))
  shares = first / first.sum(), second / second.sum()
  return AttributeDistance(distance, float(null.mean()), _p_value(null, distance), int(first.sum()), *shares)


def _p_value(null: np.ndarray, found: float) -> float:
  """Share of the simulated values that are at least as large, with the observed one counted among them."""
  return (1 + int((null >= found - 1e-12).sum())) / (1 + len(null))
