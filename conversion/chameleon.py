"""Converts Chameleon networks: Anole and Lumina-mGPT draw images, Chameleon itself was released without that.

``python -m conversion.chameleon SRC DST`` reads Meta's download (``models/7b``, ``tokenizer``; GAIR's Anole has the same
form) or a folder of the Hugging Face hub, and writes a checkpoint folder with its ``tokenizer.json``. A ``vqgan.ckpt`` that
belongs to it becomes the folder ``vq`` inside. Weights are read, changed and written one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import click
import jax.numpy as jnp
from safetensors import SafetensorError

from jaxspec.io import checkpoints
from jaxspec.io.text import image_vocabulary
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, from_json
from jaxspec.models import registry
from jaxspec.models.chameleon.chameleon import LAYOUTS, ChameleonConfig

from . import chameleon_files, chameleon_vq, command, engine, hugging_face, released
from .rules import Rule

DTYPES = ("bfloat16", "float32")  # of stored weights
VQ_FOLDER = "vq"
# Pixels of a code along one side, in the released tokenizer.
_PIXELS = 16


def _block(hub: str, meta: str) -> tuple[Rule, Rule]:
  """Rules of a tensor of every block, by the names of the hub and of Meta."""
  target = f"layers_{{i}}.{hub}"
  return Rule(f"model.layers.{{i}}.{hub}", target), Rule(f"layers.{{i}}.{meta}", target)


_PAIRS = (
  (Rule("model.embed_tokens.weight", "embed_tokens.weight"), Rule("tok_embeddings.weight", "embed_tokens.weight")),
  *(_block(f"self_attn.{letter}_proj.weight", f"attention.w{letter}.weight") for letter in "qkvo"),
  *(
    _block(f"self_attn.{letter}_norm.{leaf}", f"attention.{letter}_normalization.{leaf}")
    for letter in "qk"
    for leaf in ("weight", "bias")
  ),
  *(
    _block(f"mlp.{ours}_proj.weight", f"feed_forward.{meta}.weight")
    for ours, meta in zip(("gate", "up", "down"), ("w1", "w3", "w2"))
  ),
  _block("input_layernorm.weight", "attention_norm.weight"),
  _block("post_attention_layernorm.weight", "ffn_norm.weight"),
  (Rule("model.norm.weight", "norm.weight"), Rule("norm.weight")),
  (Rule("lm_head.weight"), Rule("output.weight", "lm_head.weight")),
)
# The image tokenizer is a checkpoint of its own; frequencies are recomputed.
_IGNORED = (
  r"model\.vqmodel\..*",
  r"(model\.layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
  r"model\.rotary_emb\.inv_freq",
  r"rope\.freqs",
)


def _config(shapes: Any, fields: dict[str, Any]) -> ChameleonConfig:
  return registry.make_config("chameleon", fields)


HUB = engine.Family("chameleon", tuple(hub for hub, _ in _PAIRS), _IGNORED, _config)
META = engine.Family("chameleon", tuple(meta for _, meta in _PAIRS), _IGNORED, _config)


def convert_folder(
  source: Path, destination: Path, fields: dict[str, Any], *, dtype: str = "bfloat16", text: Path | None = None,
  image: Path | None = None, on_write: engine.OnWrite = engine.silent,
) -> ChameleonConfig:  # fmt: skip
  """Writes the checkpoint folder of a network, with its image tokenizer where the folder has one; returns its config.

  Args:
    fields: config fields that win over those of the folder; ``layout`` where nothing tells it.
    dtype: of the stored weights, one of `DTYPES`. The released ones are in bfloat16.
    text: the text tokenizer, instead of the one that belongs to the folder.
    image: ``vqgan.ckpt``, instead of the one that belongs to the folder.
    on_write: as for `engine.convert_file`.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  checkpoints.check_destination(destination, source)
  content = chameleon_files.read(source)
  found = chameleon_files.tokenizer_files(source) | {k: v for k, v in (("text", text), ("image", image)) if v is not None}
  ids, tokenizer_json = {}, None
  if "text" in found:
    tokenizer_json = hugging_face.read_bytes(found["text"])
    ids = image_vocabulary.read_ids(from_json(tokenizer_json, found["text"]), found["text"])
  if "layout" not in fields and not (content.is_meta or content.is_lumina):
    raise ValueError(f"Must have --layout, one of {', '.join(LAYOUTS)}: nothing in {source} tells it")
  fields = {"layout": "lumina" if content.is_lumina else "anole"} | content.fields | ids | fields
  family = META if content.is_meta else HUB
  try:
    config = _config(None, fields)
    config, leaves = engine.match(chameleon_files.in_halves(content.tensors, config), family, fields)

    def write_more(folder: Path) -> None:
      if tokenizer_json is not None:
        (folder / TOKENIZER_FILE).write_bytes(tokenizer_json)
      if "image" in found:
        engine.convert_file(found["image"], folder / VQ_FOLDER, chameleon_vq.FAMILY, on_write=on_write)
      elif chameleon_vq.is_whole(content.tensors):
        chameleon_vq.convert_folder(source, folder / VQ_FOLDER, chameleon_vq.FAMILY, {}, on_write=on_write)

    meta = {"source": source.resolve().name, "source_sha256": hugging_face.digest(content.files), "licence": "unknown"}
    more = dict(meta=meta, dtype=jnp.dtype(dtype), write_more=write_more)
    engine.write(destination, config, leaves, on_write=on_write, **more)
  except (ValueError, SafetensorError) as error:
    text_ = str(error)
    raise ValueError(text_ if str(source) in text_ else f"Cannot convert {source}: {text_}") from error
  return config


