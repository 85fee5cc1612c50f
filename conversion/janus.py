"""Converts Janus-Pro networks (deepseek-ai/Janus).

``python -m conversion.janus SRC DST`` reads the released folder and writes a checkpoint folder with its ``tokenizer.json``.
The image tokenizer becomes the folder ``vq`` inside. What images are understood with, and the output matrix of texts, are
left out. Weights are read and written one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import jax.numpy as jnp
from safetensors import SafetensorError

from jaxspec.io import checkpoints
from jaxspec.io.text import janus_vocabulary
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, from_json
from jaxspec.models import registry
from jaxspec.models.janus import JanusConfig
from jaxspec.models.nn.rope_text import Rope

from . import command, engine, hugging_face, llama, llamagen_vq, released
from .rules import Rule

DTYPES = ("bfloat16", "float32")  # of stored weights
VQ_FOLDER, VQ_PREFIX = "vq", "gen_vision_model."
_LEAF = "{leaf:weight|bias}"

RULES = (
  *(Rule(f"language_model.{rule.source}", rule.target) for rule in llama.RULES if rule.source != "lm_head.weight"),
  Rule("gen_embed.weight"),
  Rule(f"gen_aligner.layers.{{i}}.{_LEAF}"),
  Rule(f"gen_head.{{matrix:output_mlp_projector|vision_head}}.{_LEAF}"),
)
# The image tokenizer is a checkpoint of its own; drawing never reads the others.
IGNORED = (
  r"gen_vision_model\..*",
  r"language_model\.lm_head\.weight",
  r"vision_model\..*",
  r"aligner\..*",
  *(rf"language_model\.{pattern}" for pattern in llama.IGNORED),
)
# Released files leave out what equals these values of the class of their language model.
_LANGUAGE = {
  "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
  "max_position_embeddings": 2048,
}  # fmt: skip


def read_config(document: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of a `JanusConfig` from a ``config.json``, without the ids that the vocabulary determines."""
  if "gen_head_config" not in document:
    raise ValueError("must have gen_head_config, which JanusFlow and DeepSeek-VL lack: they draw no image tokens")
  language = llama.read_config(_LANGUAGE | document["language_config"])
  aligner, head = (document[f"{name}_config"]["params"] for name in ("gen_aligner", "gen_head"))
  refused = {
    "biases in its language model": language["attention_bias"] or language["mlp_bias"],
    "heads of another width": language["head_size"] not in (None, language["dim"] // language["num_heads"]),
    f"rotary positions {language['rope'].scaling}": language["rope"].scaling != Rope().scaling,
    f"an aligner {aligner['projector_type']}": aligner["projector_type"] != "mlp_gelu",
    f"an image tokenizer {document['gen_vision_config']['cls']}": document["gen_vision_config"]["cls"] != "VQ-16",
  }
  if found := [name for name, is_found in refused.items() if is_found]:
    raise ValueError(f"must have the architecture of Janus-Pro, we instead got {' and '.join(found)}")
  same = ("dim", "num_layers", "num_heads", "ffn_hidden", "norm_eps")
  heads = language["num_kv_heads"]
  return {name: language[name] for name in same} | {
    "num_kv_heads": None if heads == language["num_heads"] else heads,
    "text_vocab_size": language["vocab_size"],
    "rope_theta": language["rope"].theta,
    "vocab_size": head["image_token_size"],
    "head_hidden": head["image_token_embed"],
    "code_dim": aligner["input_dim"],
    "aligner_depth": aligner.get("depth", 1),
  }


FAMILY = hugging_face.family("janus", RULES, IGNORED)
ARCHITECTURE = hugging_face.Architecture("multi_modality", "", FAMILY, read_config)


def convert_folder(
  source: Path, destination: Path, fields: dict[str, Any], *, dtype: str = "bfloat16", tokenizer: Path | None = None,
  on_write: engine.OnWrite = engine.silent,
) -> JanusConfig:  # fmt: skip
  """Writes the checkpoint folder of a network; returns its config.

  Args:
    fields: config fields that win over those of the folder.
    dtype: of the stored weights, one of `DTYPES`. The image tokenizer is stored in float32.
    tokenizer: ``tokenizer.json`` to take instead of the folder's.
    on_write: as for `engine.convert_file`.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  checkpoints.check_destination(destination, source)
  content = hugging_face.read_folder(source, ARCHITECTURE)
  text = content.tokenizer if tokenizer is None else hugging_face.read_bytes(tokenizer)
  where = source / TOKENIZER_FILE if tokenizer is None else tokenizer
  if text is None:
    raise ValueError(f"No {where}: the ids around a prompt are in it (--tokenizer)")
  vocabulary = from_json(text, where)
  fields = content.fields | janus_vocabulary.read_ids(vocabulary, where) | fields
  inside = {name.removeprefix(VQ_PREFIX): tensor for name, tensor in content.tensors.items() if name.startswith(VQ_PREFIX)}
  try:
    config, leaves = engine.match(content.tensors, FAMILY, fields)
    if (size := vocabulary.get_vocab_size()) > config.text_vocab_size:
      raise ValueError(f"must have a tokenizer of at most {config.text_vocab_size} tokens, we instead got {size}")
    vq, vq_leaves = engine.match(inside, llamagen_vq.FAMILY, {})
    if vq.codebook_size != config.vocab_size:
      raise ValueError(f"must have an image tokenizer of {config.vocab_size} codes, we instead got {vq.codebook_size}")

    def write_more(folder: Path) -> None:
      (folder / TOKENIZER_FILE).write_bytes(text)
      engine.write(folder / VQ_FOLDER, vq, vq_leaves, meta=content.meta, on_write=on_write)

    more = dict(meta=content.meta, dtype=jnp.dtype(dtype), write_more=write_more)
    engine.write(destination, config, leaves, on_write=on_write, **more)
  except (ValueError, SafetensorError) as error:
    line = str(error)
    raise ValueError(line if str(source) in line else f"Cannot convert {source}: {line}") from error
  return config


def released_config(folder: Path) -> JanusConfig:
  """The config of a released folder, whose weights need not be there; without ``tokenizer.json`` the ids are those of 7B.

  Raises:
    ValueError: one line naming what is missing or damaged.
  """
  fields, file = hugging_face.read_fields(folder, ARCHITECTURE), folder / TOKENIZER_FILE
  ids = janus_vocabulary.read_ids(from_json(hugging_face.read_bytes(file), file), file) if file.is_file() else {}
  return registry.make_config(FAMILY.name, fields | ids)


RELEASED = released.of_model_type(ARCHITECTURE.model_type, convert_folder, released_config)


@command.converter(exports=False)
@click.option("--tokenizer", type=command.PATH, help="tokenizer.json, instead of that of SRC.")
@click.option("--dtype", type=click.Choice(DTYPES), default="bfloat16", show_default=True, help="Of the stored weights.")
def main(source: Path, destination: Path, tokenizer: Path | None, dtype: str, config_file: Path | None) -> str:
  """Converts the Janus-Pro folder SRC to the checkpoint folder DST."""
  fields = command.read_fields(config_file)
  command.check_fields(FAMILY, fields)
  with command.shown() as on_write:
    config = convert_folder(source, destination, fields, dtype=dtype, tokenizer=tokenizer, on_write=on_write)
  return (
    f"{config.num_layers} layers, width {config.dim}, {config.num_heads} heads over {config.kv_heads}; images of "
    f"{config.columns} x {config.rows} codes; what understands images (vision_model, aligner) is left out"
  )


if __name__ == "__main__":
  main()
