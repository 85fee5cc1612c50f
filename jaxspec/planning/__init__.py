"""Plans of decodes without the hardware: memory, division over devices, and limits of speed."""

from jaxspec.planning.devices import DEVICES, parse_device
from jaxspec.planning.plan import Plan, make_plan, method_of, sampling_of
from jaxspec.planning.published_models import MODELS, find_model

__all__ = ["DEVICES", "MODELS", "Plan", "find_model", "make_plan", "method_of", "parse_device", "sampling_of"]
