"""Positions of scales, resizing matrices, and the convolution of a scale."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.nn import scales
from tests.models import var_golden as golden

TABLES = golden.arrays("var_tables")


@pytest.mark.parametrize("pixels", scales.PUBLISHED_SIDES)
def test_published_lists(pixels):
  sides = scales.PUBLISHED_SIDES[pixels]
  assert sides == tuple(TABLES[f"patch_nums_{pixels}"].tolist())
  assert scales.phi_of_scale(len(sides), 4) == tuple(TABLES[f"phi_{pixels}"].tolist())
  assert scales.starts(sides)[-1] == {256: 680, 512: 2240}[pixels]
  for side in sides:
    np.testing.assert_allclose(scales.area_matrix(sides[-1], side), TABLES[f"area_{sides[-1]}_{side}"], atol=3e-6)
    np.testing.assert_allclose(scales.bicubic_matrix(side, sides[-1]), TABLES[f"bicubic_{side}_{sides[-1]}"], atol=3e-6)


def test_convolutions_of_scales():
  """Two of ten scales are halfway between two convolutions."""
  assert scales.phi_of_scale(10, 4) == (0, 0, 1, 1, 1, 2, 2, 3, 3, 3)
  assert scales.phi_of_scale(14, 4) == tuple(TABLES["phi_1024"].tolist())
  assert scales.phi_of_scale(6, 4) == tuple(golden.arrays("var_tiny")["phi_of_scale"].tolist())
  assert scales.phi_of_scale(5, 2) == (0, 0, 0, 1, 1)


def test_matrices_keep_constant_images():
  for size, side in ((6, 4), (6, 5), (7, 3), (16, 13)):
    np.testing.assert_allclose(scales.area_matrix(size, side).sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(scales.bicubic_matrix(side, size).sum(axis=1), 1, atol=1e-6)
  np.testing.assert_array_equal(scales.area_matrix(5, 3)[1], np.float32([0, 1 / 3, 1 / 3, 1 / 3, 0]))


def test_rows_and_columns_are_resized_alike():
  x = np.random.default_rng(0).normal(size=(2, 3, 3, 2)).astype(np.float32)
  matrix = scales.bicubic_matrix(3, 5)
  wanted = np.einsum("oh,pw,bhwc->bopc", matrix, matrix, x)
  np.testing.assert_allclose(scales.resize(jnp.asarray(x), matrix), wanted, atol=1e-5)


def test_positions():
  assert scales.starts((1, 2, 4)) == (0, 1, 5, 21)
  assert scales.scale_of_position((1, 2, 3)).tolist() == [0] + [1] * 4 + [2] * 9


@pytest.mark.parametrize("sides", [(), (1,), (2, 3), (1, 3, 3), (1, 2.0), (1, 4, 2)])
def test_lists_that_cannot_be(sides):
  with pytest.raises(ValueError, match="at least two scales that grow from 1 on, we instead got"):
    scales.check_sides(sides)
