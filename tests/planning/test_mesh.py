"""Rules of division, and meshes that are refused in one line."""

import dataclasses
import re

import pytest

from jaxspec.checkpoints import flatten
from jaxspec.mesh import MeshSizes, can_divide, param_specs, parse
from jaxspec.planning.mesh import Use, divisors, rule_of
from jaxspec.planning.sizes import sized
from tests.planning.test_sizes import CONFIGS, LLAMAGEN, MAR


def test_parse():
  assert parse("data=2,model=4") == MeshSizes(2, 4) and parse("data=3").count == 3
  assert str(MeshSizes(2, 4)) == "data=2,model=4" and MeshSizes(2, 4).rows(6) == 3
  for text in ("", "data", "data=0", "data=x", "rows=2", "data=2,data=2", "data=-1"):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
      parse(text)
  with pytest.raises(ValueError, match="rows that the axis data=4 divides, we instead got 6"):
    MeshSizes(4, 1).rows(6)


def test_divisors():
  assert divisors(20, 12) == [1, 2, 4] and divisors(7) == [1, 7]


def test_a_sum_over_a_ring():
  assert MeshSizes(1, 1).ring(8.0) == 0 and MeshSizes(5, 4).ring(8.0) == 12


@pytest.mark.parametrize("path, shape, use, axis", [
  ("layers_0.attention.wqkv.weight", (48, 16), Use.PASS, 0),
  ("layers_3.self_attn.q_proj.bias", (16,), Use.ADDED, 0),
  ("h_1.mlp.c_proj.weight", (16, 64), Use.PASS, 1),
  ("h_1.mlp.c_proj.bias", (16,), Use.ADDED, None),
  ("trunk.output.weight", (10, 16), Use.HEAD, 0),
  ("cls_embedding.cap_proj.fc1.weight", (16, 12), Use.CONDITION, None),
  ("encoder_pos_embed_learned", (1, 18, 16), Use.LOOKUP, None),
  ("z_proj.weight", (16, 3), Use.PASS, None),
  ("diffloss.res_blocks_1.mlp_0.weight", (8, 8), Use.STEP, None),
  ("encoder_norm.weight", (16,), Use.ADDED, None),
  ("layers_0.self_attn.q_norm.weight", (4, 8), Use.ADDED, None),
])  # fmt: skip
def test_rules(path, shape, use, axis):
  rule = rule_of(path, shape)
  assert (rule.use, rule.axis) == (use, axis)


def test_a_tied_table_is_multiplied():
  assert rule_of("wte.weight", (10, 16)).use is Use.LOOKUP and rule_of("wte.weight", (10, 16), tied=True).use is Use.HEAD


DIVIDED = [family for family, config in CONFIGS.items() if can_divide(config)]


@pytest.mark.parametrize("family", DIVIDED)
def test_what_is_divided(family):
  """What a plan counts with is how a mesh divides the parameters, matrix by matrix."""
  config = dataclasses.replace(CONFIGS[family], tensor_parallel=True)
  network = sized(family, config, family)
  network.check_mesh(MeshSizes(1, 2))
  specs = flatten(param_specs(network.network.params, tied=getattr(config, "tie_embeddings", False)))
  assert len(network.leaves) == len(specs) and any("model" in tuple(spec) for spec in specs.values())
  for leaf in network.leaves:
    halved = leaf.divided(MeshSizes(1, 2)) == leaf.size // 2
    assert halved == ("model" in tuple(specs[leaf.path])), leaf.path


def test_refused():
  """The line names the axis, what it does not divide, and what it may be."""
  network = sized("llamagen", LLAMAGEN, "tiny")
  with pytest.raises(ValueError, match=r"axis model that divides the 4 heads of tiny \(one of 1, 2\), .* model=3"):
    network.check_mesh(MeshSizes(1, 3))
  with pytest.raises(ValueError, match="the 2 key and value heads of tiny"):
    network.check_mesh(MeshSizes(1, 4))
  masked = sized("mar", MAR, "mar")
  with pytest.raises(ValueError, match="model=1 for mar, whose networks are copied to all devices, we instead got 2"):
    masked.check_mesh(MeshSizes(2, 2))
  masked.check_mesh(MeshSizes(4, 1))
  assert network.fitting(MeshSizes(3, 2)) == MeshSizes(3, 2) and masked.fitting(MeshSizes(3, 2)) == MeshSizes(3, 1)
  assert dataclasses.replace(network, is_draft=True).fitting(MeshSizes(3, 2)) == MeshSizes(3, 1)
