"""Rules of division, and meshes that are refused in one line."""

import re

import pytest

from jaxspec.planning.mesh import Mesh, Use, divisors, parse_mesh, rule_of
from jaxspec.planning.sizes import sized
from tests.planning.test_sizes import CONFIGS, LLAMAGEN, MAR


def test_parse():
  assert parse_mesh("data=2,model=4") == Mesh(2, 4) and parse_mesh("data=3").count == 3
  assert str(Mesh(2, 4)) == "data=2,model=4" and Mesh(2, 4).rows(6) == 3
  for text in ("", "data", "data=0", "data=x", "rows=2", "data=2,data=2", "data=-1"):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
      parse_mesh(text)
  with pytest.raises(ValueError, match="batch that the axis data=4 divides, we instead got 6"):
    Mesh(4, 1).rows(6)


def test_divisors():
  assert divisors(20, 12) == [1, 2, 4] and divisors(7) == [1, 7]


def test_a_sum_over_a_ring():
  assert Mesh(1, 1).ring(8.0) == 0 and Mesh(5, 4).ring(8.0) == 12


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


@pytest.mark.parametrize("family", CONFIGS)
def test_what_is_divided(family):
  """Every matrix of the blocks is halved by two devices; norms, positions and denoising heads are whole."""
  network = sized(family, CONFIGS[family], family)
  network.check_mesh(Mesh(1, 2))
  for leaf in network.leaves:
    halved = leaf.divided(Mesh(1, 2)) == leaf.size // 2
    in_block = re.search(r"(attention|attn|feed_forward|mlp)\.\w+\.weight$", leaf.path) and "diffloss" not in leaf.path
    assert halved or not in_block, leaf.path
    assert not (halved and re.search(r"norm|ln_|diffloss|_learned", leaf.path)), leaf.path


def test_refused():
  """The line names the axis, what it does not divide, and what it may be."""
  network = sized("llamagen", LLAMAGEN, "tiny")
  with pytest.raises(ValueError, match=r"axis model that divides the 4 heads of tiny \(one of 1, 2\), .* model=3"):
    network.check_mesh(Mesh(1, 3))
  with pytest.raises(ValueError, match="the 2 key and value heads of tiny"):
    network.check_mesh(Mesh(1, 4))
  masked = sized("mar", MAR, "mar")
  with pytest.raises(ValueError, match="the 2 heads of mar"):
    masked.check_mesh(Mesh(2, 4))
  assert network.fitting(Mesh(2, 4)) == Mesh(2, 1) and network.fitting(Mesh(3, 2)) == Mesh(3, 2)
