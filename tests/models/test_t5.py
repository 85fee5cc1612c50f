"""The T5 encoder agrees with the transformers library on stored arrays; distances fall into the right buckets."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.conditions import left_pad
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.text_encoders.t5 import PUBLISHED_SIZES, T5Config, bucket_starts, distance_buckets, t5_fns
from tests import t5_folders

TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def arrays():
  return dict(np.load(t5_folders.GOLDEN / "encoder.npz"))


@pytest.fixture(scope="module")
def model():
  return t5_folders.golden()


@pytest.fixture(scope="module")
def apply(model):
  return jax.jit(model.fns.apply)


def test_features_agree(model, apply, arrays):
  ids, mask = arrays["input_ids"], arrays["mask"].astype(bool)
  features = np.asarray(apply(model.params, ids, mask))
  assert features.shape == (3, 140, 32) and features.dtype == np.float32
  np.testing.assert_allclose(features * mask[..., None], arrays["last_hidden"], atol=TOLERANCE)
  without = apply(model.params, ids, np.ones_like(mask))
  np.testing.assert_allclose(without[2:], arrays["last_hidden_nomask"], atol=TOLERANCE)
  padded = left_pad(jnp.asarray(features), jnp.asarray(mask))
  np.testing.assert_array_equal(padded.mask, arrays["left_mask"])
  np.testing.assert_allclose(padded.features, arrays["left_padded"], atol=TOLERANCE)


def test_padding_does_not_matter(model, apply, arrays):
  """Padding after the end token changes no feature before it."""
  ids, mask = arrays["input_ids"], arrays["mask"].astype(bool)
  other = np.where(mask, ids, 7)
  first, second = (np.asarray(apply(model.params, each, mask)) for each in (ids, other))
  np.testing.assert_array_equal(first[mask], second[mask])
  assert np.abs(first[~mask] - second[~mask]).max() > 0.1


def test_table_and_first_norm(model, arrays):
  """Rows of small numbers show the eps."""
  mask = arrays["mask"].astype(bool)
  embedded = jnp.asarray(model.params["shared"]["weight"])[arrays["input_ids"]]
  np.testing.assert_array_equal(np.asarray(embedded)[mask], arrays["embedded"][mask])
  normed = RMSNorm(model.config.norm_eps).apply({"params": model.params["block_0_attention_norm"]}, embedded)
  np.testing.assert_allclose(np.asarray(normed)[mask], arrays["norm0"][mask], atol=1e-5)


def test_first_block(model, arrays):
  """A network of one block equals the official one after its first block."""
  fns = t5_fns(dataclasses.replace(model.config, num_layers=1))
  params = {name: leaf for name, leaf in model.params.items() if not name.startswith(("block_1", "block_2"))}
  ids, mask = arrays["input_ids"][1:, :57], arrays["mask"][1:, :57].astype(bool)
  norm = RMSNorm(model.config.norm_eps).apply
  wanted = norm({"params": model.params["final_layer_norm"]}, jnp.asarray(arrays["block0"][1:, :57]))
  np.testing.assert_allclose(jax.jit(fns.apply)(params, ids, mask)[mask], np.asarray(wanted)[mask], atol=TOLERANCE)


def test_buckets(model, arrays):
  np.testing.assert_array_equal(distance_buckets(np.arange(-139, 140), 32, 128), arrays["buckets_by_distance"])
  assert bucket_starts(32, 128) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
  table = np.asarray(model.params["relative_attention_bias"]["weight"])  # [32, heads]
  row = table[distance_buckets(np.arange(140) - 70, 32, 128)].T
  np.testing.assert_array_equal(row, arrays["position_bias_row"])


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (64, 300), (8, 5), (16, 1000), (4, 2)])
def test_buckets_of_other_tables(buckets, longest):
  """The formula with logarithms, away from whole numbers."""
  exact = buckets // 4
  for distance in range(1, 3 * longest):
    step = exact * math.log(distance / exact) / math.log(longest / exact)
    if distance >= exact and abs(step - round(step)) < 1e-9:
      step = round(step)
    wanted = distance if distance < exact else min(2 * exact - 1, exact + math.floor(step))
    assert distance_buckets(np.asarray([-distance, 0, distance]), buckets, longest).tolist() == [
      wanted, 0, wanted + 2 * exact
    ], distance  # fmt: skip


_SLOW = pytest.mark.slow
MILLIONS = {"small": 35, "base": 110, "large": 341, "xl": 1224, "xxl": 4762}


@pytest.mark.parametrize("name", [name if name == "small" else pytest.param(name, marks=_SLOW) for name in PUBLISHED_SIZES])
def test_published_sizes(name):
  template = jax.eval_shape(t5_fns(T5Config.named(name)).init, jax.random.key(0))
  assert round(sum(leaf.size for leaf in jax.tree.leaves(template)) / 1e6) == MILLIONS[name]


def test_names_of_sizes():
  assert T5Config.named("xl") == T5Config()
  with pytest.raises(ValueError, match="a size in small, base"):
    T5Config.named("huge")


def test_configs_that_cannot_be():
  with pytest.raises(ValueError, match="buckets divisible by 4, we instead got 30"):
    T5Config(num_buckets=30)
  with pytest.raises(ValueError, match="max_distance above 8, we instead got 8"):
    T5Config(max_distance=8)


def test_bfloat16_stays_close(model, arrays):
  """The features have the dtype of the weights and are finite."""
  params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.params)
  ids, mask = arrays["input_ids"][1:, :57], arrays["mask"][1:, :57].astype(bool)
  features = jax.jit(model.fns.apply)(params, ids, mask)
  assert features.dtype == jnp.bfloat16
  error = np.abs(np.asarray(features, np.float32) - arrays["last_hidden"][1:, :57])[mask]
  assert error.mean() < 0.05 and error.max() < 1
