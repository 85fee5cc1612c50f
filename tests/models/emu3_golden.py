"""The stored Emu3 networks of ``tests/golden/emu3``; weights of the vision tokenizer follow the recipe of its README."""

from __future__ import annotations

import functools
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from conversion import emu3, emu3_tokenizer, emu3_vq, engine, hugging_face
from jaxspec.models.language.emu3 import Emu3Config
from jaxspec.models.tokenizers.emu3_vq import Emu3VQConfig

FOLDER = Path(__file__).parents[1] / "golden" / "emu3"
TEXT = json.loads((FOLDER / "text.json").read_text())
VQ = Emu3VQConfig(base_channels=32, multipliers=(1, 2), attention_levels=(1,), codebook_size=24)
_SEED = 4021


@functools.cache
def arrays(name: str) -> dict[str, np.ndarray]:
  with np.load(FOLDER / f"{name}.npz") as file:
    return dict(file)


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
  """The recipe's float32 weight for an official name."""
  state = np.random.RandomState((zlib.crc32(name.encode()) ^ _SEED) & 0xFFFFFFFF)
  v = 2 * state.random_sample(shape) - 1
  if name.endswith("quantize.embedding.weight"):
    return v.astype(np.float32)
  if len(shape) > 1:
    return (v * np.sqrt(3 / np.prod(shape[1:]))).astype(np.float32)
  return (1 + 0.25 * v if name.endswith(("weight", "running_var")) else 0.1 * v).astype(np.float32)


def vq_tensors(config: Emu3VQConfig = VQ) -> dict[str, np.ndarray]:
  """The vision tokenizer under its official names."""
  shapes = engine.source_shapes(emu3_vq.FAMILY, engine.template_of(config))
  return {name: draw(name, shape) for name, shape in shapes.items()}


def vq_document(config: Emu3VQConfig = VQ) -> dict[str, Any]:
  """Its ``config.json``."""
  return {"model_type": "Emu3VisionVQ"} | emu3_vq.write_config(config)


def write_vq(folder: Path, config: Emu3VQConfig = VQ) -> Path:
  """The released folder of the vision tokenizer."""
  folder.mkdir(parents=True)
  save_file(vq_tensors(config), folder / "model.safetensors")
  (folder / "config.json").write_text(json.dumps(vq_document(config)))
  return folder


def write_download(folder: Path) -> Path:
  """Both released folders side by side; returns that of the network."""
  write_vq(folder / "Emu3-VisionTokenizer")
  return shutil.copytree(FOLDER / "gen", folder / "Emu3-Gen")


def write_small(folder: Path) -> Path:
  """The released folder of the stored network without its last block, in one file of float32."""
  folder.mkdir(parents=True)
  source = FOLDER / "gen"
  tensors = hugging_face.read_tensors(source, hugging_face.weight_files(source))
  kept = {name: tensor.read().astype(np.float32) for name, tensor in tensors.items() if ".layers.1." not in name}
  save_file(kept, folder / "model.safetensors")
  document = json.loads((source / "config.json").read_text())
  (folder / "config.json").write_text(json.dumps(document | {"num_hidden_layers": 1}))
  for name in (emu3_tokenizer.RANKS_FILE, emu3_tokenizer.IMAGE_TOKENS_FILE):
    shutil.copyfile(source / name, folder / name)
  return folder


def convert(folder: Path, **options: Any) -> Path:
  """The stored network, converted in float32, by default for its stored size of images; a new folder inside."""
  size = dict(ratio=TEXT["ratio"], area=TEXT["image_area"])
  emu3.convert_folder(write_download(folder / "hub"), folder / "emu3", {}, dtype="float32", **size | options)
  return folder / "emu3"


def local(ids: np.ndarray, config: Emu3Config) -> np.ndarray:
  """Local ids of ids of the vocabulary."""
  return np.argmax(config.drawn_ids == np.asarray(ids)[..., None], axis=-1).astype(np.int32)
