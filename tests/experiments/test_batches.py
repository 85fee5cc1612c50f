"""Networks are called on equal batches."""

import numpy as np
import pytest

from experiments.data.batches import in_batches


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_batches_are_equal_and_filled_up(rows):
  shapes = []

  def double(x, y):
    shapes.append(x.shape)
    return 2 * x, (y + 1).sum(axis=1)

  x, y = np.arange(rows * 3.0).reshape(rows, 3), np.ones((rows, 2))
  first, second = in_batches(double, x, y, batch=4)
  np.testing.assert_array_equal(first, 2 * x)
  np.testing.assert_array_equal(second, np.full(rows, 4.0))
  assert set(shapes) == {(4, 3)}
