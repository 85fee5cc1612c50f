"""Operations that tests compute on the host give the bits of the compiled ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests import host_operations

VALUE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7
CASES = {
  "broadcast": lambda x: lax.broadcast_in_dim(x, (5, 2, 1, 3, 4), (1, 3, 4)),
  "broadcast of a size of one": lambda x: lax.broadcast_in_dim(x[:, :1], (2, 6, 4), (0, 1, 2)),
  "concatenate": lambda x: lax.concatenate([x, x[:, :2]], 1),
  "dynamic slice": lambda x: lax.dynamic_slice(x, (0, 1, 2), (1, 2, 2)),
  "dynamic slice from outside": lambda x: lax.dynamic_slice(x, (-9, 2, jnp.int32(3)), (1, 2, 2)),
  "iota": lambda x: lax.broadcasted_iota(jnp.int32, x.shape, 1),
  "reshape": lambda x: lax.reshape(x, (6, 4)),
  "reshape in another order": lambda x: lax.reshape(x, (6, 4), (2, 0, 1)),
  "slice": lambda x: lax.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3)),
  "squeeze": lambda x: lax.squeeze(x[:, 1:2], (1,)),
  "transpose": lambda x: lax.transpose(x, (2, 0, 1)),
  "asarray": jnp.asarray,
  "keys": lambda x: jax.random.key_data(jax.random.split(jax.random.key(3), 4).reshape(2, 2)[1:]),
  "a weak type": lambda x: lax.broadcast(jnp.asarray(2.0), (3,)) + jnp.bfloat16(1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int32, np.bool_])
def test_the_same_bits_as_compiled(name, dtype, request):
  value = jnp.asarray(VALUE.astype(dtype))
  on_host = CASES[name](value)
  request.getfixturevalue("compiled_operations")
  compiled = CASES[name](value)
  assert on_host.dtype == compiled.dtype and on_host.weak_type == compiled.weak_type
  assert on_host.shape == compiled.shape and on_host.committed == compiled.committed
  assert np.asarray(on_host).tobytes() == np.asarray(compiled).tobytes()


def test_results_do_not_change_with_an_array_of_the_host():
  value = np.arange(6)
  copied, sliced = jnp.asarray(value), lax.slice(value, (1,), (4,))
  value[:] = 9
  np.testing.assert_array_equal(copied, np.arange(6))
  np.testing.assert_array_equal(sliced, [1, 2, 3])


def test_values_on_a_chosen_device_stay_there():
  value = jax.device_put(np.ones(3), jax.devices()[0])
  assert value.committed and lax.reshape(value, (3, 1)).committed


def test_every_operation_is_replaced():
  for primitive, compiled in host_operations.COMPILED.items():
    assert primitive.impl is not compiled
