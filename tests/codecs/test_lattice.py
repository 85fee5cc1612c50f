"""The lattice quantizer: reference vectors, nearest points, bounds; theorems T-a and T-b on the traced functions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.codecs import lattice
from jaxspec.codecs.codec import topk_lattice
from jaxspec.codecs.sparse_distribution import SparseDistribution, count_of, dense, draw
from jaxspec.codecs.sparsify import TopK, TopKParams, top_support

quantize = jax.jit(lattice.quantize, static_argnums=2)


def covering_radius(size: int, ell: int) -> float:
  """Largest total variation between a distribution on ``size`` tokens and its lattice point: ``a (K - a) / (K ell)``."""
  a = size // 2
  return a * (size - a) / (size * ell)


def padded(distributions, width):
  """Distributions of different lengths as ``[N, width]`` and their sizes."""
  probs = np.zeros((len(distributions), width))
  for row, distribution in enumerate(distributions):
    probs[row, : len(distribution)] = distribution
  return jnp.asarray(probs, jnp.float32), jnp.asarray([len(distribution) for distribution in distributions], jnp.int32)


@pytest.mark.parametrize(
  "distribution,ell,expected",
  [
    ([0.34, 0.33, 0.33], 10, [4, 3, 3]),
    ([0.25, 0.25, 0.5], 2, [1, 0, 1]),
    ([1 / 7] * 7, 3, [1, 1, 1, 0, 0, 0, 0]),
    ([0.7, 0.2, 0.1], 1, [1, 0, 0]),
    ([0.995, 0.003, 0.002], 100, [100, 0, 0]),
  ],
)
def test_reference_vectors(distribution, ell, expected):
  counts = quantize(*padded([distribution], 9), ell)[0]
  assert counts[: len(distribution)].tolist() == expected
  assert not counts[len(distribution) :].any()


def test_rounding_without_renormalising_misses_the_denominator():
  """The published Algorithm 2 rounds the probabilities in the support without renormalising: half the mass on one token
  gives 50 of 100.
  """
  kept, ell = np.array([0.5]), 100
  counts = np.floor(ell * kept + 0.5).astype(int)
  deficit = ell - counts.sum()
  counts[np.argsort(counts - ell * kept)[:deficit]] += 1  # each position is rounded once
  assert deficit == 50 and counts.sum() == 51

  @jax.jit
  def counts_of(probs):
    return topk_lattice(3, 1, ell=ell).distribution(top_support(probs, jnp.array([1]), max_support=1)).counts

  assert counts_of(jnp.array([[0.5, 0.3, 0.2]])).tolist() == [[100]]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("ell", [1, 100, pytest.param(3, marks=SLOW), pytest.param(1000, marks=SLOW)])
def test_counts_are_a_lattice_point_within_the_covering_radius(ell):
  """5,000 distributions for each denominator, in float32 as in the loop. Counts are never negative and add up exactly."""
  generator = np.random.default_rng(ell)
  sizes = generator.integers(1, 200, 5_000)
  raw = generator.gamma(generator.choice([0.05, 0.5, 5.0], (len(sizes), 1)), size=(len(sizes), 200)) + 1e-12
  raw[np.arange(200)[None] >= sizes[:, None]] = 0
  probs = (raw / raw.sum(1, keepdims=True)).astype(np.float32)
  counts = np.asarray(quantize(jnp.asarray(probs), jnp.asarray(sizes, jnp.int32), ell))
  assert counts.min() >= 0
  np.testing.assert_array_equal(counts.sum(1), ell)
  assert not counts[np.arange(200)[None] >= sizes[:, None]].any()
  exact = probs.astype(np.float64) / probs.astype(np.float64).sum(1, keepdims=True)
  distance = 0.5 * np.abs(exact - counts / ell).sum(1)
  radius = np.array([covering_radius(size, ell) for size in sizes])
  assert (distance <= radius + 1e-6).all()
  assert (radius <= sizes / (4 * ell) + 1e-12).all()


@pytest.mark.parametrize("size,ell", [(2, 6), (3, 4), (4, 3), (4, 6)])
def test_no_lattice_point_is_nearer(size, ell):
  generator = np.random.default_rng(size)
  distributions = np.concatenate(
    [generator.dirichlet(np.ones(size), 300), generator.multinomial(24, np.ones(size) / size, 200) / 24]
  )
  counts = np.asarray(quantize(*padded(distributions, size), ell))
  points = np.array([c for c in itertools.product(range(ell + 1), repeat=size) if sum(c) == ell]) / ell
  best = np.abs(distributions[:, None] - points[None]).sum(2).min(1)
  assert (np.abs(distributions - counts / ell).sum(1) <= best + 1e-6).all()


def test_half_precision_weights_are_integers():
  probs, size = padded([[0.5, 0.3, 0.2], [1.0], [1 - 2e-7, 2e-7]], 4)
  weights = np.asarray(lattice.half(probs, size))
  np.testing.assert_array_equal(weights / lattice.HALF_UNIT, np.asarray(probs).astype(np.float16))
  assert weights[1].tolist() == [lattice.HALF_UNIT, 0, 0, 0]


def test_sampling_is_exact():
  """Over all integers below the total, every entry is drawn exactly as often as its count says."""
  distribution = SparseDistribution(jnp.array([3, 5, 8, 0]), jnp.array([4, 0, 6, 0]), jnp.int32(3), jnp.int32(10))
  distributions = SparseDistribution(*(jnp.broadcast_to(leaf, (10, *leaf.shape)) for leaf in distribution))
  entries = draw(distributions, jnp.arange(10, dtype=jnp.int32))
  assert np.bincount(entries, minlength=4).tolist() == [4, 0, 6, 0]
  np.testing.assert_allclose(dense(distributions, 9)[0], [0, 0, 0, 0.4, 0, 0, 0, 0, 0.6], atol=1e-7)
  assert count_of(distributions, jnp.full((10,), 8)).tolist() == [6] * 10
  assert count_of(distributions, jnp.full((10,), 4)).tolist() == [0] * 10


def test_top_k_breaks_ties_by_id_and_keeps_no_zeros():
  q = jnp.array([[0.2, 0.3, 0.2, 0.3, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]])
  choose = jax.jit(lambda num: TopK(3).support(TopKParams(num), (), q, jnp.full((2,), 3)))
  support = choose(jnp.array([3, 3]))
  assert support.ids.tolist() == [[0, 1, 3], [1, 0, 0]]
  assert support.size.tolist() == [3, 1]
  np.testing.assert_allclose(support.dropped, [0.2, 0.0], atol=1e-7)
  assert choose(jnp.array([1, 3])).size.tolist() == [1, 1]


@pytest.mark.slow
def test_dropped_mass_and_quantization_bound_the_distance():
  """T-a: TV(q, q renormalised on the support) = d.  T-b: TV(q, qhat) <= d + a (K - a) / (K ell) <= d + K / (4 ell)."""
  generator = np.random.default_rng(0)
  q = generator.dirichlet(np.full(60, 0.2), 4000)
  sizes = generator.integers(1, 40, 4000)
  support = jax.jit(top_support, static_argnames="max_support")(
    jnp.asarray(q, jnp.float32), jnp.asarray(sizes, jnp.int32), max_support=40
  )
  for ell in (5, 100):
    distribution = topk_lattice(60, 40, ell=ell).distribution(support)
    renormalised = np.zeros_like(q)
    np.add.at(renormalised, (np.arange(4000)[:, None], np.asarray(support.ids)), np.asarray(support.probs))
    d = np.asarray(support.dropped)
    np.testing.assert_allclose(0.5 * np.abs(q - renormalised).sum(1), d, atol=2e-6)
    distance = 0.5 * np.abs(q - np.asarray(dense(distribution, 60))).sum(1)
    radius = np.array([covering_radius(size, ell) for size in np.asarray(support.size)])
    assert (distance <= d + radius + 2e-6).all()
    assert (distance <= d + np.asarray(support.size) / (4 * ell) + 2e-6).all()


def test_affordable_sizes():
  codec = topk_lattice(50257, 64)
  size = codec.affordable(jnp.array([64, 64, 4, 64]), jnp.array([5000.0, 300.0, 5000.0, 10.0]))
  assert size.tolist() == [64, 18, 4, 0]
  for bad in (dict(ell=0), dict(coding="zip"), dict(coding="dense"), dict(ell=1 << 16)):
    with pytest.raises(ValueError, match="Must have"):
      topk_lattice(50257, 64, **bad)
  with pytest.raises(ValueError, match="support"):
    topk_lattice(8, 9)
