"""Converts the image tokenizer of Chameleon, Anole and Lumina-mGPT.

``python -m conversion.chameleon_vq SRC DST`` reads ``vqgan.ckpt`` of Meta's download (or the same tensors as
``.safetensors``), or a folder of the hub whose network holds the whole tokenizer under ``model.vqmodel``, as converted Anole
does (converted Chameleon lacks the decoder), and writes a checkpoint folder; ``--export`` goes back to a file. The shapes
determine the config except for the number of groups of the norms, which is 32 as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxspec.models import registry
from jaxspec.models.tokenizers.chameleon_vq import ChameleonVQConfig

from . import command, engine, hugging_face, mar_vae, released
from .rules import Rule, Shape

_PREFIX = "model.vqmodel."

RULES = (*mar_vae.RULES, Rule("quantize.embedding.weight"))
# Networks that only training needs.
IGNORED = (r"loss\..*",)


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> ChameleonVQConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  inferred = mar_vae.inferred_fields(shapes)
  first = lambda pattern, axis, ndim: next(iter(engine.axis_sizes(shapes, pattern, axis, ndim)), None)  # noqa: E731
  inferred["codebook_size"] = first(r"quantize\.embedding\.weight", 0, 2)
  widths = [inferred.pop("latent_channels"), first(r"quantize\.embedding\.weight", 1, 2), first(r"quant_conv\.weight", 0, 4)]
  inferred["codebook_dim"] = engine.most_common(widths)
  return registry.make_config("chameleon_vq", engine.require(fields, inferred))


FAMILY = engine.Family("chameleon_vq", RULES, IGNORED, infer_config, exported=("state_dict",))


def is_whole(tensors: Mapping[str, Any]) -> bool:
  """Whether a network of the hub holds the whole tokenizer; converted Chameleon lacks the decoder."""
  return any(isinstance(name, str) and name.startswith(f"{_PREFIX}decoder.") for name in tensors)


def convert_folder(
  folder: Path, destination: Path, family: engine.Family, fields: dict[str, Any], *, on_write: engine.OnWrite = engine.silent
) -> ChameleonVQConfig:
  """Writes the checkpoint folder of the tokenizer inside a hub folder; returns its config.

  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  files = hugging_face.weight_files(folder)
  tensors = hugging_face.read_tensors(folder, files)
  inside = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
  try:
    config, leaves = engine.match(inside, family, fields)
  except ValueError as error:
    raise ValueError(f"Cannot convert {folder}: {error}") from error
  meta = {"source": folder.resolve().name, "source_sha256": hugging_face.digest(files), "licence": "unknown"}
  engine.write(destination, config, leaves, meta=meta, on_write=on_write)
  return config


RELEASED = released.of_file(FAMILY)


@command.converter()
def main(**options: Any) -> str:
  """Converts the Chameleon image tokenizer in SRC to the checkpoint folder DST."""
  convert = convert_folder if options["source"].is_dir() else engine.convert_file
  config = command.run(FAMILY, convert=convert, **options)
  return f"{config.factor} x {config.factor} pixels per token, {config.codebook_size} codes of width {config.codebook_dim}"


if __name__ == "__main__":
  main()
