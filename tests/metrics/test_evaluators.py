"""Evaluators are loaded, and are called in equal batches."""

import shutil

import jax
import numpy as np
import pytest

from jaxspec.metrics.evaluators import in_batches, load_evaluators
from tests.cli.fake_evaluators import make_fake_evaluators


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return make_fake_evaluators(tmp_path_factory.mktemp("evaluators") / "tiny")


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


@pytest.mark.slow
def test_parts(folder):
  judges = load_evaluators(folder)
  pixels = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), np.uint8)
  for name in ("concept", "classifier", "caption"):
    vectors = judges.embed(name, pixels)
    np.testing.assert_allclose(np.mean(vectors**2, axis=1), 1, rtol=1e-4)
    part = getattr(judges, name)
    direct = jax.jit(part.fns.embed)(part.params, 2.0 * pixels.astype(np.float32) / 255 - 1)
    np.testing.assert_allclose(vectors, direct, atol=1e-4)
  style, group = judges.classify(pixels)
  assert style.shape == group.shape == (5,) and style.max() < 3 and group.max() < 8
  assert judges.embed_text(["red apple", "cat"]).shape == (2, judges.caption.config.embed_dim)


def test_bad_arguments_are_errors(folder, tmp_path):
  with pytest.raises(ValueError, match="No folder of evaluators"):
    load_evaluators(tmp_path / "none")
  copy = shutil.copytree(folder, tmp_path / "copy")
  shutil.rmtree(copy / "concept")
  with pytest.raises(ValueError, match="No checkpoint folder at .*concept"):
    load_evaluators(copy)
  shutil.copytree(copy / "caption", copy / "concept")
  with pytest.raises(ValueError, match="Must have a image_encoder in .*concept, we instead got a caption_encoder"):
    load_evaluators(copy)
