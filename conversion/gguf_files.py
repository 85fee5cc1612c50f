"""Reading Llama networks from ``.gguf`` files: names, dequantized weights, config and byte-pair tokenizer.

Blocks of quantized weights are expanded by the ``gguf`` package (the ``convert`` extra). The rows of the query and key
matrices are stored in the order of interleaved rotary pairs. They are put back into the order of half-split pairs, which the
Hugging Face hub uses. Tensors are expanded one at a time, when they are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from jaxspec.io.stored_files import check_readable
from jaxspec.models.nn.rope_text import Rope

from . import hugging_face
from .hugging_face import Architecture, Source

QUANTIZATIONS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")

# Names of the file -> names of the hub; blk.N. stands before those of a block.
_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK_NAMES = {
  "attn_q": "self_attn.q_proj",
  "attn_k": "self_attn.k_proj",
  "attn_v": "self_attn.v_proj",
  "attn_output": "self_attn.o_proj",
  "attn_norm": "input_layernorm",
  "ffn_gate": "mlp.gate_proj",
  "ffn_up": "mlp.up_proj",
  "ffn_down": "mlp.down_proj",
  "ffn_norm": "post_attention_layernorm",
}
_ROPE_FACTORS = "rope_freqs.weight"
# Tokens that end a text, a turn of a talk, and a call of a tool.
_ENDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
# Parts of one network, as llama.cpp names them.
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)

# The pre-tokenizers of byte-level vocabularies that are the GPT-2 pattern, alone or after single digits.
_GPT2_PATTERN = ("gpt-2", "gpt2")
_SINGLE_DIGITS = ("smollm",)
_CONTROL_TYPES = (3, 4)  # control and user-defined tokens are never split


class GGUFTensor(NamedTuple):
  """A tensor of the file, as a `conversion.engine.SourceTensor`."""

  tensor: Any
  shape: tuple[int, ...]
  heads: int  # number of heads if the rows must be reordered, else 0

  def read(self) -> np.ndarray:
    from gguf import dequantize

    name = self.tensor.tensor_type.name
    if name not in QUANTIZATIONS:
      raise ValueError(f"Must have weights in {', '.join(QUANTIZATIONS)}, {self.tensor.name} is {name}")
    array = np.asarray(dequantize(self.tensor.data, self.tensor.tensor_type), np.float32).reshape(self.shape)
    return half_split(array, self.heads) if self.heads else array


def half_split(array: np.ndarray, heads: int) -> np.ndarray:
  """Reorders the rows (or bias entries) of every head from interleaved pairs ``0 0' 1 1' ...`` to ``0 1 ... 0' 1' ...``."""
  rest = array.shape[1:]
  return array.reshape(heads, -1, 2, *rest).swapaxes(1, 2).reshape(array.shape)


def hub_name(name: str) -> str:
  """Name on the hub of a tensor of the file; unknown ones stay as they are."""
  stem, _, leaf = name.rpartition(".")
  if leaf not in ("weight", "bias"):
    return name
  if match := re.fullmatch(r"blk\.(\d+)\.(\w+)", stem):
    return f"model.layers.{match[1]}.{_BLOCK_NAMES[match[2]]}.{leaf}" if match[2] in _BLOCK_NAMES else name
  return f"{_NAMES[stem]}.{leaf}" if stem in _NAMES else name


def read(path: Path, architecture: Architecture) -> Source:
  """Content of a ``.gguf`` file, or of the parts of which it is one, with lazy tensors.

  Raises:
    ValueError: one line, if a file is missing or damaged, holds another architecture, or the package is missing.
  """
  files = _parts(path)
  opened = [_open(file) for file in files]
  fields = opened[0][1]  # the first part describes the network
  stored: dict[str, Any] = {}
  for number, (file, (some, own)) in enumerate(zip(files, opened, strict=True)):
    place = (own.get("split.no", 0) + 1, own.get("split.count") or 1)
    if place != (number + 1, len(files)):
      raise ValueError(f"Must have parts as NAME-00001-of-00002.gguf side by side, {file} is part {place[0]} of {place[1]}")
    for tensor in some:
      if stored.setdefault(tensor.name, tensor) is not tensor:
        raise ValueError(f"Corrupt {file}: {tensor.name} is there twice")
  found = fields.get("general.architecture")
  if found != architecture.model_type:
    raise ValueError(f"Must have general.architecture {architecture.model_type!r} in {files[0]}, we instead got {found!r}")
  if (expected := fields.get("split.tensors.count", len(stored))) != len(stored):
    raise ValueError(f"Incomplete {path}: must have {expected} tensors in its parts, we instead got {len(stored)}")
  try:
    config = _config_fields(fields, stored)
  except KeyError as error:
    raise ValueError(f"Corrupt {files[0]}: {error} is missing") from error
  heads = {"attn_q": config["num_heads"], "attn_k": config["num_kv_heads"]}
  tensors = {}
  for name, tensor in stored.items():
    if name == _ROPE_FACTORS:
      continue
    shape = tuple(int(size) for size in reversed(tensor.shape))
    part = name.split(".")[-2] if "." in name else ""
    tensors[hub_name(name)] = GGUFTensor(tensor, shape, heads.get(part, 0))
  licence = fields.get("general.license", "unknown")
  meta = {"source": files[0].name, "source_sha256": hugging_face.digest(files), "licence": licence}
  return Source(tensors, config, _tokenizer(fields), meta)


def _parts(path: Path) -> list[Path]:
  """All parts of the network of which ``path`` is one; the file alone without a part's name.

  Raises:
    ValueError: if one is missing.
  """
  match = _PART.fullmatch(path.name)
  files = [path]
  if match:
    stem, _, count, suffix = match.groups()
    files = [path.with_name(f"{stem}-{number:05}-of-{count}{suffix}") for number in range(1, int(count) + 1)] or files
  if missing := [file.name for file in files if not file.is_file()]:
    raise ValueError(f"No file at {path}" if path.name in missing else f"Incomplete {path}: {missing[0]} is missing")
  return files


def _open(file: Path) -> tuple[list[Any], dict[str, Any]]:
  """The tensors and the fields of a file."""
  check_readable(file)
  try:
    from gguf import GGUFReader
  except ImportError as error:
    raise ValueError("Must have the package gguf to read .gguf files: install the 'convert' extra") from error
  try:
    reader = GGUFReader(file)
    return reader.tensors, {name: field.contents() for name, field in reader.fields.items()}
  except Exception as error:  # a damaged file can raise anything
    raise ValueError(f"Corrupt {file}: {str(error) or type(error).__name__}") from error


def _config_fields(fields: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
  get = lambda name, default=None: fields.get(f"llama.{name}", default)
  need = lambda name: fields[f"llama.{name}"]
  heads = need("attention.head_count")
  vocab_size = int(tensors["token_embd.weight"].shape[1])
  ends = dict.fromkeys(int(fields[name]) for name in _ENDS if name in fields)
  return {
    "vocab_size": vocab_size,
    "dim": need("embedding_length"),
    "num_layers": need("block_count"),
    "num_heads": heads,
    "num_kv_heads": get("attention.head_count_kv", heads),
    "head_size": get("attention.key_length") or get("rope.dimension_count"),
    "ffn_hidden": need("feed_forward_length"),
    "norm_eps": _shortest(need("attention.layer_norm_rms_epsilon")),
    "max_positions": need("context_length"),
    "rope": _rope(get, tensors.get(_ROPE_FACTORS)),
    "attention_bias": "blk.0.attn_q.bias" in tensors,
    "mlp_bias": "blk.0.ffn_up.bias" in tensors,
    "tie_embeddings": "output.weight" not in tensors,
    "end_ids": tuple(token for token in ends if 0 <= token < vocab_size),  # 2^32 - 1 stands for none
  }


def _shortest(value: float) -> float:
  """The shortest decimal that is this float32: 1e-5, not 9.999999747e-06."""
  return float(str(np.float32(value)))


def _rope(get: Any, factors: Any) -> Rope:
  theta = _shortest(get("rope.freq_base", 10000.0))
  if factors is not None:
    return Rope(theta, "factors", factors=tuple(float(x) for x in np.asarray(factors.data).reshape(-1)))
  scaling = get("rope.scaling.type", "none")
  factor = _shortest(get("rope.scaling.factor", 1.0))
  if scaling == "none" or factor == 1.0:
    return Rope(theta)
  if scaling == "linear":
    return Rope(theta, "linear", factor=factor)
  if scaling == "yarn":
    original = get("rope.scaling.original_context_length") or get("context_length")
    return Rope(theta, "yarn", factor=factor, original_max_positions=original)
  raise ValueError(f"Must have a rope.scaling.type in none, linear, yarn, we instead got {scaling!r}")


def _tokenizer(fields: dict[str, Any]) -> bytes | None:
  """``tokenizer.json`` of a byte-level vocabulary; None for others, which need a file of their own."""
  pattern = fields.get("tokenizer.ggml.pre")
  if fields.get("tokenizer.ggml.model") != "gpt2" or pattern not in (*_GPT2_PATTERN, *_SINGLE_DIGITS):
    return None
  tokens, kinds = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type", [])
  merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
  tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
  bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
  if pattern in _SINGLE_DIGITS:
    bytes_of = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_of])
  tokenizer.pre_tokenizer, tokenizer.decoder = bytes_of, decoders.ByteLevel()
  special = [token for token, kind in zip(tokens, kinds) if kind in _CONTROL_TYPES]
  tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
  if fields.get("tokenizer.ggml.add_bos_token"):
    begin = fields["tokenizer.ggml.bos_token_id"]
    tokenizer.post_processor = processors.TemplateProcessing(
      single=f"{tokens[begin]} $A", special_tokens=[(tokens[begin], begin)]
    )
  return tokenizer.to_str().encode()
