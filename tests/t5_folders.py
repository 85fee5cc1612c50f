"""Folders of T5 encoders as the Hugging Face hub stores them: the golden one, and tiny random ones with a tokenizer."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from conversion import engine, t5
from conversion.hugging_face import CONFIG_FILE, SAFE_FILE, convert_folder
from jaxspec.core.network import Network
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.text_encoders.t5 import T5Config

GOLDEN = Path(__file__).parent / "golden" / "t5"
TEXT = json.loads((GOLDEN / "text.json").read_text())
TINY = T5Config(vocab_size=512, dim=8, num_layers=2, num_heads=3, head_size=4, ffn_hidden=12)  # its tokenizer has 500


def tensors(config: T5Config = TINY, seed: int = 0) -> dict[str, np.ndarray]:
  """Random tensors by the names of the hub."""
  rng = np.random.default_rng(seed)
  draw = lambda shape: rng.normal(size=shape) * (0.3 if len(shape) > 1 else 0.1) + (len(shape) == 1)
  shapes = engine.source_shapes(t5.FAMILY, engine.template_of(config))
  return {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}


def document(config: T5Config = TINY) -> dict:
  """``config.json`` of a full network, as in the hub."""
  return {"model_type": "t5", "is_encoder_decoder": True, "num_decoder_layers": 2} | t5.write_config(config)


def hub(path: Path, config: T5Config = TINY, *, tokenizers: tuple[str, ...] = (TOKENIZER_FILE,)) -> Path:
  """A folder of the hub with random weights; returns it."""
  path.mkdir(parents=True)
  (path / CONFIG_FILE).write_text(json.dumps(document(config)))
  save_file(tensors(config), path / SAFE_FILE)
  for name in tokenizers:
    shutil.copyfile(GOLDEN / name, path / name)
  return path


def converted(path: Path, config: T5Config = TINY, **kwargs) -> Path:
  """A checkpoint folder of random weights; returns it."""
  with tempfile.TemporaryDirectory() as folder:
    convert_folder(hub(Path(folder) / "hub", config, **kwargs), path, t5.ARCHITECTURE, {}, None, t5.read_folder)
  return path


@functools.cache
def golden() -> Network:
  """The stored encoder, through the conversion."""
  with tempfile.TemporaryDirectory() as folder:
    source = Path(folder) / "hub"
    source.mkdir()
    shutil.copyfile(GOLDEN / "encoder.json", source / CONFIG_FILE)
    shutil.copyfile(GOLDEN / "encoder.safetensors", source / SAFE_FILE)
    convert_folder(source, Path(folder) / "ours", t5.ARCHITECTURE, {}, None, t5.read_folder)
    return checkpoints.load(Path(folder) / "ours")
