"""Published sizes with random weights, and the measured methods."""

from __future__ import annotations

from jaxspec.core.options import options_of
from jaxspec.methods import METHODS, Method
from jaxspec.methods.method import DISCRETE
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.planning import MODELS
from jaxspec.planning.published_models import Model

SIZES = ("llamagen-b", "llamagen-l", "llamagen-xl", "llamagen-3b")
TOKENS = 256  # of an image of 256 x 256 pixels
CLOUD_RATE = 0.3  # of CIAR; the rate is controlled online, because random networks have no calibrated thresholds
_TINY = LlamaGenConfig(num_layers=2, dim=32, num_heads=2, vocab_size=64, num_tokens=16, num_classes=8, multiple_of=32)


def model_of(size: str, rehearse: bool) -> Model:
  """The class-conditional network of a size."""
  return Model("tiny", "llamagen", _TINY, 16) if rehearse else MODELS[size].with_tokens(TOKENS)


def method_of(name: str) -> Method:
  """A method with its default options."""
  cls = METHODS[name]
  return cls(**({"cloud_rate": CLOUD_RATE} if "cloud_rate" in options_of(cls) else {}))


def method_names() -> list[str]:
  """Methods of discrete tokens besides plain decoding, exact ones first."""
  found = [name for name, cls in METHODS.items() if cls.fits(DISCRETE) and name != "ar"]
  return sorted(found, key=lambda name: not METHODS[name].exact)
