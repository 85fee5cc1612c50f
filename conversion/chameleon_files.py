"""Files of Chameleon networks: Meta's shards, and folders of the Hugging Face hub; both as tensors in one form.

| files | names | order of q and k | q/k norms |
|---|---|---|---|
| Meta: ``consolidated*.pth`` | Meta's | interleaved pairs | ``[size]`` in every shard |
| hub, older (Lumina-mGPT) | the hub's | halves | ``[shards, size]`` |
| hub, newer | the hub's | halves | ``[heads, size]`` |
| Anole's training code | the hub's | interleaved pairs | ``[size]`` |

The number of axes of a q/k norm tells the order: one axis is Meta's, whatever the names are. All become halves, with norms
``[heads, size]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.models.chameleon.chameleon import ChameleonConfig

from . import hugging_face, llama
from .derived import averaged, joined, repeated, split_halves, stacked
from .engine import SourceTensor, read_tensors

# How Meta's shards are put together, by the last parts of a name.
_JOINED = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1, "tok_embeddings": 1}
_AVERAGED = ("norm", "attention_norm", "ffn_norm")
_STACKED = ("q_normalization", "k_normalization")
_META_FILE = re.compile(r"consolidated(\.\d+)?\.pth")
_META_JSON = ("params.json", "consolidate_params.json")


class Source(NamedTuple):
  """Tensors of a network, and the metadata of its folder."""

  tensors: dict[str, Any]  # `SourceTensor` by the names of the files
  fields: dict[str, Any]  # of `ChameleonConfig`
  is_meta: bool
  is_lumina: bool
  files: list[Path]


def read(folder: Path) -> Source:
  """Reads Meta's folder of a network (or the download around it), or a folder of the hub; tensors stay on disk.

  Raises:
    ValueError: one line naming what is missing or damaged.
  """
  if not folder.is_dir():
    raise ValueError(f"Must have a folder of a Chameleon network, {folder} is none")
  below = sorted(path for path in folder.glob("models/*") if path.is_dir())
  if len(below) > 1:
    raise ValueError(f"Must have one network, {folder} has {', '.join(path.name for path in below)}: name its folder")
  folder = below[0] if below else folder
  files = sorted(path for path in folder.iterdir() if _META_FILE.fullmatch(path.name))
  return _read_meta(folder, files) if files else _read_hub(folder)


def is_meta(name: str) -> bool:
  """Whether a file of a folder, named from there, is one of Meta's shards where `read` looks for them."""
  *places, file = name.split("/")
  return _META_FILE.fullmatch(file) is not None and (not places or (len(places) == 2 and places[0] == "models"))


def tokenizer_files(folder: Path) -> dict[str, Path]:
  """What a download has besides the network: ``text`` (`tokenizers`) and ``image`` (the VQGAN), where they are there."""
  around = [folder, folder / "tokenizer", folder.resolve().parent.parent / "tokenizer"]
  names = {"text": ("text_tokenizer.json", "tokenizer.json"), "image": ("vqgan.ckpt",)}
  found = {}
  for kind, known in names.items():
    files = [place / name for place in around for name in known if (place / name).is_file()]
    found |= {kind: files[0]} if files else {}
  return found


