"""The draft that is cut out of a Llama: its head starts as the identity, and least squares finds an affine map."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cut_draft import cut, least_squares
from jaxspec.models.llama import LlamaConfig, llama_fns

CONFIG = LlamaConfig(
  vocab_size=20, dim=16, num_layers=3, num_heads=2, num_kv_heads=1, ffn_hidden=24, max_positions=32, tie_embeddings=True
)


def test_a_cut_network_is_the_first_layers():
  params = llama_fns(CONFIG).init(jax.random.key(0))
  config, draft = cut(CONFIG, params, 2)
  ids = jnp.arange(6)[None]
  found = llama_fns(config).apply(draft, ids)[0].logits
  short = {name: leaf for name, leaf in params.items() if name != "layers_2"}
  wanted = llama_fns(dataclasses.replace(CONFIG, num_layers=2)).apply(short, ids)[0].logits
  np.testing.assert_array_equal(found, wanted)
  assert jax.tree.structure(draft) == jax.tree.structure(llama_fns(config).init(jax.random.key(1)))


@pytest.mark.parametrize("layers", [0, 3])
def test_a_cut_has_fewer_layers(layers):
  with pytest.raises(ValueError, match="fewer layers"):
    cut(CONFIG, llama_fns(CONFIG).init(jax.random.key(0)), layers)


def test_a_cut_needs_a_shared_table():
  with pytest.raises(ValueError, match="token table"):
    cut(dataclasses.replace(CONFIG, tie_embeddings=False), {}, 1)


def test_least_squares_finds_an_affine_map():
  rng = np.random.default_rng(0)
  x, weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((200, 5), (5, 5), (5,)))
  found = least_squares(jnp.asarray(x), jnp.asarray(x @ weight.T + bias), ridge=1e-6)
  np.testing.assert_allclose(found[0], weight, atol=1e-3)
  np.testing.assert_allclose(found[1], bias, atol=1e-3)
