"""Networks in parts: embedding, blocks and output put together are the network, and so are stages of a pipeline."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.models import registry
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.chameleon.chameleon_drawing import drawing_fns
from jaxspec.models.conditions import Caption, ClassLabels, Prefixed, Prompt
from jaxspec.models.janus import JanusConfig
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.language.llama import LlamaConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.mar.causal_tokens import CausalTokensConfig
from tests.helpers import random_params, side

B, N = 2, 5
PROMPT = Prompt(jnp.asarray([[1, 5, 2], [0, 3, 2]]), jnp.asarray([[True] * 3, [False, True, True]]))
LABELS = ClassLabels(jnp.asarray([2, 0], jnp.int32))
CAPTION = Caption(jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 6)), jnp.float32), PROMPT.mask)
_IMAGES = dict(num_layers=2, dim=16, num_heads=2, vocab_size=11, num_tokens=9, multiple_of=8)
CONFIGS = {
  "classes": (LlamaGenConfig(**_IMAGES, num_classes=3), LABELS),
  "captions": (LlamaGenConfig(model_type="t2i", **_IMAGES, prefix_len=3, caption_dim=6), CAPTION),
  "llama": (LlamaConfig(vocab_size=11, dim=16, num_layers=2, num_heads=4, num_kv_heads=2, ffn_hidden=24), PROMPT),
  "gpt_neo": (GPTNeoConfig(vocab_size=11, dim=16, num_layers=2, num_heads=2, max_positions=40, window_size=3), PROMPT),
  "chameleon": (
    ChameleonConfig(vocab_size=16, dim=8, num_layers=2, num_heads=2, ffn_hidden=12, num_codes=11, rows=2, columns=3),
    PROMPT,
  ),
  "janus": (
    JanusConfig(
      11, 16, dim=8, num_layers=2, num_heads=2, ffn_hidden=12, code_dim=4, head_hidden=6, begin_text=1, begin_image=2, pad=9
    ),
    PROMPT,
  ),
  "causal_tokens": (
    CausalTokensConfig(
      num_tokens=9, latent_channels=2, num_classes=3, dim=8, num_layers=2, num_heads=2, diffloss_width=8, diffloss_depth=1
    ),
    LABELS,
  ),
}


def network(name):
  """``(ModelFns, parameters, condition, tokens)``."""
  config, condition = CONFIGS[name]
  make = drawing_fns if name == "chameleon" else registry.FAMILIES[registry.family_name(config)].make_fns
  fns, generator = make(config), np.random.default_rng(1)
  fns = getattr(fns, "network", fns)
  tokens = generator.integers(0, 11, (B, N)) if name != "causal_tokens" else generator.normal(size=(B, N, 2))
  return fns, random_params(fns, 5), condition, jnp.asarray(tokens, jnp.int32 if tokens.ndim == 2 else jnp.float32)


def stage(cache, first, last):
  """The cache without the entries of other layers than ``first .. last - 1``."""
  own = lambda buffers: tuple(buffer if first <= i < last else None for i, buffer in enumerate(buffers))
  return cache._replace(k=own(cache.k), v=own(cache.v))


def in_stages(fns, cut):
  """The network in two stages with caches apart, each with its own parameters: no stage finds those of the other."""
  layers = fns.layers
  is_layer = lambda name, numbers: name in {f"{stem}_{i}" for stem in ("layers", "h") for i in numbers}

  def init_cache(batch, max_len):
    cache = fns.init_cache(batch, max_len)
    return stage(cache, 0, cut), stage(cache, cut, layers.num_layers)

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    below, above = (None, None) if cache is None else cache
    numbers = range(cut), range(cut, layers.num_layers)
    early, late = ({name: leaf for name, leaf in params.items() if not is_layer(name, other)} for other in numbers[::-1])
    x, context = layers.embed(early, inputs, below, positions=positions, mask=mask, inject=inject, slot=slot)
    x, below = layers.blocks(early, x, context, below, 0, cut)
    x, above = layers.blocks(late, x, context, above, cut, layers.num_layers)
    return layers.head(late, x, logits_at), None if cache is None else (below, above)

  return fns._replace(init_cache=init_cache, apply=apply, compact=None, take=None, put=None, layers=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_parts_put_together_are_the_network(name):
  """With and without a cache, cut below a block; one network below any."""
  fns, params, condition, tokens = network(name)
  prefix = fns.prefix_len(condition)

  @functools.partial(jax.jit, static_argnums=0)
  def run(fns):
    full, _ = fns.apply(params, Prefixed(condition, tokens), None, positions=None)
    first, cache = fns.apply(params, condition, fns.init_cache(B, 12), positions=jnp.arange(prefix)[None])
    positions = prefix + jnp.arange(N)[None]
    rest, cache = fns.apply(params, tokens, cache, positions=positions, logits_at=jnp.asarray([N - 1, 0]))
    return full, first, rest

  whole = run(fns)
  for cut in (0, 1, 2) if name == "llama" else (1,):
    for expected, found in zip(jax.tree.leaves(whole), jax.tree.leaves(run(in_stages(fns, cut)))):
      np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "chameleon"])
def test_a_pipeline_of_two_stages_draws_the_same_tokens(name):
  """With and without ids that are not drawn; the test above has every network."""
  fns, params, condition, _ = network(name)

  @functools.partial(jax.jit, static_argnums=0)
  def draw(fns):
    verifier = jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp())
    sides = jaxspec.SpecParams((), side(params, temperature=3.0))
    keys = jax.random.split(jax.random.key(0), B)
    return jaxspec.autoregress(sides, keys, condition, verifier=verifier, max_len=6).tokens

  drawn = draw(fns)
  np.testing.assert_array_equal(draw(in_stages(fns, 1)), drawn)
  assert len(np.unique(drawn)) > 2


@pytest.mark.slow
def test_an_early_exit_is_the_network_of_its_first_layers():
  """Hidden states above any block have an output: what a draft of the first layers would draw."""
  fns, params, condition, tokens = network("llama")
  config = CONFIGS["llama"][0]
  shallow = registry.FAMILIES["llama"].make_fns(LlamaConfig(**(vars(config) | {"num_layers": 1})))
  x, context = fns.layers.embed(params, Prefixed(condition, tokens))
  x, _ = fns.layers.blocks(params, x, context, None, 0, 1)
  expected, _ = shallow.apply(params, Prefixed(condition, tokens), None, positions=None)
  np.testing.assert_allclose(fns.layers.head(params, x).logits, expected.logits, atol=1e-5)
