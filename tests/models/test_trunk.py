"""Declarations of families for heads: the rows of tables, the shape of a head, and networks with fewer layers."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import registry
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.feature_head import borrowed
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.language.emu3 import Emu3Config
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.language.llama import LlamaConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.mar.mar import MARConfig
from jaxspec.models.trunk import trunk_of
from tests.helpers import TARGET, random_params

IDS = dict(num_codes=6, first_code=3, end_row=12, end_image=10)
LUMINA = ChameleonConfig(
  vocab_size=14, dim=8, num_layers=2, num_heads=2, ffn_hidden=12, layout="lumina", rows=2, columns=4, rope_theta=500.0, **IDS
)

ENDS = dict(end_row=0, end_frame=1, end_image=2, end_text=3)
EMU3 = Emu3Config(
  vocab_size=16, dim=8, num_layers=2, num_heads=2, num_kv_heads=1, ffn_hidden=12, rows=2, columns=4, num_codes=6,
  first_code=9, **ENDS,
)  # fmt: skip
LLAMA = LlamaConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2, ffn_hidden=12)
NEO = GPTNeoConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2)


@pytest.mark.parametrize(
  "config", [TARGET, LUMINA, EMU3, LLAMA, NEO], ids=["llamagen", "chameleon", "emu3", "llama", "gpt_neo"]
)
def test_tables_are_rows_of_the_ids_that_are_drawn(config):
  """``output`` turns the features into the logits, ``embedding`` is the input."""
  trunk = trunk_of(config)
  whole = random_params(registry.FAMILIES[registry.family_name(config)].make_fns(config), 0)
  params = trunk.params(config, whole)
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(
    jnp.shape, jax.eval_shape(trunk.fns(config).init, jax.random.key(0))
  )
  ids = getattr(config, "drawn_ids", np.arange(config.vocab_size))
  assert trunk.head_fields(config)["vocab_size"] == len(ids)
  names = {TARGET: ("tok_embeddings", "output"), NEO: ("wte", "wte")}.get(config, ("embed_tokens", "lm_head"))
  for found, name in zip(borrowed(config, params).values(), names):
    np.testing.assert_array_equal(found["weight"], whole[name]["weight"][ids])


def test_a_head_has_the_widths_of_its_host_and_the_places_of_its_tokens():
  assert EagleConfig.of(LlamaGenConfig(model_type="t2i", prefix_len=5, num_kv_heads=4)) == EagleConfig(
    prefix_len=5, num_kv_heads=4
  )
  head = EagleConfig.of(LUMINA)  # rows of 4 codes and an end; the prompt is not read
  assert (head.num_tokens, head.grid, head.vocab_size, head.prefix_len, head.rope_base) == (10, 5, 8, 1, 500.0)
  anole = EagleConfig.of(ChameleonConfig())
  assert (anole.num_tokens, anole.grid, anole.vocab_size, anole.ffn_hidden) == (1024, 32, 8192, 11008)
  text = EagleConfig.of(NEO)
  assert (text.num_tokens, text.grid, text.vocab_size, text.ffn_hidden, text.prefix_len) == (1, 1, 9, 32, 1)
  assert registry.make_config("eagle", json.loads(json.dumps(dataclasses.asdict(head)))) == head
  for wrong, line in ((dict(columns=3), "rows of equal length"), (dict(dim=12), "head size divisible by 4")):
    with pytest.raises(ValueError, match=line):
      dataclasses.replace(head, **wrong)


def test_an_edge_network_names_the_family_of_its_trunk():
  edge = InterHeadConfig(dataclasses.replace(LUMINA, num_layers=1), num_heads=2)
  assert edge.trunk_family == "chameleon" and edge.drawn == 8 and edge.layout == "lumina" and edge.num_layers == 1
  fields = json.loads(json.dumps(dataclasses.asdict(edge)))
  assert registry.make_config("inter_head", fields) == edge
  old = dataclasses.asdict(InterHeadConfig(TARGET))
  del old["trunk_family"]  # as checkpoints before the field hold it
  assert registry.make_config("inter_head", old) == InterHeadConfig(TARGET)
  for family in ("llamagen", "none", ["llamagen"]):
    with pytest.raises(ValueError, match="Must have"):
      registry.make_config("inter_head", {**fields, "trunk_family": family})


def test_networks_without_a_trunk_are_refused():
  for make in (EagleConfig.of, InterHeadConfig):
    with pytest.raises(ValueError, match=r"heads can be put on \(.*\), we instead got a MARConfig"):
      make(MARConfig())
