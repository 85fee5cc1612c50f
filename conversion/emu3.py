"""Converts Emu3 networks that draw images (BAAI/Emu3-Gen).

``python -m conversion.emu3 SRC DST`` reads the released folder (``config.json``, weights, vocabulary) and writes a
checkpoint folder with its ``tokenizer.json``. The folder of the vision tokenizer, a repository of its own, becomes the
folder ``vq`` inside. Weights are read, changed and written one at a time. ``--export`` writes a folder without vision
tokenizer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import jax.numpy as jnp
from safetensors import SafetensorError

from jaxspec.io import checkpoints
from jaxspec.io.text import emu3_vocabulary
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, from_json
from jaxspec.models import registry
from jaxspec.models.language.emu3 import Emu3Config

from . import command, emu3_tokenizer, emu3_vq, engine, hugging_face, llama, released

DTYPES = ("bfloat16", "float32")  # of stored weights
VQ_FOLDER = "vq"
VQ_NAME = "Emu3-VisionTokenizer"  # of the released repository
IMAGE_AREA = 720 * 720  # of Emu3-Gen, in pixels
# Pixels of a code along one side, in the released tokenizer.
_PIXELS = 8
# Of the official script.
SUFFIX = " masterpiece, film grained, best quality."
NEGATIVE_PROMPT = (
  "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst quality, "
  "low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
)


def read_config(document: dict[str, Any]) -> dict[str, Any]:
  """Fields of an `Emu3Config` from a ``config.json``."""
  fields = llama.read_config({"rms_norm_eps": 1e-5, **document})
  for name in ("attention_bias", "mlp_bias", "tie_embeddings"):
    if fields.pop(name):
      raise ValueError(f"Must have no {name.replace('_', ' ')}, we instead got some")
  rope, head_size = fields.pop("rope"), fields.pop("head_size")
  if rope.scaling != "default":
    raise ValueError(f"Must have plain rotary positions, we instead got {rope.scaling}")
  if head_size not in (None, document["hidden_size"] // document["num_attention_heads"]):
    raise ValueError(f"Must have heads that divide the width, we instead got heads of {head_size}")
  del fields["end_ids"]
  return fields | {"rope_theta": rope.theta}


def write_config(config: Emu3Config) -> dict[str, Any]:
  """``config.json`` of an `Emu3Config`."""
  return {
    "architectures": ["Emu3ForCausalLM"],
    "vocab_size": config.vocab_size,
    "hidden_size": config.dim,
    "num_hidden_layers": config.num_layers,
    "num_attention_heads": config.num_heads,
    "num_key_value_heads": config.kv_heads,
    "intermediate_size": config.ffn_hidden,
    "hidden_act": "silu",
    "rms_norm_eps": config.norm_eps,
    "rope_theta": config.rope_theta,
    "max_position_embeddings": config.max_positions,
    "tie_word_embeddings": False,
    "bos_token_id": config.begin_text,
    "eos_token_id": config.end_text,
    "img_token_id": config.begin_codes,
    "boi_token_id": config.begin_image,
    "eoi_token_id": config.end_image,
    "eol_token_id": config.end_row,
    "eof_token_id": config.end_frame,
    "image_area": config.rows * config.columns * _PIXELS**2,
  }


FAMILY = hugging_face.family("emu3", llama.RULES, llama.IGNORED)
ARCHITECTURE = hugging_face.Architecture("Emu3", "model.", FAMILY, read_config, write_config)


def image_size(ratio: str, area: int, pixels: int = _PIXELS) -> dict[str, int]:
  """Fields of an image size, as ``calculate_generate_size`` of the official processor computes them.

  Args:
    ratio: ``WIDTH:HEIGHT`` in whole numbers.
    area: of the image in pixels.
    pixels: of a code along one side.
  Raises:
    ValueError: for another ratio, or an image without a code.
  """
  match = re.fullmatch(r"([1-9]\d{0,4}):([1-9]\d{0,4})", ratio)
  if match is None:
    raise ValueError(f"Must have a ratio such as 1:1 or 16:9, we instead got {ratio!r}")
  width, height = int(match[1]), int(match[2])
  scale = (area / (height * width)) ** 0.5
  rows, columns = int(round(height * scale / pixels)), int(round(width * scale / pixels))
  if not rows or not columns:
    raise ValueError(f"Must have at least one code in an image, {ratio} of {area} pixels has {columns} x {rows}")
  return {"rows": rows, "columns": columns}


def convert_folder(
  source: Path, destination: Path, fields: dict[str, Any], *, dtype: str = "bfloat16", text: Path | None = None,
  image: Path | None = None, ratio: str = "1:1", area: int | None = None, suffix: str = SUFFIX,
  negative: str = NEGATIVE_PROMPT, on_write: engine.OnWrite = engine.silent,
) -> Emu3Config:  # fmt: skip
  """Writes the checkpoint folder of a network; returns its config.

  Args:
    fields: config fields that win over those of the folder.
    dtype: of the stored weights, one of `DTYPES`. The released ones are in bfloat16.
    text: ``tokenizer.json``, instead of the vocabulary of the folder.
    image: folder of the vision tokenizer; by default the one beside the source with its released name.
    ratio, area: see `image_size`; the area of the folder's ``config.json`` by default.
    suffix, negative: text behind every prompt, and the negative prompt.
    on_write: as for `engine.convert_file`.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  checkpoints.check_destination(destination, source)
  content = hugging_face.read_folder(source, ARCHITECTURE)
  tokenizer_json = emu3_tokenizer.read(source) if text is None else hugging_face.read_bytes(text)
  if tokenizer_json is None:
    names = f"{emu3_tokenizer.RANKS_FILE} and {emu3_tokenizer.IMAGE_TOKENS_FILE}"
    raise ValueError(f"Must have the vocabulary of {source} ({names}, or --tokenizer), we instead got none")
  tokenizer = from_json(tokenizer_json, text or source)
  ids = emu3_vocabulary.read_ids(tokenizer, text or source)
  image = _vision_tokenizer_of(source) if image is None else image
  pixels = _pixels_of(image)
  area = _area_of(source) if area is None else area
  prompts = {"suffix": suffix, "null_text": tuple(tokenizer.encode(negative, add_special_tokens=False).ids)}
  fields = content.fields | ids | prompts | image_size(ratio, area, pixels) | fields
  try:
    config, leaves = engine.match(content.tensors, FAMILY, fields)
    if tokenizer.get_vocab_size() > config.vocab_size:
      found = tokenizer.get_vocab_size()
      raise ValueError(f"Must have a tokenizer of at most {config.vocab_size} tokens, we instead got {found}")

    def write_more(folder: Path) -> None:
      (folder / TOKENIZER_FILE).write_bytes(tokenizer_json)
      if image is not None:
        hugging_face.convert_folder(image, folder / VQ_FOLDER, emu3_vq.ARCHITECTURE, {}, None, on_write=on_write)

    more = dict(meta=content.meta, dtype=jnp.dtype(dtype), write_more=write_more)
    engine.write(destination, config, leaves, on_write=on_write, **more)
  except (ValueError, SafetensorError) as error:
    message = str(error)
    raise ValueError(message if str(source) in message else f"Cannot convert {source}: {message}") from error
  return config


