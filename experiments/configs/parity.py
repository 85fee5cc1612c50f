"""Agreement with official code, array by array: every golden check of ``tests/models``, the full-size ones included.

Two minutes on a CPU. Expected: every error within its tolerance. LlamaGen: logits of the tiny models near 5e-6, of GPT-B
  near 1e-5,
decoded pixels near 1e-5. MAR: tokens of complete generations and decoded pixels near 1e-5, the loss near 1e-7.
"""

from __future__ import annotations

from experiments.bench.parity import Parity

TABLES = {
  "llamagen": Parity(title="LlamaGen against the official code", family="llamagen"),
  "mar": Parity(title="MAR against the official code", family="mar"),
}
