"""Tiny random language models of the transformers library, and their outputs (needs torch and transformers)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

VOCAB = 37

GPT_NEO = dict(
  model_type="gpt_neo", vocab_size=VOCAB, hidden_size=24, num_layers=3, num_heads=3, max_position_embeddings=64,
  attention_types=[[["global", "local"], 1], [["local"], 1]], window_size=4, intermediate_size=40, bos_token_id=0,
  eos_token_id=0,
)  # fmt: skip

LLAMA = dict(
  model_type="llama", vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
  intermediate_size=40, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=0,
  tie_word_embeddings=False,
)  # fmt: skip

# Every published way of stretching rotary positions. The original lengths are short, so that all differ within a few
# positions. The dynamic scaling depends on the network's own length.
DYNAMIC_LENGTH = 8
ROPE = {
  "default": {"rope_type": "default", "rope_theta": 500.0},
  "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0},
  "dynamic": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 4.0},
  "yarn": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16},
  "yarn_ramp": {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 3.0,
    "beta_slow": 0.4, "truncate": False, "mscale": 0.8, "mscale_all_dim": 0.4,
  },
  "llama3": {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 16,
    "low_freq_factor": 0.3, "high_freq_factor": 2.5,
  },
}  # fmt: skip


def with_rope(name: str) -> dict[str, Any]:
  """Fields of a Llama network with one of `ROPE`."""
  length = DYNAMIC_LENGTH if name == "dynamic" else LLAMA["max_position_embeddings"]
  return LLAMA | {"max_position_embeddings": length, "rope_parameters": dict(ROPE[name])}


def build(fields: dict[str, Any], seed: int = 0):
  """A network with redrawn weights, so that norms, biases and scores matter."""
  import torch
  from transformers import AutoConfig, AutoModelForCausalLM

  fields = dict(fields)
  config = AutoConfig.for_model(fields.pop("model_type"), **fields)
  model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
  rng = np.random.default_rng(seed)
  with torch.no_grad():
    for name, weight in sorted(model.named_parameters()):
      draw = rng.normal(size=tuple(weight.shape))
      if weight.ndim > 1:
        draw *= 0.4 if any(word in name for word in ("wte", "wpe", "embed")) else 1.3 / weight.shape[1] ** 0.5
      else:
        draw = 0.1 * draw + float(name.endswith("weight"))
      weight.copy_(torch.from_numpy(draw.astype(np.float32)))
  return model


def save(model, folder: Path, **kwargs) -> Path:
  """Writes the network as a Hugging Face folder."""
  model.save_pretrained(folder, **kwargs)
  return folder


def full_logits(model, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
  """Logits ``[B, T, V]`` of one pass over ids ``[B, T]``; ``mask`` is False on padding."""
  import torch

  kwargs = {}
  if mask is not None:
    mask = torch.from_numpy(np.asarray(mask, np.int64))
    kwargs = dict(attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
  with torch.no_grad():
    return model(torch.from_numpy(np.asarray(ids, np.int64)), **kwargs).logits.numpy()


def stepwise_logits(model, ids: np.ndarray, first: int) -> np.ndarray:
  """The same with a cache: ``first`` tokens at once, then one by one."""
  import torch

  ids, cache, parts = torch.from_numpy(np.asarray(ids, np.int64)), None, []
  pieces = [ids[:, :first], *ids[:, first:].split(1, dim=1)]
  with torch.no_grad():
    for piece in pieces:
      out = model(piece, past_key_values=cache, use_cache=True)
      cache = out.past_key_values
      parts.append(out.logits.numpy())
  return np.concatenate(parts, axis=1)


def greedy(model, ids: np.ndarray, mask: np.ndarray, num: int) -> np.ndarray:
  """``num`` greedy tokens ``[B, num]`` after left-padded prompts, without an end token."""
  import torch

  ids, mask = (torch.from_numpy(np.asarray(x, np.int64)) for x in (ids, mask))
  out = model.generate(
    ids, attention_mask=mask, max_new_tokens=num, do_sample=False, eos_token_id=None, pad_token_id=0, use_cache=True
  )
  return out[:, ids.shape[1] :].numpy()


def prompts(seed: int = 0, lengths=(6, 2, 4)) -> tuple[np.ndarray, np.ndarray]:
  """Left-padded ids and mask ``[B, P]``."""
  rng = np.random.default_rng(seed)
  width = max(lengths)
  mask = np.arange(width)[None] >= width - np.asarray(lengths)[:, None]
  return rng.integers(1, VOCAB, mask.shape) * mask, mask
