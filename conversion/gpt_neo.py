"""Converts GPT-Neo networks (EleutherAI/gpt-neo-125m, -1.3B, -2.7B, and any of that architecture).

``python -m conversion.gpt_neo SRC DST`` reads a folder of the Hugging Face hub and writes a checkpoint folder with its
tokenizer; ``--export`` goes back.
"""

from __future__ import annotations

from typing import Any

import click

from jaxspec.models.language.gpt_neo import GPTNeoConfig

from . import command, hugging_face, released
from .rules import Rule

_LEAF = "{leaf:weight|bias}"


def _block(name: str, *, hub: str = "") -> Rule:
  """Rule of a tensor of every block; ``hub`` is a part of its name that only the hub has."""
  module, _, rest = name.partition(".")
  return Rule(f"transformer.h.{{i}}.{module}.{hub}{rest}", f"h_{{i}}.{name}")


RULES = (
  Rule("transformer.{table:wte|wpe}.weight", "{table:wte|wpe}.weight"),
  _block(f"{{norm:ln_1|ln_2}}.{_LEAF}"),
  _block("attn.{matrix:q_proj|k_proj|v_proj}.weight", hub="attention."),
  _block(f"attn.out_proj.{_LEAF}", hub="attention."),
  _block(f"mlp.{{matrix:c_fc|c_proj}}.{_LEAF}"),
  Rule(f"transformer.ln_f.{_LEAF}", f"ln_f.{_LEAF}"),
  Rule("lm_head.weight"),
)

# Masks that older files store; they are recomputed.
IGNORED = (r"transformer\.h\.\d+\.attn\.attention\.(bias|masked_bias)",)


def read_config(document: dict[str, Any]) -> dict[str, Any]:
  """Fields of a `GPTNeoConfig` from a ``config.json``."""
  activation = document.get("activation_function", "gelu_new")
  if activation != "gelu_new":
    raise ValueError(f"Must have activation_function 'gelu_new', we instead got {activation!r}")
  layers = document.get("attention_layers")
  if layers is None:
    layers = [kind for kinds, times in document["attention_types"] for _ in range(times) for kind in kinds]
  return {
    "vocab_size": document["vocab_size"],
    "max_positions": document["max_position_embeddings"],
    "dim": document["hidden_size"],
    "num_layers": document["num_layers"],
    "num_heads": document["num_heads"],
    "attention_layers": tuple(layers),
    "window_size": document.get("window_size", 256),
    "ffn_hidden": document.get("intermediate_size"),
    "norm_eps": document.get("layer_norm_epsilon", 1e-5),
    "tie_embeddings": document.get("tie_word_embeddings", True),
    "end_ids": hugging_face.end_ids(document, 50256),
  }


def write_config(config: GPTNeoConfig) -> dict[str, Any]:
  """``config.json`` of a `GPTNeoConfig`."""
  return {
    "architectures": ["GPTNeoForCausalLM"],
    "vocab_size": config.vocab_size,
    "max_position_embeddings": config.max_positions,
    "hidden_size": config.dim,
    "num_layers": config.num_layers,
    "num_heads": config.num_heads,
    "attention_types": [[[kind], 1] for kind in config.layer_kinds],
    "attention_layers": list(config.layer_kinds),
    "window_size": config.window_size,
    "intermediate_size": config.ffn_hidden,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": config.norm_eps,
    "tie_word_embeddings": config.tie_embeddings,
    "eos_token_id": hugging_face.write_end_ids(config),
    "bos_token_id": next(iter(config.end_ids), None),
  }


FAMILY = hugging_face.family("gpt_neo", RULES, IGNORED)
ARCHITECTURE = hugging_face.Architecture("gpt_neo", "transformer.", FAMILY, read_config, write_config)
RELEASED = released.of_folder(ARCHITECTURE)


@command.converter()
@click.option("--tokenizer", type=command.PATH, help="tokenizer.json, instead of that of SRC.")
def main(**options: Any) -> str:
  """Converts the GPT-Neo folder SRC to the checkpoint folder DST."""
  config = hugging_face.run(ARCHITECTURE, **options)
  return f"{config.num_layers} layers, width {config.dim}, {config.num_heads} heads, {config.vocab_size} tokens"


if __name__ == "__main__":
  main()
