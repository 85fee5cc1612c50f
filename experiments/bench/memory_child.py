"""A conversion or a decode of one size, alone in a process, and the memory that it took.

Run by `experiments.bench.memory` as ``python -m experiments.bench.memory_child convert SOURCE FOLDER`` or ``... decode
FOLDER DTYPE TOKENS``; prints JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

_EVERY_S = 0.002


class Peak:
  """The most anonymous memory of this process while the context is open, in bytes.

  Pages of mapped files are not part of it: the system takes them back when it needs them.
  """

  def __enter__(self) -> Peak:
    self.before = self.most = resident()
    self._is_over = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *error: Any) -> None:
    self._is_over.set()
    self._thread.join()

  def _watch(self) -> None:
    while not self._is_over.wait(_EVERY_S):
      self.most = max(self.most, resident())


def resident() -> int:
  """Bytes of anonymous memory of this process.

  Raises:
    OSError: on a system without ``/proc``.
  """
  lines = Path("/proc/self/status").read_text().splitlines()
  return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def convert(source: str, folder: str) -> dict[str, int]:
  """Converts a LlamaGen file."""
  from conversion import engine
  from conversion.llamagen import FAMILY

  with Peak() as peak:
    engine.convert_file(source, folder, FAMILY)
  return {"before": peak.before, "peak": peak.most}


def decode(folder: str, dtype: str, tokens: str) -> dict[str, int]:
  """Loads a network and draws one row with guidance."""
  import jax
  import jax.numpy as jnp

  from jaxspec import checkpoints
  from jaxspec.decoder import Decoder
  from jaxspec.models.conditions import ClassLabels
  from jaxspec.network import Network
  from jaxspec.sampling import SamplingConfig

  jax.block_until_ready(jnp.zeros(1) + 1)  # the backend is there
  with Peak() as loading:
    checkpoint = checkpoints.load(folder, dtype=jnp.dtype(dtype))
    jax.block_until_ready(checkpoint.params)
  network = Network(checkpoint.fns, checkpoint.params, checkpoint.config)
  with Peak() as decoding:
    decoder = Decoder(network, sampling=SamplingConfig(cfg_scale=4.0))
    result = decoder(ClassLabels(jnp.zeros((1,), jnp.int32)), key=jax.random.key(0), max_len=int(tokens))
    jax.block_until_ready(result.tokens)
  return {"before": loading.before, "loading": loading.most, "loaded": decoding.before, "decoding": decoding.most}


def main(arguments: list[str]) -> int:
  print(json.dumps({"convert": convert, "decode": decode}[arguments[0]](*arguments[1:])))
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
