"""Generation orders: permutations, their inverse, independence of rows."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.core import orders, rng


def test_random_orders():
  keys = rng.row_keys(jax.random.key(0), 600)
  order = np.asarray(orders.random_order(keys, 4))
  np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(4), (600, 1)))
  counts = np.asarray([np.bincount(order[:, j], minlength=4) for j in range(4)])
  assert np.all(np.abs(counts - 150) < 60)  # more than five deviations
  np.testing.assert_array_equal(orders.random_order(keys[::-1], 4), order[::-1])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_raster_and_generation_order(seed):
  generator = np.random.default_rng(seed)
  order = jnp.asarray(np.stack([generator.permutation(6) for _ in range(2)]), jnp.int32)
  values = jnp.asarray(generator.normal(size=(2, 6, 3)), jnp.float32)
  np.testing.assert_array_equal(orders.to_raster(orders.to_generation_order(values, order), order), values)
