"""Tiny random LlamaGen networks in the official layout, and comparisons of leaves."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from conversion import engine
from jaxspec.io import checkpoints
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig

TINY = LlamaGenConfig(num_layers=2, dim=16, num_heads=2, vocab_size=11, num_tokens=9, num_classes=3, multiple_of=8)
TINY_VQ = LlamaGenVQConfig(
  base_channels=32, multipliers=(1, 2), num_res_blocks=1, z_channels=6, codebook_size=5, codebook_dim=3
)


def random_params(config, seed=0):
  """Random leaves by path."""
  rng = np.random.default_rng(seed)
  template = engine.template_of(config)
  return {path: rng.normal(size=shape).astype(np.float32) for path, shape in template.items()}


def official_weights(config, family, seed=0):
  """Random official state dict."""
  return engine.to_state_dict(random_params(config, seed), family, config)


def leaves_of(folder):
  return load_file(Path(folder) / checkpoints.PARAMS_FILE)


def assert_same(got, expected):
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
    assert got[name].tobytes() == array.tobytes(), name
