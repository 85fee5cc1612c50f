"""Converts Llama networks, and others of that architecture (SmolLM2, TinyLlama).

``python -m conversion.llama SRC DST`` reads a folder of the Hugging Face hub, or a ``.gguf`` file whose weights are
dequantized, and writes a checkpoint folder with its tokenizer; ``--export`` goes back to a folder.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from jaxspec.models.language.llama import LlamaConfig
from jaxspec.models.nn.rope_text import Rope

from . import command, gguf_files, hugging_face, released
from .rules import Rule

_LEAF = "{leaf:weight|bias}"


def _block(name: str) -> Rule:
  """Rule of a tensor of every block."""
  return Rule(f"model.layers.{{i}}.{name}", f"layers_{{i}}.{name}")


RULES = (
  Rule("model.embed_tokens.weight", "embed_tokens.weight"),
  _block(f"self_attn.{{matrix:q_proj|k_proj|v_proj|o_proj}}.{_LEAF}"),
  _block(f"mlp.{{matrix:gate_proj|up_proj|down_proj}}.{_LEAF}"),
  _block("{norm:input_layernorm|post_attention_layernorm}.weight"),
  Rule("model.norm.weight", "norm.weight"),
  Rule("lm_head.weight"),
)

# Frequencies are recomputed.
IGNORED = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"model\.rotary_emb\.inv_freq")

# Keys of rope_parameters with the fields of `Rope` they become.
_ROPE_FIELDS = {
  "rope_theta": "theta",
  "factor": "factor",
  "original_max_position_embeddings": "original_max_positions",
  "low_freq_factor": "low_freq_factor",
  "high_freq_factor": "high_freq_factor",
  "beta_fast": "beta_fast",
  "beta_slow": "beta_slow",
  "truncate": "truncate",
  "attention_factor": "attention_factor",
}
# What each scaling reads besides the base.
_ROPE_READS = {
  "default": (),
  "linear": ("factor",),
  "dynamic": ("factor",),
  "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate", "attention_factor"),
  "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}


def read_rope(document: dict[str, Any]) -> Rope:
  """`Rope` of a ``config.json``: ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` in older files.

  Raises:
    ValueError: for a scaling that is not known or not completely described.
  """
  found = dict(document.get("rope_parameters") or document.get("rope_scaling") or {})
  found.setdefault("rope_theta", document.get("rope_theta", 10000.0))
  scaling = found.get("rope_type", found.get("type", "default"))
  if scaling not in _ROPE_READS:
    raise ValueError(f"Must have a rope_type in {', '.join(_ROPE_READS)}, we instead got {scaling!r}")
  if found.get("partial_rotary_factor") not in (None, 1, 1.0):
    raise ValueError(f"Must have rotary positions on whole heads, we instead got {found['partial_rotary_factor']} of them")
  length = document["max_position_embeddings"]
  if scaling == "dynamic":
    original = length
  else:
    original = document.get("original_max_position_embeddings") or found.get("original_max_position_embeddings") or length
  found["original_max_position_embeddings"] = original
  reads = ("rope_theta", *_ROPE_READS[scaling])
  if scaling == "yarn":
    if found.get("factor") is None:
      found["factor"] = length / original
    if found.get("attention_factor") is None and found.get("mscale") and found.get("mscale_all_dim"):
      stretch = 0.1 * math.log(found["factor"]) if found["factor"] > 1 else 0.0
      found["attention_factor"] = (stretch * found["mscale"] + 1) / (stretch * found["mscale_all_dim"] + 1)
  if missing := [name for name in ("factor", "low_freq_factor", "high_freq_factor") if name in reads and name not in found]:
    raise ValueError(f"Must have {' and '.join(missing)} for rope_type {scaling!r}")
  fields = {_ROPE_FIELDS[name]: found[name] for name in reads if found.get(name) is not None}
  if scaling == "dynamic":
    fields["original_max_positions"] = original
  return Rope(scaling=scaling, **fields)


def write_rope(rope: Rope) -> dict[str, Any]:
  """``rope_parameters`` of a `Rope`.

  Raises:
    ValueError: for frequencies that a ``config.json`` cannot describe.
  """
  if rope.scaling not in _ROPE_READS:
    raise ValueError(f"Must have a RoPE scaling that config.json knows, we instead got {rope.scaling!r}")
  names = ("rope_theta", *_ROPE_READS[rope.scaling])
  written = {name: getattr(rope, _ROPE_FIELDS[name]) for name in names}
  return {"rope_type": rope.scaling} | {name: value for name, value in written.items() if value is not None}


def read_config(document: dict[str, Any]) -> dict[str, Any]:
  """Fields of a `LlamaConfig` from a ``config.json``."""
  activation = document.get("hidden_act", "silu")
  if activation != "silu":
    raise ValueError(f"Must have hidden_act 'silu', we instead got {activation!r}")
  return {
    "vocab_size": document["vocab_size"],
    "dim": document["hidden_size"],
    "num_layers": document["num_hidden_layers"],
    "num_heads": document["num_attention_heads"],
    "num_kv_heads": document.get("num_key_value_heads"),
    "head_size": document.get("head_dim"),
    "ffn_hidden": document["intermediate_size"],
    "norm_eps": document.get("rms_norm_eps", 1e-6),
    "max_positions": document["max_position_embeddings"],
    "rope": read_rope(document),
    "attention_bias": document.get("attention_bias", False),
    "mlp_bias": document.get("mlp_bias", False),
    "tie_embeddings": document.get("tie_word_embeddings", False),
    "end_ids": hugging_face.end_ids(document, 2),
  }


def write_config(config: LlamaConfig) -> dict[str, Any]:
  """``config.json`` of a `LlamaConfig`."""
  return {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": config.vocab_size,
    "hidden_size": config.dim,
    "num_hidden_layers": config.num_layers,
    "num_attention_heads": config.num_heads,
    "num_key_value_heads": config.kv_heads,
    "head_dim": config.head_dim,
    "intermediate_size": config.ffn_hidden,
    "hidden_act": "silu",
    "rms_norm_eps": config.norm_eps,
    "max_position_embeddings": config.max_positions,
    "rope_parameters": write_rope(config.rope),
    "attention_bias": config.attention_bias,
    "mlp_bias": config.mlp_bias,
    "tie_word_embeddings": config.tie_embeddings,
    "eos_token_id": hugging_face.write_end_ids(config),
  }


FAMILY = hugging_face.family("llama", RULES, IGNORED)
ARCHITECTURE = hugging_face.Architecture("llama", "model.", FAMILY, read_config, write_config)


def read(source: Path, architecture: hugging_face.Architecture) -> hugging_face.Source:
  """Reads a folder of the hub, or a ``.gguf`` file."""
  return (gguf_files.read if is_gguf(source) else hugging_face.read_folder)(source, architecture)


def is_gguf(path: Path) -> bool:
  """Whether a file has the name of that format."""
  return path.suffix.lower() == ".gguf"


RELEASED = released.of_folder(ARCHITECTURE, read)._replace(reads_file=lambda path, content: is_gguf(path))


@command.converter()
@click.option("--tokenizer", type=command.PATH, help="tokenizer.json, instead of that of SRC.")
def main(**options: Any) -> str:
  """Converts the Llama folder or .gguf file SRC to the checkpoint folder DST."""
  config = hugging_face.run(ARCHITECTURE, read=read, **options)
  return (
    f"{config.num_layers} layers, width {config.dim}, {config.num_heads} heads over {config.kv_heads}, "
    f"{config.vocab_size} tokens"
  )


if __name__ == "__main__":
  main()