def read_params(documents: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of `ChameleonConfig` from Meta's JSON, flattened."""
  multiple, hidden = documents["multiple_of"], int(8 * documents["dim"] / 3)
  if (factor := documents.get("ffn_dim_multiplier")) is not None:
    hidden = int(factor * hidden)
  if not documents.get("qk_normalization", True):
    raise ValueError("must have normed queries and keys")
  return {
    "vocab_size": documents["vocab_size"],
    "dim": documents["dim"],
    "num_layers": documents["n_layers"],
    "num_heads": documents["n_heads"],
    "num_kv_heads": documents.get("n_kv_heads"),
    "ffn_hidden": -(-hidden // multiple) * multiple,
    "norm_eps": documents.get("norm_eps", 1e-5),
    "rope_theta": documents.get("rope_theta", 10000.0),
    "post_norm": documents.get("swin_norm", False),
  }


def read_config(document: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of `ChameleonConfig` from a ``config.json`` of the hub."""
  fixed = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
  for name, value in fixed.items():
    if document.get(name, value) != value:
      raise ValueError(f"must have {name} {value!r}, we instead got {document[name]!r}")
  rope = llama.read_rope({"max_position_embeddings": 4096, **document})
  if rope.scaling != "default":
    raise ValueError(f"must have plain rotary positions, we instead got {rope.scaling}")
  return {
    "vocab_size": document["vocab_size"],
    "dim": document["hidden_size"],
    "num_layers": document["num_hidden_layers"],
    "num_heads": document["num_attention_heads"],
    "num_kv_heads": document.get("num_key_value_heads"),
    "ffn_hidden": document["intermediate_size"],
    "norm_eps": document.get("rms_norm_eps", 1e-5),
    "rope_theta": rope.theta,
    "max_positions": document.get("max_position_embeddings", 4096),
    "post_norm": document.get("swin_norm", False),
  }


def in_halves(tensors: Mapping[str, SourceTensor], config: ChameleonConfig) -> dict[str, SourceTensor]:
  """Tensors with half-split heads and norms ``[heads, size]``; those that do not have the shape for it stay as they are."""
  found = dict(tensors)
  for name, norm in tensors.items():
    match = re.fullmatch(r"(.*\.)([qk])_(norm|normalization)\.weight", name)
    if match is None or len(norm.shape) not in (1, 2):
      continue
    prefix, letter, kind = match.groups()
    projection = f"{prefix}w{letter}.weight" if kind == "normalization" else f"{prefix}{letter}_proj.weight"
    heads = config.num_heads if letter == "q" else config.kv_heads
    is_interleaved = kind == "normalization" or len(norm.shape) == 1
    for vector in (name, name.removesuffix("weight") + "bias"):
      if vector in found:
        found[vector] = _head_norm(found[vector], heads, config.head_dim, is_interleaved)
    matrix = found.get(projection)
    if is_interleaved and matrix is not None and matrix.shape and matrix.shape[0] == heads * config.head_dim:
      found[projection] = split_halves(matrix, 0, config.head_dim)
  return found


def _head_norm(tensor: SourceTensor, heads: int, size: int, is_interleaved: bool) -> SourceTensor:
  rows = tensor if len(tensor.shape) == 2 else stacked([tensor])
  if len(rows.shape) != 2 or rows.shape[1] != size or not rows.shape[0] or heads % rows.shape[0]:
    return tensor
  return repeated(split_halves(rows, 1, size) if is_interleaved else rows, heads)


def _read_hub(folder: Path) -> Source:
  file = folder / hugging_face.CONFIG_FILE
  document = hugging_face.read_json(file)
  if (kind := document.get("model_type")) != "chameleon":
    raise ValueError(f"Must have model_type 'chameleon' in {file}, we instead got {kind!r}")
  fields = _fields(file, read_config, document)
  files = hugging_face.weight_files(folder)
  return Source(hugging_face.read_tensors(folder, files), fields, False, "z_loss_weight" in document, files)


def _read_meta(folder: Path, files: list[Path]) -> Source:
  documents: dict[str, Any] = {}
  for name in _META_JSON:
    if (folder / name).is_file() or name == _META_JSON[0]:
      read = hugging_face.read_json(folder / name)
      documents |= read | (read["model"] if isinstance(read.get("model"), dict) else {})
  if (expected := documents.get("model_parallel_size", len(files))) != len(files):
    raise ValueError(f"Incomplete {folder}: must have {expected} files consolidated*.pth, we instead got {len(files)}")
  fields = _fields(folder / _META_JSON[0], read_params, documents)
  shards = [read_tensors(file) for file in files]
  return Source(merge_shards(shards, [file.name for file in files]), fields, True, False, files)


def merge_shards(shards: list[dict[str, SourceTensor]], names: list[str]) -> dict[str, SourceTensor]:
  """The tensors of Meta's shards, put together.

  Args:
    names: what messages call the shards.
  Raises:
    ValueError: one line with every tensor that a shard lacks, or that has another shape in it.
  """
  merged, problems = {}, []
  for name in dict.fromkeys(name for shard in shards for name in shard):
    if lacking := [file for shard, file in zip(shards, names) if name not in shard]:
      problems.append(f"missing {name} in {', '.join(lacking)}")
      continue
    parts = [shard[name] for shard in shards]
    kind = name.split(".")[-2] if name.count(".") else name
    axes = 2 if kind in _JOINED else 1
    shapes = {tuple(part.shape) for part in parts}
    if len(shapes) > 1:
      problems.append(f"{name} has shapes {' and '.join(str(list(shape)) for shape in sorted(shapes))}")
    elif kind in (*_JOINED, *_AVERAGED, *_STACKED) and len(parts[0].shape) == axes:
      merged[name] = _merged(kind, parts)
    else:
      merged[name] = parts[0]
  if problems:
    raise ValueError("; ".join(sorted(problems)))
  return merged


def _merged(kind: str, parts: list[SourceTensor]) -> SourceTensor:
  if kind in _STACKED:
    return stacked(parts)
  if len(parts) == 1:
    return parts[0]
  return joined(parts, _JOINED[kind]) if kind in _JOINED else averaged(parts)


def _fields(file: Path, read_fields, document: Mapping[str, Any]) -> dict[str, Any]:
  try:
    return read_fields(document)
  except (KeyError, TypeError, ValueError, ArithmeticError) as error:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    raise ValueError(f"{file}: {text}") from error
