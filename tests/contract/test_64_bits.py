"""With ``jax_enable_x64``, all numbers of a decode have 32 bits, and tokens do not change."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.contract.cases import CASES
from tests.helpers import slow_but

FAST = {"speculative", "sqs", "step-ciar"}


@pytest.mark.parametrize("name", slow_but(CASES, FAST))
def test_no_number_of_a_decode_has_64_bits(name):
  case = CASES[name]
  condition, decoder = case.condition(3), dataclasses.replace(case.decoder)
  with jax.enable_x64(True):
    decode = decoder.decode_fn(max_len=decoder.context.space.num_tokens)
    data = jax.random.key_data(jax.random.split(jax.random.key(0), 3))
    result = jax.eval_shape(decode, decoder.parts.params, data, condition)
  assert {leaf.dtype.itemsize for leaf in jax.tree.leaves(result)} <= {1, 2, 4}


@pytest.mark.slow
def test_tokens_are_the_same():
  case = CASES["speculative"]
  labels = np.arange(3) % 2
  kwargs = dict(key=jax.random.key(7), max_len=4)
  expected = case.decoder(case.condition(3)._replace(labels=jnp.asarray(labels, jnp.int32)), **kwargs).tokens
  with jax.enable_x64(True):
    condition = case.condition(3)._replace(labels=jnp.asarray(labels))  # int64
    found = dataclasses.replace(case.decoder)(condition, **kwargs).tokens
  np.testing.assert_array_equal(found, expected)