def _vision_tokenizer_of(folder: Path) -> Path | None:
  """The folder of the vision tokenizer that lies beside that of a network."""
  beside = folder.resolve().parent / VQ_NAME
  return beside if beside.is_dir() else None


def _pixels_of(tokenizer: Path | None) -> int:
  """Pixels of a code along one side, of the folder of a vision tokenizer; None is the released one."""
  if tokenizer is None:
    return _PIXELS
  return emu3_vq.FAMILY.infer_config({}, hugging_face.read_fields(tokenizer, emu3_vq.ARCHITECTURE)).factor


def _area_of(folder: Path) -> int:
  """Pixels of an image, of the folder of a network."""
  area = hugging_face.read_json(folder / hugging_face.CONFIG_FILE).get("image_area", IMAGE_AREA)
  if type(area) is not int or area < 1:
    raise ValueError(f"Must have a positive number of pixels as image_area of {folder}, we instead got {area!r}")
  return area


def released_config(folder: Path) -> Emu3Config:
  """The config of a released folder, whose weights need not be there; without a vocabulary the ids are those of Emu3-Gen.

  Raises:
    ValueError: one line naming what is missing or damaged.
  """
  fields, text = hugging_face.read_fields(folder, ARCHITECTURE), emu3_tokenizer.read(folder)
  ids = {} if text is None else emu3_vocabulary.read_ids(from_json(text, folder), folder)
  size = image_size("1:1", _area_of(folder), _pixels_of(_vision_tokenizer_of(folder)))
  return registry.make_config(FAMILY.name, fields | ids | size)


RELEASED = released.of_model_type(ARCHITECTURE.model_type, convert_folder, released_config)


def _in_words(config: Emu3Config) -> str:
  return (
    f"{config.num_layers} layers, width {config.dim}, {config.num_heads} heads over {config.kv_heads}; "
    f"images of {config.columns} x {config.rows} codes"
  )


@command.converter()
@click.option("--ratio", default="1:1", show_default=True, help="Width and height of images, as 16:9.")
@click.option("--image-area", type=click.IntRange(1), help="Pixels of an image.  [default: image_area of config.json]")
@click.option("--image-tokenizer", type=command.PATH, help=f"Its folder.  [default: {VQ_NAME} beside SRC]")
@click.option("--tokenizer", type=command.PATH, help="tokenizer.json, instead of the vocabulary of SRC.")
@click.option("--suffix", default=SUFFIX, show_default=True, help="Text behind every prompt.")
@click.option("--negative-prompt", default=NEGATIVE_PROMPT, help="Of guidance.  [default: that of the official script]")
@click.option("--dtype", type=click.Choice(DTYPES), default="bfloat16", show_default=True, help="Of the stored weights.")
def main(
  source: Path, destination: Path, ratio: str, image_area: int | None, image_tokenizer: Path | None, tokenizer: Path | None,
  suffix: str, negative_prompt: str, dtype: str, config_file: Path | None,
  export: bool,
) -> str:  # fmt: skip
  """Converts the Emu3 folder SRC to the checkpoint folder DST."""
  if export:
    return _in_words(hugging_face.export_folder(source, destination, ARCHITECTURE))
  fields = command.read_fields(config_file)
  command.check_fields(FAMILY, fields)
  with command.shown() as on_write:
    config = convert_folder(
      source, destination, fields, dtype=dtype, text=tokenizer, image=image_tokenizer, ratio=ratio, area=image_area,
      suffix=suffix, negative=negative_prompt, on_write=on_write,
    )  # fmt: skip
  return _in_words(config)


if __name__ == "__main__":
  main()
