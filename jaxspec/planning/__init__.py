"""Plans of decodes without the hardware: memory, division over devices, and limits of speed.

- `plan` joins `memory_plan` (bytes) and `speed` (roofline) for one of `devices`; `training_plan` is that of a training.
  `published_models` are its networks, `sizes` and `uses` read their shapes, `compiled` asks the compiler instead.
- `imposed_bench` measures a decode with `random_weights` at an acceptance that is `assumed_acceptance` or
  `recorded_acceptance`.
"""

from jaxspec.planning.devices import DEVICES, parse_device
from jaxspec.planning.plan import Plan, make_plan, method_of, sampling_of
from jaxspec.planning.published_models import MODELS, find_model

__all__ = ["DEVICES", "MODELS", "Plan", "find_model", "make_plan", "method_of", "parse_device", "sampling_of"]
