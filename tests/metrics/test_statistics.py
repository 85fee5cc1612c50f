"""Intervals cover what they say, by simulation: 95 % ones hold the truth in 93 to 97 % of simulated data sets."""

import numpy as np
import pytest

from jaxspec.metrics import statistics
from jaxspec.metrics.distances import kernel_distance_interval

# Data sets of a simulation, and the coverages that pass: 2,000 as the bounds ask, fewer by default with more room.
SIZES = [pytest.param(400, 0.92, 0.98), pytest.param(2000, 0.93, 0.97, marks=pytest.mark.slow)]


def _clusters(generator, prompts=24, samples=4):
  """Labels ``[N]``, and effects of prompts ``[N]`` that make samples of one prompt alike."""
  labels = np.repeat(np.arange(prompts), samples)
  return labels, np.repeat(generator.normal(size=prompts), samples)


@pytest.mark.parametrize("number, low, high", SIZES)
def test_paired_differences_cover_with_prompts_as_clusters(number, low, high):
  hits = 0
  for seed in range(number):
    generator = np.random.default_rng(seed)
    labels, effect = _clusters(generator)
    both = 2 * generator.normal(size=len(labels))
    first = both + 0.3 + 0.5 * effect + generator.normal(size=len(labels))
    second = both + generator.normal(size=len(labels))
    found = statistics.paired_difference(first, second, clusters=labels, resamples=0, permutations=1)
    hits += found.low <= 0.3 <= found.high
  assert low <= hits / number <= high


@pytest.mark.parametrize("number, low, high", SIZES)
def test_shares_cover_in_the_mean_over_shares(number, low, high):
  """Wilson, at shares from 0.02 to 0.98; no share has an interval of one point, with no success or only successes either."""
  hits = 0
  for seed in range(number):
    generator = np.random.default_rng(seed)
    share = generator.uniform(0.02, 0.98)
    found = statistics.share((generator.random(60) < share).astype(float))
    hits += found.low <= share <= found.high
  assert low <= hits / number <= high
  for values in (np.zeros(20), np.ones(20)):
    for method in ("wilson", "exact"):
      found = statistics.share(values, method=method)
      assert 0 <= found.low < found.high <= 1 and found.high - found.low > 0.1


@pytest.mark.parametrize("number, low, high", SIZES)
def test_shares_cover_with_prompts_as_clusters(number, low, high):
  hits = 0
  for seed in range(number):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(60), 4)
    own = np.repeat(generator.beta(2, 3, size=60), 4)  # the mean share of a prompt is 0.4
    found = statistics.share((generator.random(len(own)) < own).astype(float), clusters=labels)
    hits += found.low <= 0.4 <= found.high
  assert low <= hits / number <= high


@pytest.mark.parametrize("number, low, high", SIZES)
def test_kernel_distances_cover(number, low, high):
  """Unit normal vectors against shifted ones, whose distance under the cubic kernel is known by a large sample."""
  width, shift = 4, 0.7
  draw = lambda generator, rows, at: generator.normal(size=(rows, width)) + at
  kernel = lambda x, y: np.mean((np.sum(x * y, axis=1) / width + 1) ** 3)
  generator = np.random.default_rng(10**6)
  pairs = lambda at, other: kernel(draw(generator, 4_000_000, at), draw(generator, 4_000_000, other))
  truth = pairs(0, 0) + pairs(shift, shift) - 2 * pairs(0, shift)
  hits = 0
  for seed in range(number):
    generator = np.random.default_rng(seed)
    found = kernel_distance_interval(draw(generator, 50, 0.0), draw(generator, 50, shift))
    hits += found.low <= truth <= found.high
  assert low <= hits / number <= high


def test_intervals_that_ignore_prompts_are_too_short():
  """The same data without clusters: the simulation tells a wrong interval from a right one."""
  hits, number = 0, 200
  for seed in range(number):
    generator = np.random.default_rng(seed)
    labels, effect = _clusters(generator, samples=8)
    found = statistics.mean(0.3 + effect + 0.5 * generator.normal(size=len(labels)), resamples=0)
    hits += found.low <= 0.3 <= found.high
  assert hits / number < 0.8


def test_holm_steps_down_and_a_wanted_difference_needs_the_clusters_that_show_it():
  np.testing.assert_allclose(statistics.holm([0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5])
