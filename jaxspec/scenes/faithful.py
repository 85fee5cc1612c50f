"""Faithfulness: whether what captions leave open is drawn from the right distribution.

A caption such as "a cat" leaves style, size, position and background open. A lossy decoder may keep every image right and
still prefer, say, large cats on white. The distance of two sets of images in one such aspect is the total variation of
their frequencies, pooled over captions; its p value comes from permutations or from simulation, so small sets are no
evidence. Only right images count: in all others what is open is not well defined.

Aspects: ``style`` of sprites, ``cell`` (ninth of the image in which a centre lies), ``size``, ``background``, ``colour`` of
glyphs, ``number`` of "some"; each only where the caption leaves it open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.scenes.reader import Reading
from jaxspec.scenes.requests import LEAST_SOME, Request
from jaxspec.scenes.sampling import sample_scene
from jaxspec.scenes.score import Scores
from jaxspec.scenes.world import BACKGROUNDS, COLOURS, GRID, MOST_OBJECTS, SIZES, STYLES

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
  labels = {request: number for number, request in enumerate(dict.fromkeys(first.requests + second.requests))}
  generator = np.random.default_rng(seed)
  swaps = generator.integers(0, 2, (permutations, len(labels))).astype(np.float64)
  sums = [_sum_by_request(scores, labels) for scores in (first, second)]
  table = {}
  for aspect in ASPECTS:
    one, other = (sides[aspect] for sides in sums)  # [clusters, K]
    if not (one.any() and other.any()):
      continue
    moved = swaps @ (other - one)  # [R, K]
    null = _distances(one.sum(0) + moved, other.sum(0) - moved)
    table[aspect] = _result(one.sum(0), other.sum(0), null)
  return table


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


def _sum_by_request(scores: Scores, labels: dict[Request, int]) -> dict[str, np.ndarray]:
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
  p_value = (1 + int((null >= distance - 1e-12).sum())) / (1 + len(null))
  return Faithfulness(distance, float(null.mean()), p_value, int(first.sum()), first / first.sum(), second / second.sum())
