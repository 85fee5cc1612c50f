"""Converts MAR networks (LTH14/mar, arXiv 2406.11838).

``python -m conversion.mar SRC DST`` reads an official training file (``.pth``, or the tensors as ``.safetensors``) and
writes a checkpoint folder; ``--export`` goes back. Averaged weights (``model_ema``) are read if the file has them, as in the
official evaluation. A file does not state the number of heads. Published sizes are recognised by depth and width. Other
sizes need a JSON file with ``encoder_heads`` and ``decoder_heads``, given by ``--config``. That file may also hold arguments
of the official constructor.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from jaxspec.models import registry
from jaxspec.models.mar.mar import PUBLISHED_SIZES, MARConfig

from . import command, engine, released
from .rules import Rule, Shape, norm

_SIDE = "{side:encoder|decoder}"
_BLOCK = f"{_SIDE}_blocks.{{i}}"


def _head(source: str, target: str | None = None) -> tuple[Rule, Rule]:
  """Rules of a linear layer of the head; targets lack the official ``net``."""
  return norm(f"diffloss.net.{source}", f"diffloss.{source if target is None else target}")


RULES = (
  Rule("class_emb.weight"),
  Rule("{table:fake_latent|mask_token}"),
  Rule("{table:encoder|decoder|diffusion}_pos_embed_learned"),
  *norm("{layer:z_proj|z_proj_ln|encoder_norm|decoder_embed|decoder_norm}"),
  *norm(f"{_BLOCK}.{{norm:norm1|norm2}}"),
  *norm(f"{_BLOCK}.attn.{{layer:qkv|proj}}"),
  *norm(f"{_BLOCK}.mlp.{{layer:fc1|fc2}}"),
  *_head("time_embed.mlp.{j:0|2}", "time_embed.mlp_{j:0|2}"),
  *_head("{layer:cond_embed|input_proj}"),
  *_head("res_blocks.{i}.in_ln", "res_blocks_{i}.in_ln"),
  *_head("res_blocks.{i}.mlp.{j:0|2}", "res_blocks_{i}.mlp_{j:0|2}"),
  *_head("res_blocks.{i}.adaLN_modulation.1", "res_blocks_{i}.adaLN_modulation"),
  *_head("final_layer.linear"),
  *_head("final_layer.adaLN_modulation.1", "final_layer.adaLN_modulation"),
)

# Arguments of the official constructor: those that are config fields under another name, and those that describe no weights.
_OFFICIAL = {
  "vae_embed_dim": "latent_channels",
  "class_num": "num_classes",
  "encoder_embed_dim": "encoder_dim",
  "encoder_num_heads": "encoder_heads",
  "decoder_embed_dim": "decoder_dim",
  "decoder_num_heads": "decoder_heads",
  "diffloss_w": "diffloss_width",
  "diffloss_d": "diffloss_depth",
}
_NO_WEIGHTS = frozenset("label_drop_prob mask_ratio_min diffusion_batch_mul num_sampling_steps grad_checkpointing".split())


def own_fields(fields: dict[str, Any]) -> dict[str, Any]:
  """Config fields from a mixture of them and the official constructor's arguments.

  Raises:
    ValueError: if one thing is given twice, or the image size is no multiple of a token's side.
  """
  fields = {name: value for name, value in fields.items() if name not in _NO_WEIGHTS}
  if "img_size" in fields or "vae_stride" in fields:
    size, stride = fields.pop("img_size", 256), fields.pop("vae_stride", 16)
    try:
      side, rest = divmod(size, stride * fields.get("patch_size", 1))
    except (TypeError, ZeroDivisionError) as error:
      raise ValueError(f"Must have an image size and a stride, we instead got {size} and {stride}") from error
    if rest:
      raise ValueError(f"Must have an image size divisible by stride and patch, we instead got {size} and {stride}")
    if "num_tokens" in fields:
      raise ValueError("Must have either img_size or num_tokens in --config, we instead got both")
    fields["num_tokens"] = side**2
  for official, own in _OFFICIAL.items():
    if official in fields:
      if own in fields:
        raise ValueError(f"Must have either {official} or {own} in --config, we instead got both")
      fields[own] = fields.pop(official)
  return fields


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> MARConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  sizes = lambda pattern, axis, ndim: engine.axis_sizes(shapes, pattern, axis, ndim)  # noqa: E731
  first = lambda pattern, axis, ndim: next(iter(sizes(pattern, axis, ndim)), None)  # noqa: E731
  num_tokens = first(r"diffusion_pos_embed_learned", 1, 3)
  rows = engine.most_common(sizes(r"(en|de)coder_pos_embed_learned", 1, 3))
  patch = fields.get("patch_size", 1)
  token_dim = first(r"z_proj\.weight", 1, 2) or first(r"diffloss\.net\.input_proj\.weight", 1, 2)
  inferred = {
    "num_tokens": num_tokens,
    "buffer_size": rows - num_tokens if rows and num_tokens else None,
    "latent_channels": token_dim // patch**2 if token_dim else None,
    "num_classes": first(r"class_emb\.weight", 0, 2),
    "diffloss_width": engine.most_common(
      [
        *sizes(r"diffloss\.net\.(input_proj|cond_embed|time_embed\.mlp\.[02])\.weight", 0, 2),
        *sizes(r"diffloss\.net\.res_blocks\.\d+\.in_ln\.weight", 0, 1),
      ]
    ),
    "diffloss_depth": engine.count_distinct(shapes, r"diffloss\.net\.res_blocks\.(\d+)\.") or None,
  }
  ratios = []
  for side in ("encoder", "decoder"):
    dim = engine.most_common(
      [
        *sizes(rf"{side}_norm\.(weight|bias)", 0, 1),
        *sizes(rf"{side}_blocks\.\d+\.norm[12]\.weight", 0, 1),
        *sizes(rf"{side}_pos_embed_learned", 2, 3),
      ]
    )
    depth = engine.count_distinct(shapes, rf"{side}_blocks\.(\d+)\.") or None
    published = {size[:2]: size[2] for size in PUBLISHED_SIZES.values()}
    heads = published.get((fields.get(f"{side}_dim", dim), fields.get(f"{side}_depth", depth)))
    inferred |= {f"{side}_dim": dim, f"{side}_depth": depth, f"{side}_heads": heads}
    hidden = engine.most_common(sizes(rf"{side}_blocks\.\d+\.mlp\.fc1\.(weight|bias)", 0, 2))
    ratios.append(engine.mlp_ratio(hidden, dim))
  inferred["mlp_ratio"] = next((ratio for ratio in ratios if ratio), None)
  return registry.make_config("mar", engine.require(fields, inferred))


FAMILY = engine.Family(
  "mar", RULES, (), infer_config, averaged="model_ema", prefer_averaged=True, exported=("model", "model_ema")
)
RELEASED = released.of_file(FAMILY, own=own_fields)


@command.converter()
@command.averaged_option
def main(ema: bool | None, **options: Any) -> str:
  """Converts the MAR network in SRC to the checkpoint folder DST."""
  config = command.run(FAMILY, own=own_fields, convert=functools.partial(engine.convert_file, ema=ema), **options)
  return (
    f"{config.encoder_depth} + {config.decoder_depth} layers, width {config.encoder_dim} and {config.decoder_dim}, "
    f"{config.encoder_heads} and {config.decoder_heads} heads, {config.grid} x {config.grid} tokens of "
    f"{config.latent_channels} channels and patch size {config.patch_size}, head {config.diffloss_depth} x "
    f"{config.diffloss_width}"
  )


if __name__ == "__main__":
  main()
