"""Tiny random Chameleon networks in the form of the official downloads: Meta's (Anole), and the hub's (Lumina-mGPT)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from conversion import chameleon, chameleon_vq, engine, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.heads.block_head import BlockHeadConfig
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.tokenizers.chameleon_vq import ChameleonVQConfig
from tests.run import tiny

NUM_CODES = 16
_CODES = [f"IMGIMG{''.join('ABCDEFGHIJ'[int(digit)] for digit in str(code))}Z" for code in range(NUM_CODES)]
_RESERVED = [f"<reserved{number:05d}>" for number in (8706, 8707, *range(8796, 8810))]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", *_CODES, "<eoss>", "<racm3:break>", *_RESERVED]
_LETTERS = sorted(set(pre_tokenizers.ByteLevel.alphabet()))
DISCRETE = {
  "begin_text": 0, "first_code": 4, "num_codes": NUM_CODES, "end_image": 20, "begin_image": 21, "end_prompt": 22,
  "end_row": SPECIAL.index("<reserved08799>"), "first_size": SPECIAL.index("<reserved08800>"),
}  # fmt: skip
CONFIG = ChameleonConfig(
  vocab_size=len(SPECIAL) + len(_LETTERS), dim=16, num_layers=2, num_heads=2, ffn_hidden=48, max_positions=256, **DISCRETE
)
VQ = ChameleonVQConfig(8, (1, 1), 1, (), 8, NUM_CODES, 4, 8)


def text_tokenizer() -> Tokenizer:
  """Byte tokens, after image tokens and special tokens."""
  made = Tokenizer(models.BPE({name: id for id, name in enumerate([*SPECIAL, *_LETTERS])}, []))
  made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
  made.add_special_tokens(SPECIAL)
  return made


def random_tensors(family: engine.Family, config, seed: int) -> dict[str, np.ndarray]:
  """Tensors of a network under their official names, with q/k norms of one axis under Meta's."""
  generator, made = np.random.default_rng(seed), {}
  for name, shape in engine.source_shapes(family, engine.template_of(config)).items():
    shape = shape[-1:] if "_normalization" in name else shape
    noise = generator.normal(size=shape) * (0.1 if len(shape) == 1 else 0.5)
    made[name] = (noise + (len(shape) == 1 and name.endswith("weight"))).astype(np.float32)
  return made


def save_tokenizers(folder: Path) -> Path:
  """The folder ``tokenizer`` of Meta's download."""
  folder.mkdir(parents=True)
  text_tokenizer().save(str(folder / "text_tokenizer.json"))
  torch_files.write(folder / "vqgan.ckpt", {"state_dict": random_tensors(chameleon_vq.FAMILY, VQ, 9)})
  return folder


def save_anole(folder: Path, seed: int = 0, layers: int = 2) -> Path:
  """Meta's download: a network with its tokenizers."""
  config = ChameleonConfig(**(vars(CONFIG) | {"num_layers": layers}))
  network = folder / "models" / "7b"
  network.mkdir(parents=True)
  tensors = random_tensors(chameleon.META, config, seed) | {"rope.freqs": np.zeros(4, np.float32)}
  torch_files.write(network / "consolidated.pth", tensors)
  model = {"dim": 16, "n_layers": layers, "n_heads": 2, "n_kv_heads": None, "multiple_of": 16, "swin_norm": False}
  sizes = {"vocab_size": config.vocab_size, "norm_eps": 1e-5, "rope_theta": 10000.0, "ffn_dim_multiplier": 1.0}
  (network / "params.json").write_text(json.dumps({"model": model | sizes | {"qk_normalization": True}}))
  (network / "consolidate_params.json").write_text(json.dumps({"model_parallel_size": 1}))
  (network / "config.json").write_text("{}")
  save_tokenizers(folder / "tokenizer")
  return folder


def save_lumina(folder: Path, seed: int = 0, layers: int = 2) -> Path:
  """A folder of the hub without tokenizers."""
  folder.mkdir(parents=True)
  tensors = random_tensors(chameleon.HUB, ChameleonConfig(**(vars(CONFIG) | {"num_layers": layers})), seed)
  for name in [name for name in tensors if "_norm." in name]:
    tensors[name] = tensors[name][:1]  # one row for all heads, as in one shard
  save_file(tensors, folder / "model.safetensors")
  document = {
    "model_type": "chameleon", "vocab_size": CONFIG.vocab_size, "hidden_size": 16, "num_hidden_layers": layers,
    "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 48, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "rope_theta": 10000.0, "swin_norm": False, "model_parallel_size": 1,
    "z_loss_weight": 0.0,
  }  # fmt: skip
  (folder / "config.json").write_text(json.dumps(document))
  return folder


def save_heads(folder: Path, network: Path) -> dict[str, Path]:
  """Folders of random drafts for a converted network: ``head`` and ``block`` read its features, ``edge`` has one of its
  layers."""
  config = checkpoints.load(network, weights=False).config
  edge = dataclasses.replace(config, num_layers=1)
  tiny.save(folder / "head", EagleConfig.of(config), 5, scale=0.15, guided=False)
  tiny.save(folder / "block", BlockHeadConfig.of(config), 5, scale=0.15, guided=False)
  tiny.save(folder / "edge", InterHeadConfig(edge), 6, scale=0.3)
  return {name: folder / name for name in ("head", "block", "edge")}


def networks(folder: Path) -> dict[str, Path]:
  """Converted folders: ``anole`` and its ``draft``, and ``lumina``; images of 4 x 4 and 4 x 2 codes, of 2 x 2 pixels.

  Networks have one block, for short compilation; converters are tested with two.
  """
  download, lumina = save_anole(folder / "download", layers=1), save_lumina(folder / "hub", layers=1)
  small = save_anole(folder / "small", seed=1, layers=1)
  tokenizers = download / "tokenizer"
  parts = dict(text=tokenizers / "text_tokenizer.json", image=tokenizers / "vqgan.ckpt")
  chameleon.convert_folder(download, folder / "anole", chameleon.read_size("64"))
  chameleon.convert_folder(small, folder / "draft", chameleon.read_size("64"))
  chameleon.convert_folder(lumina, folder / "lumina", chameleon.read_size("32x64"), **parts)
  chameleon.convert_folder(small, folder / "rows", chameleon.read_size("32x64") | {"layout": "lumina"})
  return {name: folder / name for name in ("anole", "draft", "lumina", "rows")}
