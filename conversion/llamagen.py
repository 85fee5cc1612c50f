"""Converts LlamaGen transformers (FoundationVision/LlamaGen, arXiv 2406.06525).

``python -m conversion.llamagen SRC DST`` reads an official ``.pt`` file (or the same tensors as ``.safetensors``) and
writes a checkpoint folder; ``--export`` goes back. A file states neither the number of heads nor the number of image tokens.
Published sizes are recognised by depth and width. Other sizes need a JSON file with both numbers, given by ``--config``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from jaxspec.models import registry
from jaxspec.models.llamagen import PUBLISHED_SIZES, LlamaGenConfig

from . import command, engine, released
from .rules import Rule, Shape

_PIXELS_PER_TOKEN = 16
_PUBLISHED_FILE = re.compile(r"(?:c2i|t2i)_[A-Za-z0-9]+(?:_stage[12])?_(256|384|512)")

RULES = (
  Rule("cls_embedding.embedding_table.weight"),
  Rule("cls_embedding.uncond_embedding"),
  Rule("cls_embedding.cap_proj.{layer:fc1|fc2}.weight"),
  Rule("tok_embeddings.weight"),
  Rule("layers.{i}.attention.{matrix:wqkv|wo}.weight"),
  Rule("layers.{i}.feed_forward.{matrix:w1|w2|w3}.weight"),
  Rule("layers.{i}.{norm:attention_norm|ffn_norm}.weight"),
  Rule("norm.weight"),
  Rule("output.weight"),
)

# Rotary tables (older files store one, perhaps for another resolution), masks and caches are recomputed.
IGNORED = (
  r"freqs_cis",
  r"causal_mask",
  r"layers\.\d+\.attention\.kv_cache\.[kv]_cache",
)


def ffn_fields(dim: int, hidden: int) -> dict[str, Any]:
  """``multiple_of`` and ``ffn_dim_multiplier`` for which the config's hidden size is ``hidden``."""
  base = int(2 * (4 * dim) / 3)
  for multiple in (256, 128, 64, 32, 16, 8, 4, 2, 1, hidden):
    if multiple and -(-base // multiple) * multiple == hidden:
      return {"multiple_of": multiple, "ffn_dim_multiplier": None}
  # int(multiplier * base) must not fall below hidden by rounding.
  return {"multiple_of": 1, "ffn_dim_multiplier": (hidden + 0.5) / base if base else None}


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> LlamaGenConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  fields = dict(fields)
  sizes = lambda pattern, axis, ndim: engine.axis_sizes(shapes, pattern, axis, ndim)  # noqa: E731
  table = "cls_embedding.embedding_table.weight" in shapes
  caption = any(name.startswith("cls_embedding.") and name != "cls_embedding.embedding_table.weight" for name in shapes)
  model_type = {(True, False): "c2i", (False, True): "t2i"}.get((table, caption))
  layers = engine.count_distinct(shapes, r"layers\.(\d+)\.")
  dim = engine.most_common(
    [
      *sizes(r"(tok_embeddings|output|cls_embedding\.embedding_table)\.weight", 1, 2),
      *sizes(r"(norm|layers\.\d+\.(attention|ffn)_norm)\.weight", 0, 1),
      *sizes(r"layers\.\d+\.attention\.wqkv\.weight", 1, 2),
    ]
  )
  inferred = {
    "model_type": model_type,
    "num_layers": layers or None,
    "dim": dim,
    "vocab_size": engine.most_common(sizes(r"(tok_embeddings|output)\.weight", 0, 2)),
  }
  if fields.get("model_type", model_type) == "c2i":
    rows = next(iter(sizes(r"cls_embedding\.embedding_table\.weight", 0, 2)), None)
    inferred["num_classes"] = None if rows is None else rows - 1
  else:
    inferred["caption_dim"] = engine.most_common(
      [
        *sizes(r"cls_embedding\.cap_proj\.fc1\.weight", 1, 2),
        *sizes(r"cls_embedding\.uncond_embedding", 1, 2),
      ]
    )
    inferred["prefix_len"] = next(iter(sizes(r"cls_embedding\.uncond_embedding", 0, 2)), 120)

  published = {size[:2]: size[2] for size in PUBLISHED_SIZES.values()}
  heads = published.get((fields.get("num_layers", layers), fields.get("dim", dim)))
  image_size = fields.pop("image_size", None)
  inferred["num_heads"] = heads
  if image_size is not None:
    inferred["num_tokens"] = (image_size // _PIXELS_PER_TOKEN) ** 2
  else:
    inferred["num_tokens"] = None if heads is None else 256
  fields = engine.require(fields, inferred)

  if not {"multiple_of", "ffn_dim_multiplier"} & fields.keys():
    hidden = engine.most_common(
      [
        *sizes(r"layers\.\d+\.feed_forward\.w[13]\.weight", 0, 2),
        *sizes(r"layers\.\d+\.feed_forward\.w2\.weight", 1, 2),
      ]
    )
    if hidden is not None:
      fields |= ffn_fields(fields["dim"], hidden)
  if "num_kv_heads" not in fields:
    rows = engine.most_common(sizes(r"layers\.\d+\.attention\.wqkv\.weight", 0, 2))
    head_dim = fields["dim"] // fields["num_heads"]
    kv_heads = (rows // head_dim - fields["num_heads"]) // 2 if rows is not None and head_dim else 0
    fits = 0 < kv_heads < fields["num_heads"] and (fields["num_heads"] + 2 * kv_heads) * head_dim == rows
    fields["num_kv_heads"] = kv_heads if fits else None
  return registry.make_config("llamagen", fields)


FAMILY = engine.Family("llamagen", RULES, IGNORED, infer_config)


def convert_published(
  source: Path, destination: Path, family: engine.Family, fields: dict[str, Any], *, on_write: engine.OnWrite
) -> LlamaGenConfig:
  """`engine.convert_file`; the name of a published file tells the side of its images, which the tensors do not.

  Raises:
    ValueError: for another name without ``num_tokens`` in ``fields``: a wrong number draws broken images.
  """
  if "num_tokens" not in fields:
    if (match := _PUBLISHED_FILE.fullmatch(source.stem)) is None:
      beside = source.with_suffix(".json")
      raise ValueError(
        f"Must have num_tokens in {beside} (256 for images of 256 pixels), neither name nor tensors tell them"
      )
    fields = fields | {"image_size": int(match[1])}
  return engine.convert_file(source, destination, family, fields, on_write=on_write)


RELEASED = released.of_file(FAMILY, convert=convert_published)


@command.converter()
@click.option(
  "--image-size",
  type=click.IntRange(min=_PIXELS_PER_TOKEN),
  help="Side of the images in pixels; 16 pixels make a token.  [default: 256 of a published size]",
)
def main(image_size: int | None, **options: Any) -> str:
  """Converts the LlamaGen transformer in SRC to the checkpoint folder DST."""
  if image_size is not None and image_size % _PIXELS_PER_TOKEN:
    raise ValueError(f"Must have an image size divisible by {_PIXELS_PER_TOKEN}, we instead got {image_size}")

  def own(fields: dict[str, Any]) -> dict[str, Any]:
    if image_size is not None and "num_tokens" in fields:
      raise ValueError("Must have either --image-size or num_tokens in --config, we instead got both")
    return fields

  def convert(source: Path, destination: Path, family: engine.Family, fields: dict[str, Any], **kwargs: Any) -> Any:
    size = {} if image_size is None else {"image_size": image_size}
    return engine.convert_file(source, destination, family, fields | size, **kwargs)

  config = command.run(FAMILY, own=own, convert=convert, **options)
  return (
    f"{config.model_type}, {config.num_layers} layers, width {config.dim}, {config.num_heads} heads, "
    f"{config.prefix_len} condition tokens, {config.grid} x {config.grid} image tokens"
  )


if __name__ == "__main__":
  main()
