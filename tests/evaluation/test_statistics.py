"""Coverage of intervals by simulation: 95 % intervals contain the true value in 93 to 97 % of simulated data sets."""

import numpy as np
import pytest

from jaxspec import statistics
from tests.evaluation.simulation import SIZES, assert_covered, coverages


def _clusters(generator, prompts=24, samples=4):
  """Labels ``[N]``, and effects of prompts ``[N]`` that correlate samples of one prompt."""
  labels = np.repeat(np.arange(prompts), samples)
  return labels, np.repeat(generator.normal(size=prompts), samples)


@SIZES
def test_paired_differences_cover_with_prompts_as_clusters(number):
  def find(generator, seed):
    labels, effect = _clusters(generator)
    both = 2 * generator.normal(size=len(labels))
    first = both + 0.3 + 0.5 * effect + generator.normal(size=len(labels))
    second = both + generator.normal(size=len(labels))
    return [statistics.paired_difference(first, second, clusters=labels, resamples=0, permutations=1)]

  assert_covered(coverages(find, [0.3], number), number)


@SIZES
@pytest.mark.parametrize("samples", [1, 4])
def test_paired_differences_of_shares_cover(samples, number):
  """Two methods with correlated hits: a share per prompt, and common draws."""

  def find(generator, seed):
    labels = np.repeat(np.arange(60), samples)
    own, draw = np.repeat(generator.beta(2, 2, size=60), samples), generator.random(len(labels))
    again = np.where(generator.random(len(labels)) < 0.2, draw, generator.random(len(labels)))
    hits = (draw < own).astype(float), (again < 0.8 * own).astype(float)
    return [statistics.paired_share_difference(*hits, clusters=labels, permutations=1)]

  assert_covered(coverages(find, [0.1], number), number)


@SIZES
def test_shares_cover_in_the_mean_over_shares(number):
  """Wilson intervals, at shares from 0.02 to 0.98; no interval is a single point, also without successes or failures."""
  hits = 0
  for seed in range(number):
    generator = np.random.default_rng(seed)
    share = generator.uniform(0.02, 0.98)
    found = statistics.share((generator.random(60) < share).astype(float))
    hits += found.low <= share <= found.high
  assert_covered(np.array(hits / number), number)
  for values in (np.zeros(20), np.ones(20)):
    for method in ("wilson", "exact"):
      found = statistics.share(values, method=method)
      assert 0 <= found.low < found.high <= 1 and found.high - found.low > 0.1


@SIZES
def test_shares_cover_with_prompts_as_clusters(number):
  def find(generator, seed):
    labels = np.repeat(np.arange(60), 4)
    own = np.repeat(generator.beta(2, 3, size=60), 4)  # the mean share of a prompt is 0.4
    return [statistics.share((generator.random(len(own)) < own).astype(float), clusters=labels)]

  assert_covered(coverages(find, [0.4], number), number)


@SIZES
def test_shares_of_scores_cover(number):
  """Probabilities of hits, as retrieval gives them: many are 0 or 1."""

  def find(generator, seed):
    scores = np.where(generator.random(64) < 0.5, generator.random(64) < 0.7, generator.beta(3, 1, size=64))
    return [statistics.share(scores.astype(float))]

  assert_covered(coverages(find, [0.5 * 0.7 + 0.5 * 0.75], number), number)


@SIZES
def test_ratios_cover(number):
  """Tokens per call of images with equal numbers of tokens."""

  def find(generator, seed):
    return [statistics.ratio(np.full(48, 64.0), 1 + generator.binomial(63, generator.beta(4, 6, size=48)))]

  assert_covered(coverages(find, [64 / (1 + 63 * 0.4)], number), number)


@SIZES
def test_means_of_bounded_numbers_cover(number):
  """Total variations of the tokens of texts of different lengths, mostly near 0."""

  def find(generator, seed):
    lengths = generator.integers(8, 64, size=16)
    return [statistics.bounded_ratio(lengths * generator.beta(2, 38, size=16), lengths)]

  assert_covered(coverages(find, [0.05], number), number)


def test_intervals_that_ignore_prompts_are_too_short():
  """The same data without clusters: the simulation detects intervals that are too short."""

  def find(generator, seed):
    labels, effect = _clusters(generator, samples=8)
    return [statistics.mean(0.3 + effect + 0.5 * generator.normal(size=len(labels)), resamples=0)]

  assert coverages(find, [0.3], 200) < 0.8


def test_holm_steps_down_and_a_wanted_difference_needs_the_clusters_that_show_it():
  np.testing.assert_allclose(statistics.holm([0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5])


@pytest.mark.parametrize("tests", [1, 4])
def test_equal_methods_are_shown_to_be_equal_with_the_planned_clusters(tests):
  """Hits that differ in three of ten prompts: the sample size is that of the normal formula, and has the stated power."""
  pilot = statistics.Difference(0.0, 0.0, 0.0, 1.0, np.sqrt(0.3 / 100), 100)
  needed = statistics.required_equivalent_clusters(pilot, 0.05, tests=tests)
  by_hand = {1: 0.3 * ((1.6449 + 1.2816) / 0.05) ** 2, 4: 0.3 * ((2.2414 + 1.2816) / 0.05) ** 2}[tests]
  assert needed == pytest.approx(by_hand, rel=0.01)
  generator, shown, rounds = np.random.default_rng(0), 0, 400
  for _ in range(rounds):
    difference = generator.choice([-1.0, 0.0, 1.0], size=needed, p=[0.15, 0.7, 0.15])
    first, second = (difference > 0).astype(float), (difference < 0).astype(float)
    found = statistics.paired_share_difference(first, second, permutations=1)
    shown += statistics.equivalence(found, 0.05, level=1 - 0.05 / tests).equivalent
  assert shown / rounds == pytest.approx(0.8, abs=0.06)
  with pytest.raises(ValueError, match="margin above 0"):
    statistics.required_equivalent_clusters(pilot, 0.0)
