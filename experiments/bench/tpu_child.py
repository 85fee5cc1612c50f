"""One decode, compiled for an absent TPU in its own process, because the compiler cannot be unloaded.

Run by `experiments.bench.tpu_plans` as ``python -m experiments.bench.tpu_child MODEL DEVICE BATCH METHOD``; prints JSON, or
ends with the compiler's error in one line.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def planned(model: str, device: str, batch: int, method: str) -> Any:
  """The plan of a decode.

  Raises:
    ValueError: for arguments that do not fit together.
  """
  from jaxspec.methods import get_method
  from jaxspec.planning import find_model, make_plan, parse_device

  return make_plan(find_model(model), parse_device(device), batches=(batch,), method=get_method(method)())


def main(arguments: list[str]) -> int:
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  from jaxspec.planning.compiled import compile_plan

  model, device, batch, method = arguments
  try:
    plan = planned(model, device, int(batch), method)
    print(json.dumps(plan.as_json() | {"compiled": compile_plan(plan, int(batch))._asdict()}))
  except Exception as error:  # any error of the compiler
    print(f"{type(error).__name__}, {' '.join(str(error).split())[:1000]}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
