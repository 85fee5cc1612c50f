"""Plain decoding of GPT-B in eager PyTorch on the same machine."""

from __future__ import annotations

import importlib.util
import time

from experiments.accelerator.ledger import Clock, Ledger
from experiments.bench.gpt_b import TOKENS, torch_decoder
from jaxspec.run.measure import Timing


def run(ledger: Ledger, clock: Clock, rehearse: bool) -> None:
  """One cell, empty if PyTorch is not installed."""
  ledger.cell("GPT-B batch 1", clock, lambda: figures(1, num_layers=1) if rehearse else figures(5))


def figures(repeats: int, num_layers: int = 12) -> dict:
  """Tokens per second; in bfloat16 on a GPU if PyTorch has one."""
  if missing := [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]:
    return {"left out": f"{missing[0]} is not installed"}
  import torch

  device = "cuda" if torch.cuda.is_available() else "cpu"
  dtype = torch.bfloat16 if device == "cuda" else torch.float32
  decode, _ = torch_decoder(device=device, dtype=dtype, num_layers=num_layers)
  decode(0)
  seconds = []
  for repeat in range(repeats):
    started = time.perf_counter()
    decode(repeat + 1)
    seconds.append(time.perf_counter() - started)
  timing = Timing.of(seconds)
  return {"device": device, "torch": torch.__version__, "tokens_per_s": TOKENS / timing.median, "seconds": timing._asdict()}
