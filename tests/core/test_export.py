"""Every method lowers for GPU and TPU, without such a device."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from jaxspec import methods
from jaxspec.core.platform import tracing_for
from jaxspec.core.token_space import TokenSpace
from jaxspec.methods import METHODS, SAME_FAMILY
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.conditions import ClassLabels, OrderedLabels, Prompt
from jaxspec.models.heads.block_head import BlockHeadConfig
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.heads.spatial_heads import SpatialConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.registry import family_name
from jaxspec.planning.sizes import sized
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import DenoisingSampling, SamplingConfig, ScaleSampling
from tests.methods.networks import CAUSAL, MAR, STOPPED, maps, small, states

ROWS = 2
FLOATS = (methods.CONTINUOUS, methods.DENOISING_STEPS)
CONFIG = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=12, num_tokens=16, num_classes=3, multiple_of=16)
CHAMELEON = ChameleonConfig(
  vocab_size=24, dim=16, num_layers=2, num_heads=2, ffn_hidden=16, layout="lumina", rows=4, columns=2, num_codes=12,
  end_image=16, begin_image=17, end_prompt=18, end_row=19,
)  # fmt: skip
# The others take longer.
DEFAULT = ("ar",)


def decoder_of(name: str, config: LlamaGenConfig | ChameleonConfig = CONFIG) -> Decoder:
  """A method on a tiny pair in bfloat16; parameters are shapes."""
  make = lambda family, config: sized(family, config, family, dtype="bfloat16").drawing
  method = small(name)
  shaped = lambda network: dataclasses.replace(network, params=jax.eval_shape(lambda: network.params))
  if method.tokens == methods.DENOISING_STEPS:
    return Decoder(shaped(states(1)), method, draft=shaped(states(2)), sampling=DenoisingSampling(6, 2.0))
  if method.tokens == methods.SCALES:
    return Decoder(shaped(maps(1)), method, draft=shaped(maps(2)), sampling=ScaleSampling(2.0, 3, 0.9))
  if not method.fits(methods.DISCRETE):
    family, config = ("mar", MAR) if name == "parallel" else ("causal_tokens", CAUSAL)
    return Decoder(make(family, config), method, draft=make(family, config), sampling=STOPPED)
  family = family_name(config)
  head, edge = EagleConfig.of(config), InterHeadConfig(dataclasses.replace(config, num_layers=1, dtype="bfloat16"))
  drafts = {
    SAME_FAMILY: (family, config), "eagle": ("eagle", head), "block_head": ("block_head", BlockHeadConfig.of(config)),
    "spatial": ("spatial", SpatialConfig.of(config)), "inter_head": ("inter_head", edge),
  }  # fmt: skip
  draft = None if method.draft_family is None else make(*drafts[method.draft_family])
  space = TokenSpace(
    vocab_size=head.vocab_size,
    num_tokens=head.num_tokens,
    grid=(head.num_tokens // head.grid, head.grid),
    codebook=lambda: jnp.arange(2.0 * head.vocab_size).reshape(-1, 2),
    legal=config.image_rows if config is CHAMELEON else None,
  )
  sampling = SamplingConfig(cfg_scale=2.0, top_k=5, top_p=0.9)
  return Decoder(make(family, config), method, draft=draft, sampling=sampling, space=space)


def export(name: str, config: LlamaGenConfig | ChameleonConfig = CONFIG) -> jax.export.Exported:
  """The lowered decode of a method, for both kinds of accelerators."""
  decoder = decoder_of(name, config)
  key_data = jax.ShapeDtypeStruct((ROWS, *jax.random.key_data(jax.random.key(0)).shape), jnp.uint32)
  labels = jax.ShapeDtypeStruct((ROWS,), jnp.int32)
  condition = ClassLabels(labels)
  if name == "parallel":
    condition = OrderedLabels(labels, jax.ShapeDtypeStruct((ROWS, MAR.num_tokens), jnp.int32))
  if config is CHAMELEON:
    condition = Prompt(jax.ShapeDtypeStruct((ROWS, 6), jnp.int32), jax.ShapeDtypeStruct((ROWS, 6), jnp.bool_))
  length = 4 if decoder.draws_continuous else decoder.context.space.num_tokens
  with tracing_for("tpu"):
    decode = jax.jit(decoder.decode_fn(max_len=length))
    return jax.export.export(decode, platforms=("cuda", "tpu"))(decoder.parts.params, key_data, condition)


def check(name: str, config: LlamaGenConfig | ChameleonConfig = CONFIG) -> None:
  exported = export(name, config)
  assert exported.platforms == ("cuda", "tpu")
  tokens = exported.out_avals[0]
  assert tokens.shape[0] == ROWS and tokens.dtype == (jnp.float32 if METHODS[name].tokens in FLOATS else jnp.int32)
  if METHODS[name].fits(methods.DISCRETE):
    # Caches are those of an accelerator: numbers, not the bits stored on a CPU.
    text = exported.mlir_module()
    assert "bf16" in text and "xui16>" not in text


@pytest.mark.parametrize("name", DEFAULT)
def test_export(name):
  check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name not in DEFAULT])
def test_export_of_the_others(name):
  check(name)


# Rules and drafts from the tokens alone lower as above, whatever the family.
OTHER_RULES = {"lantern", "gsd", "scaled", "eagle-lantern", "ngram"}


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", [name for name, method in METHODS.items() if method.fits(methods.DISCRETE) and name not in OTHER_RULES]
)
def test_export_of_a_chameleon(name):
  """Guided, with row ends: prompts of different lengths, forced tokens, and heads on the features of this family."""
  check(name, CHAMELEON)
