"""Tables of distances, neighbours and groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.rules.distances import cluster_table, distance_table, neighbour_table, token_vectors
from tests.rules import golden

CONTINUOUS = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)


@pytest.mark.parametrize("power", [1, 2])
def test_table_and_vectors_agree_with_the_definition(power):
  exact = ((CONTINUOUS[:, None].astype(np.float64) - CONTINUOUS[None]) ** 2).sum(-1) ** (power / 2)
  table = distance_table(jnp.asarray(CONTINUOUS), source="codebook", power=power)
  np.testing.assert_allclose(table.values, exact, atol=2e-3 if power == 1 else 1e-5)  # a root widens errors at 0
  assert (table.source, table.power) == ("codebook", power)
  tokens, others = jnp.asarray([[3], [7]]), jnp.asarray([[[1, 2, 3]], [[0, 7, 19]]])
  asked = exact[np.asarray(tokens)[..., None], np.asarray(others)]
  lazy = token_vectors(jnp.asarray(CONTINUOUS), source="codebook", power=power)
  np.testing.assert_allclose(lazy.between(tokens, others), asked, atol=1e-5)
  np.testing.assert_allclose(table.between(tokens, others), asked, atol=2e-3)


def test_golden_table_of_embeddings():
  case = golden.load("gsd_group")
  table = distance_table(jnp.asarray(case["embedding"]), source="embedding")
  np.testing.assert_allclose(table.values, case["Md"], atol=1e-5)
  stored = distance_table(jnp.asarray(case["embedding"]), source="embedding", dtype=jnp.bfloat16).values
  assert stored.dtype == jnp.bfloat16


def test_record_is_part_of_the_program():
  """The record (source and power) is static: it is no leaf, and a compiled function keeps it."""
  table = distance_table(jnp.asarray(CONTINUOUS), source="embedding")
  assert len(jax.tree.leaves(table)) == 1
  assert jax.jit(lambda t: t)(table).source == "embedding"


def test_neighbours_ties_go_to_the_smaller_id():
  codebook = jnp.asarray([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
  np.testing.assert_array_equal(neighbour_table(codebook, 3), [[1, 2, 3], [2, 3, 0], [1, 3, 0], [1, 2, 0]])


@pytest.mark.slow
def test_clusters_find_separated_blobs():
  generator = np.random.default_rng(1)
  truth = np.repeat(np.arange(4), 8)
  centres = 20 * np.eye(4, 6)
  vectors = centres[truth] + generator.normal(size=(32, 6))
  best = None
  for seed in range(4):  # Lloyd's iteration finds local optima; one start in a few finds the blobs
    found = np.asarray(cluster_table(jnp.asarray(vectors, jnp.float32), 4, jax.random.key(seed)))
    assert found.shape == (32,) and found.min() >= 0 and found.max() < 4
    if all(np.unique(found[truth == blob]).size == 1 for blob in range(4)) and np.unique(found).size == 4:
      best = seed
  assert best is not None
  singles = cluster_table(jnp.asarray(vectors, jnp.float32), 32, jax.random.key(0))
  assert np.unique(singles).size == 32


def test_settings_out_of_range_are_errors():
  for wrong in (dict(source="pixels"), dict(source="codebook", power=3)):
    with pytest.raises(ValueError, match="Must have"):
      distance_table(jnp.asarray(CONTINUOUS), **wrong)
    with pytest.raises(ValueError, match="Must have"):
      token_vectors(jnp.asarray(CONTINUOUS), **wrong)
  with pytest.raises(ValueError, match="Must have vectors"):
    distance_table(jnp.zeros((3,)), source="codebook")
  with pytest.raises(ValueError, match="Must have between 1 and 20 clusters"):
    cluster_table(jnp.asarray(CONTINUOUS), 21, jax.random.key(0))
