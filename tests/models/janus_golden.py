"""The stored Janus networks of ``tests/golden/janus``, through the real conversion."""

from __future__ import annotations

import functools
import json
import tempfile
import zlib
from pathlib import Path

import numpy as np

from conversion import engine, janus, llamagen_vq
from jaxspec.core.network import Network
from jaxspec.io import checkpoints
from jaxspec.models.conditions import Prompt, padded_length
from jaxspec.models.janus import JanusConfig, janus_fns
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig, llamagen_vq_fns

FOLDER = Path(__file__).parents[1] / "golden" / "janus"
FIELDS = {"rows": 5, "columns": 5}  # which the files do not have
PAD = 402


@functools.cache
def arrays(name: str) -> dict[str, np.ndarray]:
  with np.load(FOLDER / f"{name}.npz") as file:
    return dict(file)


@functools.cache
def texts() -> list[dict]:
  return json.loads((FOLDER / "text.json").read_text())["rows"]


@functools.cache
def load(name: str) -> tuple[Network, Network]:
  """``target`` or ``draft``, and its image tokenizer, in float32."""
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / name
    janus.convert_folder(FOLDER / name, path, FIELDS)
    return checkpoints.load(path), checkpoints.load(path / janus.VQ_FOLDER)


def prompts(*rows: np.ndarray) -> Prompt:
  """Rows of ids in one batch, padded on the left to the width of the longest stored prompt."""
  width = padded_length(max(len(text["ids"]) for text in texts()))
  tokens, mask = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width), bool)
  for number, row in enumerate(rows):
    tokens[number, width - len(row) :], mask[number, width - len(row) :] = row, True
  return Prompt(tokens, mask)


@functools.cache
def wide() -> tuple[Network, Network]:
  """The network and the image tokenizer of ``wide_recipe``."""
  sizes = dict(dim=64, num_layers=2, num_heads=4, ffn_hidden=160, head_hidden=64)
  config, vq = JanusConfig(text_vocab_size=448, begin_text=400, begin_image=403, pad=PAD, **sizes), LlamaGenVQConfig()
  network = Network(janus_fns(config), _filled(janus.FAMILY, config, ""), config)
  return network, Network(llamagen_vq_fns(vq), _filled(llamagen_vq.FAMILY, vq, janus.VQ_PREFIX), vq)


def _filled(family: engine.Family, config, prefix: str) -> dict:
  """Parameters whose official tensors follow the recipe."""
  leaves = {}
  for path, shape in engine.template_of(config).items():
    rule, name = engine._source_of(family, path)
    leaves[path] = rule.to_target_array(_recipe(prefix + name, rule.source_shape(shape)))
  return checkpoints.unflatten(leaves)


def _recipe(name: str, shape: tuple[int, ...]) -> np.ndarray:
  generator = np.random.RandomState((zlib.crc32(name.encode()) ^ 4010) & 0xFFFFFFFF)
  value = 2 * generator.random_sample(shape) - 1
  if not name.endswith(("embed_tokens.weight", "gen_embed.weight", "quantize.embedding.weight")):
    if len(shape) > 1:
      value *= np.sqrt(3 / np.prod(shape[1:]))
    else:
      value = 1 + 0.25 * value if name.endswith("weight") else 0.1 * value
  return value.astype(np.float32)
