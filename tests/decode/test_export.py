"""Every method lowers for GPU and TPU: what only the lowering of another platform refuses is found without one."""

import jax
import jax.numpy as jnp
import pytest

from jaxspec import methods
from jaxspec.decoder import Decoder
from jaxspec.methods import METHODS, SAME_FAMILY
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.models.eagle import EagleConfig
from jaxspec.models.inter_head import InterHeadConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.platform import tracing_for
from jaxspec.planning.sizes import sized
from jaxspec.sampling import SamplingConfig
from tests.methods.networks import CAUSAL, MAR, STOPPED, small

ROWS = 2
CONFIG = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=12, num_tokens=16, num_classes=3, multiple_of=16)
# The others take longer.
DEFAULT = ("ar", "gsd", "eagle-lantern")


def decoder_of(name: str) -> Decoder:
  """A method on a tiny pair in bfloat16; parameters are shapes."""
  make = lambda family, config: sized(family, config, family, dtype="bfloat16").network
  method = small(name)
  if not method.fits(methods.IDS):
    family, config = ("mar", MAR) if name == "parallel" else ("causal_tokens", CAUSAL)
    return Decoder(make(family, config), method, draft=make(family, config), sampling=STOPPED)
  drafts = {
    SAME_FAMILY: ("llamagen", CONFIG),
    "eagle": ("eagle", EagleConfig.of(CONFIG)),
    "inter_head": ("inter_head", InterHeadConfig(CONFIG)),
    None: ("llamagen", CONFIG),
  }
  return Decoder(
    make("llamagen", CONFIG), method, draft=make(*drafts[method.draft_family]), grid=(4, 4), codebook=lambda: CODES,
    sampling=SamplingConfig(cfg_scale=2.0, top_k=5, top_p=0.9),
  )  # fmt: skip


CODES = jnp.arange(24.0).reshape(12, 2)


def export(name: str) -> jax.export.Exported:
  """The lowered decode of a method, for both kinds of accelerators."""
  decoder = decoder_of(name)
  key_data = jax.ShapeDtypeStruct((ROWS, *jax.random.key_data(jax.random.key(0)).shape), jnp.uint32)
  labels = jax.ShapeDtypeStruct((ROWS,), jnp.int32)
  condition = ClassLabels(labels)
  if name == "parallel":
    condition = OrderedLabels(labels, jax.ShapeDtypeStruct((ROWS, MAR.num_tokens), jnp.int32))
  length = 4 if decoder.draws_vectors else CONFIG.num_tokens
  with tracing_for("tpu"):
    decode = jax.jit(decoder.decode_fn(max_len=length))
    return jax.export.export(decode, platforms=("cuda", "tpu"))(decoder.parts.params, key_data, condition)


def check(name: str) -> None:
  exported = export(name)
  assert exported.platforms == ("cuda", "tpu")
  tokens = exported.out_avals[0]
  assert tokens.shape[0] == ROWS and tokens.dtype == (jnp.int32 if METHODS[name].fits(methods.IDS) else jnp.float32)
  if METHODS[name].fits(methods.IDS):
    # Caches are those of an accelerator: numbers, not the bits that a CPU stores.
    text = exported.mlir_module()
    assert "bf16" in text and "xui16>" not in text


@pytest.mark.parametrize("name", DEFAULT)
def test_export(name):
  check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name not in DEFAULT])
def test_export_of_the_others(name):
  check(name)
