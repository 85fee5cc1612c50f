"""Formulas against the networks themselves: parameters, caches and operations of every family, and published counts."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from jaxspec.core.mesh import MeshSizes
from jaxspec.core.platform import tracing_for
from jaxspec.models import registry
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.conditions import Context, OrderedLabels, Pairs
from jaxspec.models.heads.block_head import BlockHeadConfig
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.feature_head import FeatureHeadConfig, attach
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.janus import JanusConfig
from jaxspec.models.language.emu3 import Emu3Config
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.language.llama import LlamaConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.mar.causal_tokens import CausalTokensConfig
from jaxspec.models.mar.mar import MARConfig
from jaxspec.models.mar.masked_network import masked_network
from jaxspec.planning.memory_plan import cache_of
from jaxspec.planning.published_models import MODELS
from jaxspec.planning.sizes import Sized, pass_cost, sized, trunks_of
from tests.planning.products import operations

LLAMAGEN = LlamaGenConfig(num_layers=2, dim=16, num_heads=4, num_kv_heads=2, vocab_size=10, num_tokens=16, multiple_of=8)
HEAD = dict(num_tokens=16, latent_channels=3, num_classes=2, diffloss_width=8, diffloss_depth=2)
MAR = MARConfig(
  **HEAD, buffer_size=2, encoder_dim=16, encoder_depth=4, encoder_heads=2, decoder_dim=16, decoder_depth=4, decoder_heads=2
)
CONFIGS = {
  "llamagen": LLAMAGEN,
  "llama": LlamaConfig(vocab_size=10, dim=16, num_layers=2, num_heads=4, num_kv_heads=2, ffn_hidden=24, head_map=True),
  "gpt_neo": GPTNeoConfig(vocab_size=10, max_positions=40, dim=16, num_layers=2, num_heads=2),
  "chameleon": ChameleonConfig(
    vocab_size=10, dim=16, num_layers=2, num_heads=4, num_kv_heads=2, ffn_hidden=24, num_codes=4, rows=2, columns=2
  ),
  "emu3": Emu3Config(
    vocab_size=10,
    dim=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    ffn_hidden=24,
    num_codes=2,
    first_code=8,
    rows=2,
    columns=2,
    end_row=1,
    end_frame=2,
    end_image=3,
    end_text=4,
  ),
  "janus": JanusConfig(
    10,
    20,
    dim=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    ffn_hidden=24,
    code_dim=4,
    head_hidden=12,
    begin_text=1,
    begin_image=2,
    pad=9,
  ),
  "causal_tokens": CausalTokensConfig(**HEAD, dim=16, num_layers=2, num_heads=2),
  "eagle": EagleConfig.of(LLAMAGEN),
  "block_head": BlockHeadConfig.of(LLAMAGEN),
  "inter_head": InterHeadConfig(dataclasses.replace(LLAMAGEN, num_layers=1), num_heads=2),
}
B, T, S = 2, 3, 24


def of_pass(network: Sized) -> int:
  """Operations of a pass over T inputs of B rows with a cache of S slots, as it is traced."""
  fns, params, ids = network.network.fns, network.network.params, jax.ShapeDtypeStruct((B, T), jnp.int32)
  config = network.config
  apply = fns.network.apply if network.draws_continuous else fns.apply
  init_cache = fns.network.init_cache if network.draws_continuous else fns.init_cache
  inputs = jax.ShapeDtypeStruct((B, T, config.token_dim), jnp.float32) if network.draws_continuous else ids
  context = None
  if isinstance(config, FeatureHeadConfig):
    host = sized("llamagen", LLAMAGEN, "host").network.params
    params = attach(params, host)
    if isinstance(config, BlockHeadConfig):
      context = Context(jax.ShapeDtypeStruct((B, T, config.feature_dim), jnp.float32))
    else:
      inputs = Pairs(ids, jax.ShapeDtypeStruct((B, T, config.dim), jnp.float32))

  def forward(params, inputs, cache, positions):
    if context is not None:
      cache = apply(params, jax.tree.map(jnp.zeros_like, context), cache, positions=positions)[1]
    return apply(params, inputs, cache, positions=positions)

  with tracing_for("gpu"):
    cache = jax.eval_shape(lambda: init_cache(B, S))
    return operations(forward, params, inputs, cache, ids)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_pass(family):
  """Products of a pass agree with the formula, and a cache has keys and values of every layer, head and slot."""
  network = sized(family, CONFIGS[family], family)
  counted = network
  if isinstance(network.config, FeatureHeadConfig):  # the output matrix is the target's
    host = sized("llamagen", LLAMAGEN, "host").network.params
    counted = Sized(dataclasses.replace(network.network, params=attach(network.network.params, host)))
  # A block head has keys and values of its context too, which the formula leaves out.
  left_out = 2 * B * T * sum(leaf.size for leaf in network.leaves if leaf.path.endswith(("wk.weight", "wv.weight")))
  left_out = left_out if family == "block_head" else 0
  assert pass_cost(counted, MeshSizes(), B, T, S).operations == of_pass(network) - left_out
  (trunk,) = trunks_of(network.config)
  entries = 2 * trunk.layers * trunk.kv_heads * trunk.head_dim * S * network.itemsize
  assert cache_of(network, MeshSizes(), 1, S, "gpu") == entries + S  # and a mask


def test_a_pass_of_a_masked_network():
  """Its count of multiply-adds includes the full last block, although one row is read."""
  network = sized("mar", MAR, "mar")
  fns = masked_network(network.network.fns, num_buckets=1).network
  labels = OrderedLabels(jnp.zeros((B,), jnp.int32), jnp.zeros((B, 16), jnp.int32))
  cache = jax.eval_shape(lambda: fns.init_cache(B, 16))._replace(condition=labels)
  tokens, positions = jnp.zeros((B, T, 3)), jnp.ones((B, T), jnp.int32)
  counted = operations(lambda p, c: fns.apply(p, tokens, c, positions=positions), network.network.params, cache)
  assert pass_cost(network, MeshSizes(), B, T, 16).operations == pytest.approx(counted, rel=0.15)


def test_a_head_of_vectors():
  """Every step of a chain multiplies the denoising head."""
  network = sized("causal_tokens", CONFIGS["causal_tokens"], "tokens")
  chain = pass_cost(network, MeshSizes(), B, T, S, drawn=T, steps=5)
  alone = pass_cost(network, MeshSizes(), B, T, S)
  width, channels = 8, 3
  step = width * channels + 2 * 5 * width**2 + 2 * width**2 + 2 * channels * width
  assert chain.operations - alone.operations == 2 * B * T * 5 * step
  assert chain.read - alone.read == 4 * 5 * step


def count(family: str, config) -> int:
  return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(registry.FAMILIES[family].make_fns(config).init, KEY)))


KEY = jax.random.key(0)
# docs of FoundationVision/LlamaGen; Chameleon-7B's 7,013,158,912 have one norm of queries and keys for all heads; LTH14/mar;
# the constructor of baaivision/Emu3.
PUBLISHED = {
  "llamagen-b": 110_888_448,
  "llamagen-l": 342_910_976,
  "llamagen-xl": 774_699_520,
  "llamagen-xxl": 1_410_972_672,
  "llamagen-3b": 3_096_659_200,
  "llamagen-7b": 6_614_589_440,
  "anole-7b": 7_013_158_912 + 31 * 16_384,
  "emu3-8b": 8_492_011_520,
  # The official classes without the tower, its aligner, the image tokenizer and the output matrix of texts.
  "janus-pro-1b": 1_485_053_952,
  "janus-pro-7b": 6_591_791_104,
}


@pytest.mark.parametrize("name", [
  name if name in ("llamagen-xl", "llamagen-7b", "anole-7b", "emu3-8b") else pytest.param(name, marks=pytest.mark.slow)
  for name in PUBLISHED
])  # fmt: skip
def test_published_counts(name):
  """Blocks are equal, so two shallow networks give the count of a deep one."""
  model = MODELS[name]
  one, two = (count(model.family, dataclasses.replace(model.config, num_layers=layers)) for layers in (1, 2))
  assert one + (model.config.num_layers - 1) * (two - one) == PUBLISHED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name, parameters", [("anole-7b", 7.013e9), ("llamagen-7b", 6.615e9), ("mar-h", 943e6)])
def test_counts_of_whole_networks(name, parameters):
  found = MODELS[name].sized("bfloat16")
  assert found.num_parameters == pytest.approx(parameters, rel=1e-3)
  assert found.weight_bytes() == 2 * found.num_parameters
