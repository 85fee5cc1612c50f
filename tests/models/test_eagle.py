"""The EAGLE network: parity with the public drafter, prefix pass and two steps of a tree."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.conditions import Pairs
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.heads.feature_head import attach
from jaxspec.models.nn.rope import rope_2d
from tests.helpers import random_params

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "discrete" / "eagle_drafter_tiny.npz")
CONFIG = EagleConfig(
  dim=32, num_heads=4, ffn_hidden=64, vocab_size=64, num_tokens=256, prefix_len=int(GOLDEN["cond_zero_positions"]) + 1
)


def _params():
  weight = lambda name: jnp.asarray(GOLDEN[f"w_{name.replace('.', '__')}__weight"])
  layer = lambda name: {"weight": weight(f"layers.0.{name}")}
  qkv = jnp.concatenate([weight(f"layers.0.self_attn.{x}_proj") for x in "qkv"])
  own = {
    "fc": {"weight": weight("fc")},
    "fc_bias": jnp.asarray(GOLDEN["w_fc__bias"]),
    "attention": {"wqkv": {"weight": qkv}, "wo": layer("self_attn.o_proj")},
    "ffn_norm": layer("post_attention_layernorm"),
    "feed_forward": {"w1": layer("mlp.gate_proj"), "w3": layer("mlp.up_proj"), "w2": layer("mlp.down_proj")},
  }
  host = {"tok_embeddings": {"weight": weight("embed_tokens")}, "output": {"weight": jnp.asarray(GOLDEN["head"])}}
  return attach(own, host)


def _pairs(prefix=""):
  ids = GOLDEN[f"{prefix}tokens" if prefix else "input_ids"]
  return Pairs(jnp.asarray(ids, jnp.int32), jnp.asarray(GOLDEN[f"{prefix}features"]))


def test_rotary_table_is_shifted_by_one_position_against_the_host():
  ours = rope_2d(
    jnp.arange(150), prefix_len=CONFIG.prefix_len - 1, grid=CONFIG.grid, head_dim=CONFIG.head_dim, base=CONFIG.rope_base
  )
  np.testing.assert_allclose(ours, GOLDEN["freqs_cis"], atol=1e-5)


@pytest.mark.slow
def test_prefix_and_two_tree_steps_match_the_public_drafter():
  fns, params, prefix = eagle_fns(CONFIG), _params(), int(GOLDEN["prefix_len"])
  apply = jax.jit(fns.apply)
  whole, _ = apply(params, _pairs())
  np.testing.assert_allclose(whole.features, GOLDEN["out"], atol=2e-5)
  np.testing.assert_allclose(whole.logits, GOLDEN["out"] @ GOLDEN["head"].T, atol=1e-4)

  cache = fns.init_cache(2, prefix + 8)
  output, cache = apply(params, _pairs(), cache, positions=jnp.arange(prefix)[None])
  np.testing.assert_allclose(output.features, GOLDEN["out"], atol=2e-5)
  for step in (1, 2):
    positions = jnp.full((2, 4), prefix + step - 1)
    mask = jnp.broadcast_to(jnp.asarray(GOLDEN[f"step{step}_mask"], bool)[None], (2, 4, 4 * step))
    slot = jnp.full((2,), prefix + 4 * (step - 1))
    output, cache = apply(params, _pairs(f"step{step}_"), cache, positions=positions, mask=mask, slot=slot)
    np.testing.assert_allclose(output.features, GOLDEN[f"step{step}_out"], atol=2e-5)


def test_guided_network_takes_both_halves_from_the_features():
  fns, params = eagle_fns(CONFIG), _params()
  inputs = _pairs()
  rows = inputs.tokens[:1]
  both = jnp.concatenate([inputs.features[:1], inputs.features[1:]], axis=-1)  # row 1 as the unconditional half of row 0
  positions = jnp.arange(rows.shape[1])[None]
  apply = jax.jit(fns.apply)
  alone = [apply(params, Pairs(rows, inputs.features[i : i + 1]), positions=positions)[0] for i in (0, 1)]
  output, _ = jax.jit(guided(fns).apply)(Guided(params, jnp.float32(3.0)), Pairs(rows, both), None, positions=positions)
  expected = alone[1].logits + 3.0 * (alone[0].logits - alone[1].logits)
  np.testing.assert_allclose(output.logits, expected, atol=1e-4)
  np.testing.assert_allclose(output.features, jnp.concatenate([x.features for x in alone], -1), atol=2e-5)
  with pytest.raises(ValueError, match="Must have features of width"):  # without guidance there is one half to read
    apply(params, Pairs(rows, both), positions=positions)


def test_own_parameters_are_separate_from_the_host():
  own = random_params(eagle_fns(CONFIG), 0)
  assert set(own) == {"fc", "fc_bias", "attention", "ffn_norm", "feed_forward"}
  with pytest.raises(ValueError, match="condition token"):
    EagleConfig(prefix_len=0)
  with pytest.raises(ValueError, match="square"):
    EagleConfig(num_tokens=10)
  assert jax.tree.structure(own) == jax.tree.structure({k: v for k, v in _params().items() if k in own})
