"""Coverage of intervals of distances, by simulation (`tests.evaluation.simulation`).

Vectors are normal, one set of them shifted. True values are from closed forms or larger simulations, which share no code
with the intervals.
"""

import functools

import numpy as np
import pytest

from jaxspec.evaluation.distances import (
  frechet_interval,
  kernel_distance_difference,
  kernel_distance_interval,
  precision_recall_difference,
  precision_recall_interval,
)
from tests.evaluation.simulation import PROOF, SIZES, assert_covered, coverages

WIDTH = 4


def _draw(generator, rows, shift=0.0, width=WIDTH):
  return generator.normal(size=(rows, width)) + shift


def _true_kernel_distance(shift):
  """Of normal vectors and shifted ones: the moments of ``x y`` up to the third in closed form."""

  def kernel(s, t):
    dot, a, b = WIDTH * s * t, WIDTH * s * s, WIDTH * t * t
    second = WIDTH + a + b + dot**2
    third = dot**3 + 3 * dot * (a + b + WIDTH + 2)
    return 1 + 3 * dot / WIDTH + 3 * second / WIDTH**2 + third / WIDTH**3

  return kernel(0, 0) + kernel(shift, shift) - 2 * kernel(0, shift)


@SIZES
def test_kernel_distances_cover(number):
  truth = _true_kernel_distance(0.7)
  find = lambda generator, seed: [kernel_distance_interval(_draw(generator, 50), _draw(generator, 50, 0.7))]
  assert_covered(coverages(find, [truth], number), number)


@SIZES
def test_differences_of_kernel_distances_cover(number):
  """Two methods with similar images of a prompt."""
  truth = _true_kernel_distance(0.5) - _true_kernel_distance(0.2)

  def find(generator, seed):
    both, own = _draw(generator, 50), [_draw(generator, 50) for _ in range(2)]
    first, second = (0.8 * both + 0.6 * x + shift for x, shift in zip(own, (0.5, 0.2)))
    return [kernel_distance_difference(first, second, _draw(generator, 80), permutations=1)]

  assert_covered(coverages(find, [truth], number), number)


def _expected_frechet_distance(rows, other_rows, shift, number=10_000):
  """Mean distance of sets of these sizes, the first set shifted; all sets at once, with the eigenvalues of A B."""
  generator = np.random.default_rng(10**6)
  first = _draw(generator, number * rows, shift).reshape(number, rows, WIDTH)
  second = _draw(generator, number * other_rows).reshape(number, other_rows, WIDTH)
  means = [x.mean(1, keepdims=True) for x in (first, second)]
  covariances = [
    (x - mean).swapaxes(1, 2) @ (x - mean) / (x.shape[1] - 1) for x, mean in zip((first, second), means, strict=True)
  ]
  values = np.linalg.eigvals(covariances[0] @ covariances[1]).real
  traces = sum(np.trace(covariance, axis1=1, axis2=2) for covariance in covariances)
  gaps = np.sum((means[0] - means[1]) ** 2, axis=(1, 2))
  return np.mean(gaps + traces - 2 * np.sum(np.sqrt(np.maximum(values, 0)), axis=1))


@pytest.mark.slow
def test_frechet_distances_cover_their_expectation():
  truth = _expected_frechet_distance(48, 64, 0.3)
  find = lambda generator, seed: [frechet_interval(_draw(generator, 48, 0.3), _draw(generator, 64), seed=seed)]
  assert_covered(coverages(find, [truth], PROOF), PROOF)


@pytest.mark.slow
def test_frechet_intervals_of_equal_distributions_cover_too_often_rather_than_too_seldom():
  truth = _expected_frechet_distance(48, 48, 0.0)
  find = lambda generator, seed: [frechet_interval(_draw(generator, 48), _draw(generator, 48), seed=seed)]
  assert 0.93 <= coverages(find, [truth], 200)


@functools.cache
def _true_precision_recall(shift, size, width):
  """Precision, recall and F1 of sets of ``size`` vectors (the 3rd nearest neighbour), the first set shifted.

  A reflection swaps the two distributions, so precision, recall and their harmonic mean are one number.
  """
  generator = np.random.default_rng(10**6)
  sets = _draw(generator, 10_000 * size, 0.0, width).reshape(-1, size, width)
  points = _draw(generator, 10_000 * 4, shift, width).reshape(-1, 4, width)
  squares = lambda x, y: sum((x[:, :, None, i] - y[:, None, :, i]) ** 2 for i in range(width))
  radius = np.partition(squares(sets, sets), 3, axis=2)[..., 3]
  return (np.mean(np.any(squares(points, sets) <= radius[:, None], axis=2)),) * 3


@pytest.mark.slow
@pytest.mark.parametrize(
  "shift, number",
  [(0.0, 400), (0.6, PROOF)],
)
def test_precision_recall_and_f1_cover(shift, number):
  """Also for equal distributions; in full size in the proof."""
  full = number == PROOF
  count, size, width = (64, 16, 4) if full else (32, 8, 2)
  options = dict(set_size=size, splits=100 if full else 50)
  truth = _true_precision_recall(shift, size, width)

  def find(generator, seed):
    sets = _draw(generator, count, shift, width), _draw(generator, count, 0.0, width)
    return precision_recall_interval(*sets, seed=seed, **options)[:3]

  assert_covered(coverages(find, truth, number), number)


@pytest.mark.slow
def test_differences_of_precision_recall_and_f1_cover():
  """Two methods with similar images of a prompt."""
  size, number = 16, PROOF
  truth = np.subtract(_true_precision_recall(0.8, size, WIDTH), _true_precision_recall(0.4, size, WIDTH))

  def find(generator, seed):
    both, own = _draw(generator, 64), [_draw(generator, 64) for _ in range(2)]
    first, second = (0.8 * both + 0.6 * x + shift for x, shift in zip(own, (0.8, 0.4)))
    return precision_recall_difference(first, second, _draw(generator, 64), set_size=size, seed=seed)[:3]

  assert_covered(coverages(find, truth, number), number)


def test_two_samples_of_one_distribution_have_intervals_that_meet():
  """Intervals of manifolds that stay fixed were disjoint: 0.85 [0.78, 0.90] and 0.70 [0.64, 0.75]."""
  generator = np.random.default_rng(0)
  real = _draw(generator, 100)
  for seed in range(20):
    one, two = (precision_recall_interval(_draw(generator, 64), real, seed=seed).f1 for _ in range(2))
    assert max(one.low, two.low) < min(one.high, two.high)
