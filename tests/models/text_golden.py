"""The stored language models of ``tests/golden/text``, through the real conversion."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import numpy as np

from conversion import gpt_neo, hugging_face, llama
from jaxspec.core.network import Network
from jaxspec.io import checkpoints

GOLDEN = Path(__file__).parents[1] / "golden" / "text"
MODELS = ("gpt_neo", "llama_untied", "llama_tied")
ROPE_CONFIGS = json.loads((GOLDEN / "llama_rope.json").read_text())
TOLERANCE = 2e-5


def architecture(name: str) -> hugging_face.Architecture:
  return gpt_neo.ARCHITECTURE if name.startswith("gpt_neo") else llama.ARCHITECTURE


@functools.cache
def load(name: str) -> Network:
  """The checkpoint converted from a stored folder."""
  with tempfile.TemporaryDirectory() as folder:
    destination = Path(folder) / "model"
    hugging_face.convert_folder(GOLDEN / name, destination, architecture(name), {}, None)
    return checkpoints.load(destination)


@functools.cache
def arrays(name: str) -> dict[str, np.ndarray]:
  return dict(np.load(GOLDEN / f"{name}.npz"))