def reads_folder(names: Set[str], config: Mapping[str, Any]) -> bool:
  """Whether a folder is Meta's download of a network, or one of the hub."""
  return config.get("model_type") == "chameleon" or any(chameleon_files.is_meta(name) for name in names)


RELEASED = released.of_model_type("chameleon", convert_folder)._replace(reads_folder=reads_folder)


def read_size(text: str) -> dict[str, int]:
  """Fields of an image size in pixels, ``512`` or ``WIDTHxHEIGHT``.

  Raises:
    ValueError: for sides that are no multiples of 32.
  """
  match = re.fullmatch(r"([1-9]\d{1,4})(?:x([1-9]\d{1,4}))?", text)
  width, height = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
  if not width or width % 32 or height % 32:
    raise ValueError(f"Must have an image size such as 512 or 768x512, in multiples of 32, we instead got {text!r}")
  return {"rows": height // _PIXELS, "columns": width // _PIXELS}


@command.converter(exports=False)
@click.option("--layout", type=click.Choice(LAYOUTS), help="How images are written, where the folder does not tell.")
@click.option("--image-size", metavar="SIZE", help="Pixels, 512 or WIDTHxHEIGHT.  [default: 512]")
@click.option("--tokenizer", type=command.PATH, help="text_tokenizer.json, instead of that of SRC.")
@click.option("--image-tokenizer", type=command.PATH, help="vqgan.ckpt, instead of that of SRC.")
@click.option("--dtype", type=click.Choice(DTYPES), default="bfloat16", show_default=True, help="Of the stored weights.")
def main(
  source: Path, destination: Path, layout: str | None, image_size: str | None, tokenizer: Path | None,
  image_tokenizer: Path | None, dtype: str, config_file: Path | None,
) -> str:  # fmt: skip
  """Converts the Chameleon, Anole or Lumina-mGPT folder SRC to the checkpoint folder DST."""
  fields = command.read_fields(config_file)
  command.check_fields(HUB, fields)
  size = {} if image_size is None else read_size(image_size)
  fields |= size | ({} if layout is None else {"layout": layout})
  with command.shown() as on_write:
    parts = dict(text=tokenizer, image=image_tokenizer)
    config = convert_folder(source, destination, fields, dtype=dtype, on_write=on_write, **parts)
  return (
    f"{config.num_layers} layers, width {config.dim}, {config.num_heads} heads over {config.kv_heads}; "
    f"images of {config.columns} x {config.rows} codes ({config.layout})"
  )


if __name__ == "__main__":
  main()
