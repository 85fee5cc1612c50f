"""Converts the encoders of T5 1.1 and Flan-T5 (google/flan-t5-small to -xxl, google/t5-v1_1-small to -xxl).

``python -m conversion.t5 SRC DST`` reads a folder of the Hugging Face hub and writes a checkpoint folder with its tokenizer;
the decoder and the output matrix are left out. ``--export`` goes back to a folder of the encoder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import numpy as np

from jaxspec.io.text.t5_tokenizer import SENTENCEPIECE_FILE
from jaxspec.models.text_encoders.t5 import T5Config

from . import command, hugging_face, released
from .rules import Rule

_TABLE, _COPY = "shared.weight", "encoder.embed_tokens.weight"
_ATTENTION, _FFN = "encoder.block.{i}.layer.0.", "encoder.block.{i}.layer.1."

RULES = (
  Rule(_TABLE),
  Rule("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "relative_attention_bias.weight"),
  Rule(_ATTENTION + "SelfAttention.{matrix:q|k|v|o}.weight", "block_{i}_attention.{matrix:q|k|v|o}.weight"),
  Rule(_ATTENTION + "layer_norm.weight", "block_{i}_attention_norm.weight"),
  Rule(_FFN + "DenseReluDense.{matrix:wi_0|wi_1|wo}.weight", "block_{i}_{matrix:wi_0|wi_1|wo}.weight"),
  Rule(_FFN + "layer_norm.weight", "block_{i}_ffn_norm.weight"),
  Rule("encoder.final_layer_norm.weight", "final_layer_norm.weight"),
)

IGNORED = (r"decoder\..*", r"lm_head\.weight")


def read_config(document: dict[str, Any]) -> dict[str, Any]:
  """Fields of a `T5Config` from a ``config.json``."""
  activation = document.get("feed_forward_proj", "relu")
  if activation != "gated-gelu":
    raise ValueError(f"Must have feed_forward_proj 'gated-gelu' (T5 1.1, Flan-T5), we instead got {activation!r}")
  return {
    "vocab_size": document["vocab_size"],
    "dim": document["d_model"],
    "num_layers": document["num_layers"],
    "num_heads": document["num_heads"],
    "head_size": document["d_kv"],
    "ffn_hidden": document["d_ff"],
    "num_buckets": document.get("relative_attention_num_buckets", 32),
    "max_distance": document.get("relative_attention_max_distance", 128),
    "norm_eps": document.get("layer_norm_epsilon", 1e-6),
  }


def write_config(config: T5Config) -> dict[str, Any]:
  """``config.json`` of a `T5Config`, of a folder without a decoder."""
  return {
    "architectures": ["T5EncoderModel"],
    "vocab_size": config.vocab_size,
    "d_model": config.dim,
    "num_layers": config.num_layers,
    "num_heads": config.num_heads,
    "d_kv": config.head_size,
    "d_ff": config.ffn_hidden,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": config.num_buckets,
    "relative_attention_max_distance": config.max_distance,
    "layer_norm_epsilon": config.norm_eps,
    "pad_token_id": 0,
    "eos_token_id": 1,
  }


FAMILY = hugging_face.family("t5", RULES, IGNORED)
ARCHITECTURE = hugging_face.Architecture("t5", "", FAMILY, read_config, write_config, copied=(SENTENCEPIECE_FILE,))


def read_folder(folder: Path, architecture: hugging_face.Architecture) -> hugging_face.Source:
  """`conversion.hugging_face.read_folder`, with one token table: files may hold it under two names.

  Raises:
    ValueError: for two tables that differ, or the feed-forward layers of the first T5.
  """
  content = hugging_face.read_folder(folder, architecture)
  tensors = dict(content.tensors)
  if old := [name for name in tensors if re.fullmatch(r"encoder\..*\.DenseReluDense\.wi\.weight", name)]:
    raise ValueError(f"Must have gated feed-forward layers (T5 1.1, Flan-T5), {folder} has {old[0]} of the first T5")
  if _COPY in tensors:
    copy = tensors.pop(_COPY)
    table = tensors.setdefault(_TABLE, copy)
    if table is not copy and not (table.shape == copy.shape and np.array_equal(table.read(), copy.read())):
      raise ValueError(f"Must have one token table, {_TABLE} and {_COPY} of {folder} differ")
  return content._replace(tensors=tensors)


RELEASED = released.of_folder(ARCHITECTURE, read_folder)


@command.converter()
@click.option("--tokenizer", type=command.PATH, help="tokenizer.json, instead of that of SRC.")
def main(**options: Any) -> str:
  """Converts the encoder in the T5 folder SRC to the checkpoint folder DST."""
  config = hugging_face.run(ARCHITECTURE, read=read_folder, **options)
  return (
    f"T5 encoder, {config.num_layers} layers, width {config.dim}, {config.num_heads} heads of {config.head_size}, "
    f"{config.vocab_size} tokens"
  )


if __name__ == "__main__":
  main()
