"""GPT-Neo and Llama agree with the transformers library on random networks (needs torch)."""

import jax
import numpy as np
import pytest

from conversion import engine, gpt_neo, hugging_face, llama
from jaxspec.io.checkpoints import unflatten
from jaxspec.models import registry
from tests.conversion.array_tensor import ArrayTensor
from tests.models import text_reference as reference

TOLERANCE = 1e-4

pytestmark = pytest.mark.torch

CASES = {
  "gpt_neo_window_1": reference.GPT_NEO | {"window_size": 1},
  "gpt_neo_untied": reference.GPT_NEO | {"tie_word_embeddings": False, "intermediate_size": None, "window_size": 7},
  "llama_no_groups": reference.with_rope("yarn") | {"num_key_value_heads": 4},
  "llama_one_group": reference.with_rope("yarn_ramp") | {"num_key_value_heads": 1, "tie_word_embeddings": True},
  "llama_wide_heads": reference.with_rope("linear") | {"head_dim": 10, "attention_bias": True, "mlp_bias": True},
  "llama_long_dynamic": reference.with_rope("dynamic"),
}


def _convert(model, name):
  """Functions and parameters of a torch model, converted with the tables of the converter."""
  architecture = (gpt_neo if name.startswith("gpt_neo") else llama).ARCHITECTURE
  document = model.config.to_dict()
  tensors = {key: ArrayTensor(value.numpy()) for key, value in model.state_dict().items()}
  fields = architecture.read_config(document)
  config, leaves = engine.convert(tensors, hugging_face.family_for(architecture, fields), fields)
  return registry.FAMILIES[architecture.family.name].make_fns(config), unflatten(leaves)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_parity(name):
  pytest.importorskip("transformers", reason="needs the transformers library")
  model = reference.build(CASES[name], seed=7)
  fns, params = _convert(model, name)
  tokens = np.random.default_rng(0).integers(0, reference.VOCAB, (2, 24)).astype(np.int32)
  # Dynamic frequencies: see `jaxspec.models.nn.rope_text`.
  expected = reference.stepwise_logits(model, tokens, 4) if "dynamic" in name else reference.full_logits(model, tokens)
  full = jax.jit(lambda p, x: fns.apply(p, x)[0].logits)(params, tokens)
  np.testing.assert_allclose(full, expected, atol=TOLERANCE)
  print(f"{name}: {np.max(np.abs(np.asarray(full) - expected)):.1e}")
