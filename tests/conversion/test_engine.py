"""Rules of the conversion table."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conversion import engine, llamagen, llamagen_vq
from conversion.rules import Rule, conv, linear_as_conv
from tests.conversion.array_tensor import ArrayTensor

FAMILIES = {"llamagen": llamagen.FAMILY, "llamagen_vq": llamagen_vq.FAMILY}


def test_rules_map_names_in_both_directions():
  rule = Rule("layers.{i}.block.{part:w1|w2}.weight")
  assert rule.to_target("layers.12.block.w2.weight") == "layers_12.block.w2.weight"
  assert rule.to_source("layers_12.block.w2.weight") == "layers.12.block.w2.weight"
  for name in ("layers.1.block.w3.weight", "layers.1.block.w1.weight.", "xlayers.1.block.w1.weight"):
    assert rule.to_target(name) is None
  assert rule.to_target("layers.01.block.w1.weight") is None
  assert rule.to_target("layers_1_block_w1_weight") is None  # a dot in a pattern matches only a dot
  assert Rule("a.{i}.b", "c.{i}").to_target("a.3.b") == "c.3"


@given(shape=st.tuples(*[st.integers(0, 4)] * 4))
def test_permutations_are_inverse(shape):
  rule = conv("a")[0]
  array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  ours = rule.to_target_array(array)
  assert ours.shape == rule.target_shape(shape) and rule.source_shape(ours.shape) == shape
  np.testing.assert_array_equal(ours, np.einsum("oihw->hwio", array))
  np.testing.assert_array_equal(rule.to_source_array(ours), array)
  assert rule.target_shape(shape[:3]) is None


@given(shape=st.tuples(*[st.integers(0, 4)] * 2))
def test_linear_layers_that_are_convolutions(shape):
  rule = linear_as_conv("a", "b")[0]
  array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
  ours = rule.to_target_array(array)
  assert ours.shape == rule.target_shape(shape) == (1, 1, shape[1], shape[0]) and rule.source_shape(ours.shape) == shape
  np.testing.assert_array_equal(ours[0, 0], array.T)
  np.testing.assert_array_equal(rule.to_source_array(ours), array)
  assert rule.target_shape((*shape, 1, 1)) is None and rule.to_target("a.weight") == "b.weight"


@given(hidden=st.integers(1, 20_000), dim=st.integers(1, 5_000))
@example(hidden=60, dim=44)  # 60 / 44 * 44 is just below 60 in float64
def test_ratios_give_the_hidden_width_back(hidden, dim):
  assert int(engine.mlp_ratio(hidden, dim) * dim) == hidden
  assert engine.mlp_ratio(None, dim) is None and engine.mlp_ratio(hidden, None) is None


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_leaf_has_exactly_one_rule(family):
  from jaxspec.models import registry

  template = engine.template_of(registry.FAMILIES[family.name].config_class())
  shapes = engine.source_shapes(family, template)
  assert len(shapes) == len(template)
  for name in shapes:
    assert sum(rule.to_target(name) is not None for rule in family.rules) == 1
    assert {rule.to_target(name) for rule in family.rules} - {None} <= template.keys()


def test_two_names_for_one_leaf_are_an_error():
  family = engine.Family("llamagen", (Rule("a.{i}", "x"),), (), llamagen.infer_config)
  tensors = {f"a.{i}": ArrayTensor(np.zeros(2, np.float32)) for i in range(2)}
  with pytest.raises(ValueError, match="a.1 and a.0 both give x"):
    engine.convert(tensors, family)


def test_an_entry_that_is_no_tensor_is_named_in_the_error():
  with pytest.raises(ValueError, match=r"norm\.weight is no tensor"):
    engine.convert(
      {"norm.weight": 3, "output.weight": ArrayTensor(np.zeros((2, 2), np.float32))},
      llamagen.FAMILY,
    )
  with pytest.raises(ValueError, match=r"norm\.weight is no tensor"):
    engine.convert({"norm.weight": np.zeros(2, np.float32)}, llamagen.FAMILY)  # an array of NumPy in a pickle
  with pytest.raises(ValueError, match="unknown 5"):
    engine.convert({5: 3, "norm.weight": ArrayTensor(np.zeros(2, np.float32))}, llamagen.FAMILY)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_where_they_are_read(value, dtype):
  rule = Rule("a", "x")
  good = np.arange(6, dtype=np.float32).astype(dtype).reshape(2, 3)
  np.testing.assert_array_equal(engine.LazyLeaf("a", ArrayTensor(good), rule), good.astype(np.float32))
  assert np.asarray(engine.LazyLeaf("a", ArrayTensor(good[:0]), rule)).shape == (0, 3)
  bad = good.copy()
  bad[1, 2] = value
  with pytest.raises(ValueError, match="finite weights, a holds NaN or infinity"):
    np.asarray(engine.LazyLeaf("a", ArrayTensor(bad), rule))


def test_most_common_ignores_one_outlier():
  assert engine.most_common([4, None, 7, 4]) == 4
  assert engine.most_common([None]) is None
