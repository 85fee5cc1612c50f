"""Uses of parameters, their division by the axis of a mesh, and errors of one line for invalid meshes."""

import dataclasses
import re

import pytest

from jaxspec.core.mesh import MeshSizes, allowed, check_fits, divided_axis, parse
from jaxspec.planning.sizes import sized
from jaxspec.planning.uses import Use, use_of
from tests.planning.test_sizes import CONFIGS, LLAMAGEN, MAR


def test_parse():
  assert parse("data=2,model=4") == MeshSizes(2, 4) and parse("data=3").num_devices == 3
  assert str(MeshSizes(2, 4)) == "data=2,model=4" and MeshSizes(2, 4).rows(6) == 3
  for text in ("", "data", "data=0", "data=x", "rows=2", "data=2,data=2", "data=-1"):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
      parse(text)
  with pytest.raises(ValueError, match="rows that the axis data=4 divides, we instead got 6"):
    MeshSizes(4, 1).rows(6)


def test_sizes_that_are_allowed():
  assert allowed(LLAMAGEN) == [1, 2] and allowed(MAR) == [1]
  assert allowed(dataclasses.replace(CONFIGS["llama"], num_heads=20, num_kv_heads=20, dim=80, ffn_hidden=12)) == [1, 2, 4]


def test_a_sum_over_a_ring():
  assert MeshSizes(1, 1).ring(8.0) == 0 and MeshSizes(5, 4).ring(8.0) == 12


@pytest.mark.parametrize("path, shape, use, axis", [
  ("layers_0.attention.wqkv.weight", (48, 16), Use.PASS, 0),
  ("layers_3.self_attn.q_proj.bias", (16,), Use.ADDED, 0),
  ("h_1.mlp.c_proj.weight", (16, 64), Use.PASS, 1),
  ("h_1.mlp.c_proj.bias", (16,), Use.ADDED, None),
  ("trunk.output.weight", (10, 16), Use.HEAD, 0),
  ("output.weight", (9, 16), Use.HEAD, None),
  ("tok_embeddings.weight", (9, 16), Use.LOOKUP, 1),
  ("cls_embedding.cap_proj.fc1.weight", (16, 12), Use.CONDITION, None),
  ("encoder_pos_embed_learned", (1, 18, 16), Use.LOOKUP, None),
  ("z_proj.weight", (16, 3), Use.PASS, None),
  ("diffloss.res_blocks_1.mlp_0.weight", (8, 8), Use.STEP, None),
  ("encoder_norm.weight", (16,), Use.ADDED, None),
  ("layers_0.self_attn.q_norm.weight", (4, 8), Use.ADDED, None),
])  # fmt: skip
def test_rules(path, shape, use, axis):
  assert (use_of(path, shape), divided_axis(path, shape, 2)) == (use, axis)


def test_a_tied_table_is_multiplied():
  assert use_of("wte.weight", (10, 16)) is Use.LOOKUP and use_of("wte.weight", (10, 16), tied=True) is Use.HEAD
  assert [divided_axis("wte.weight", (10, 16), 2, tied=tied) for tied in (False, True)] == [1, 0]


def test_numbers_on_each_device():
  """A network with an odd vocabulary: its tied table and its norms are whole, its blocks are halved."""
  network = sized("gpt_neo", dataclasses.replace(CONFIGS["gpt_neo"], vocab_size=11), "tiny")
  whole = {leaf.path for leaf in network.leaves if leaf.divided(MeshSizes(1, 2)) == leaf.size}
  halved = {leaf.path for leaf in network.leaves if leaf.divided(MeshSizes(1, 2)) == leaf.size // 2}
  assert whole | halved == {leaf.path for leaf in network.leaves} and "wte.weight" in whole
  assert {path for path in halved if path.startswith("h_0.")} == {
    *(f"h_0.attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "out_proj")),
    "h_0.mlp.c_fc.weight", "h_0.mlp.c_fc.bias", "h_0.mlp.c_proj.weight",
  }  # fmt: skip


def test_refused():
  """The error names the axis, the number that it does not divide, and valid sizes."""
  with pytest.raises(ValueError, match=r"axis model that divides the 4 heads of tiny \(one of 1, 2\), .* model=3"):
    check_fits(LLAMAGEN, 3, "tiny")
  with pytest.raises(ValueError, match="the 2 key and value heads of tiny"):
    check_fits(LLAMAGEN, 4, "tiny")
  with pytest.raises(ValueError, match="model=1 for mar, whose networks are copied to all devices, we instead got 2"):
    check_fits(MAR, 2, "mar")


def test_networks_that_are_copied():
  network, masked = sized("llamagen", LLAMAGEN, "tiny"), sized("mar", MAR, "mar")
  assert network.fitting(MeshSizes(3, 2)) == MeshSizes(3, 2) and masked.fitting(MeshSizes(3, 2)) == MeshSizes(3, 1)
  assert dataclasses.replace(network, is_draft=True).fitting(MeshSizes(3, 2)) == MeshSizes(3, 1)
