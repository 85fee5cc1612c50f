"""Makes the golden files of this folder with the transformers library (needs torch)::

python -m tests.golden.text.make_golden
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.models import text_reference as reference

HERE = Path(__file__).parent
MODELS = {
  "gpt_neo": reference.GPT_NEO,
  "llama_untied": reference.LLAMA | {"attention_bias": True, "mlp_bias": True, "rope_parameters": reference.ROPE["default"]},
  "llama_tied": reference.LLAMA | {
    "tie_word_embeddings": True, "head_dim": 8, "rope_parameters": reference.ROPE["llama3"],
  },
}  # fmt: skip
NUM_TOKENS = 20


def _arrays(model) -> dict[str, np.ndarray]:
  tokens = np.random.default_rng(1).integers(0, reference.VOCAB, (2, NUM_TOKENS))
  ids, mask = reference.prompts()
  return {
    "tokens": tokens.astype(np.int32),
    "logits": reference.full_logits(model, tokens),
    "prompt_ids": ids.astype(np.int32),
    "prompt_mask": mask,
    "prompt_logits": reference.full_logits(model, ids, mask)[:, -1],
    "greedy": reference.greedy(model, ids, mask, 12).astype(np.int32),
  }


def main() -> None:
  for name, fields in MODELS.items():
    model = reference.build(fields, seed=3)
    reference.save(model, HERE / name)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    np.savez_compressed(HERE / f"{name}.npz", **_arrays(model))
  tokens = np.random.default_rng(2).integers(0, reference.VOCAB, (1, NUM_TOKENS))
  arrays = {"tokens": tokens.astype(np.int32)}
  weights = None
  for name in reference.ROPE:
    model = reference.build(reference.with_rope(name), seed=4)
    # The library turns all positions of a long pass with the last one's frequencies; decoding token by token does not.
    arrays[name] = reference.stepwise_logits(model, tokens, 1) if name == "dynamic" else reference.full_logits(model, tokens)
    weights = model
  reference.save(weights, HERE / "llama_rope")
  (HERE / "llama_rope" / "generation_config.json").unlink(missing_ok=True)
  np.savez_compressed(HERE / "llama_rope.npz", **arrays)
  configs = {name: reference.with_rope(name) for name in reference.ROPE}
  (HERE / "llama_rope.json").write_text(json.dumps(configs, indent=2) + "\n")


if __name__ == "__main__":
  main()
