"""Two-dimensional rotary positions (their golden tables are in ``test_llamagen_golden.py``)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.nn import rope

# One program each, in place of one for each operation.
rope_2d = jax.jit(rope.rope_2d, static_argnames=("prefix_len", "grid", "head_dim", "base", "prefix_keys"))
rotate = jax.jit(rope.rotate)


def _reference(prefix_len, grid, head_dim, base):
  """Float64 table in plain loops."""
  table = np.zeros((prefix_len + grid * grid, head_dim // 2, 2))
  for i in range(grid * grid):
    for p in range(head_dim // 2):
      along = i // grid if p < head_dim // 4 else i % grid
      angle = along * base ** (-2 * (p % (head_dim // 4)) / (head_dim // 2))
      table[prefix_len + i, p] = np.cos(angle), np.sin(angle)
  return table


@pytest.mark.parametrize("prefix_len, grid, head_dim, base", [(1, 6, 20, 10000.0), (120, 3, 64, 10000.0), (2, 5, 12, 100.0)])
def test_table_equals_plain_loops(prefix_len, grid, head_dim, base):
  expected = _reference(prefix_len, grid, head_dim, base)
  table = rope_2d(jnp.arange(len(expected)), prefix_len=prefix_len, grid=grid, head_dim=head_dim, base=base)
  assert table.dtype == jnp.float32
  np.testing.assert_allclose(table, expected, atol=2e-6)


def test_condition_rows_are_zero_not_identity():
  table = rope_2d(jnp.arange(9)[None], prefix_len=5, grid=2, head_dim=8, base=10000.0)
  assert not np.asarray(table[:, :5]).any()
  x = jnp.ones((1, 9, 2, 8))
  assert not np.asarray(rotate(x, table)[:, :5]).any()


@pytest.mark.slow
def test_positions_may_differ_between_rows_and_exceed_the_image():
  whole = rope_2d(jnp.arange(40), prefix_len=1, grid=5, head_dim=16, base=10000.0)
  positions = jnp.array([[0, 1, 2], [30, 31, 39]])
  rows = rope_2d(positions, prefix_len=1, grid=5, head_dim=16, base=10000.0)
  np.testing.assert_array_equal(rows, whole[np.asarray(positions)])


def test_scores_depend_on_differences_only():
  grid, head_dim = 6, 20
  table = rope_2d(jnp.arange(grid * grid), prefix_len=0, grid=grid, head_dim=head_dim, base=10000.0)[None]
  q, k = (np.random.default_rng(s).normal(size=(1, 1, 1, head_dim)).astype(np.float32) for s in (0, 1))
  everywhere = lambda x: rotate(jnp.broadcast_to(x, (1, grid * grid, 1, head_dim)), table)[0, :, 0]  # noqa: E731
  scores = np.asarray(everywhere(q) @ everywhere(k).T).reshape((grid,) * 4)
  np.testing.assert_allclose(scores[1:, 1:, 1:, 1:], scores[:-1, :-1, :-1, :-1], atol=1e-5)
  norms = np.linalg.norm(everywhere(q), axis=-1)
  np.testing.assert_allclose(norms, np.linalg.norm(q), rtol=1e-5)


def test_interleaved_pairs_and_dtype():
  angle = np.float32(0.3)
  table = jnp.asarray([[[[np.cos(angle), np.sin(angle)]] * 2]])  # every pair by the same angle
  x = jnp.asarray([[[[1.0, 0.0, 0.0, 1.0]]]])
  expected = [np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)]
  np.testing.assert_allclose(rotate(x, table)[0, 0, 0], expected, atol=1e-6)
  assert rotate(x.astype(jnp.bfloat16), table).dtype == jnp.bfloat16


def test_positions_may_be_traced():
  build = lambda p: rope.rope_2d(p, prefix_len=1, grid=4, head_dim=8, base=10000.0)  # noqa: E731
  np.testing.assert_allclose(jax.jit(build)(jnp.arange(17)), build(jnp.arange(17)), atol=1e-6)


def test_condition_positions_may_keep_their_keys():
  """``prefix_keys`` changes the condition rows only: from cos = sin = 0 to the identity."""
  kwargs = dict(prefix_len=3, grid=4, head_dim=8, base=10000.0)
  positions = jnp.arange(19)
  official, kept = rope_2d(positions, **kwargs), rope_2d(positions, **kwargs, prefix_keys=True)
  np.testing.assert_array_equal(official[3:], kept[3:])
  assert not np.asarray(official[:3]).any()
  x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3, 2, 8)), jnp.float32)
  np.testing.assert_array_equal(rotate(x, kept[None, :3]), x)
