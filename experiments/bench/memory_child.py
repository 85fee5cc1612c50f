"""A conversion or a decode of one size in its own process, and its memory.

Run by `experiments.bench.memory` as ``python -m experiments.bench.memory_child PHASE ...``: ``convert SOURCE FOLDER
CONFIG``, ``convert_chameleon SOURCE FOLDER``, ``decode FOLDER DTYPE TOKENS`` or ``compile SIZE DTYPE TOKENS``; prints JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

_EVERY_S = 0.002


class Peak:
  """Peak anonymous memory of this process while the context is open, in bytes.

  Pages of mapped files do not count, because the system can evict them.
  """

  def __enter__(self) -> Peak:
    self.before = self.most = resident()
    self._is_over = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()
    self._start = time.perf_counter()
    return self

  def __exit__(self, *error: Any) -> None:
    self.seconds = time.perf_counter() - self._start
    self._is_over.set()
    self._thread.join()

  def found(self) -> dict[str, float]:
    """``before`` and ``peak`` in bytes, and ``seconds``."""
    return {"before": self.before, "peak": self.most, "seconds": self.seconds}

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


def convert(source: str, folder: str, fields: str) -> dict[str, float]:
  """Converts a LlamaGen file; ``fields`` of its config are JSON."""
  from conversion import engine
  from conversion.llamagen import FAMILY
  from jaxspec.models.llamagen import LlamaGenConfig

  engine.template_of(LlamaGenConfig(num_layers=1, dim=16, num_heads=1))  # memory of tracing is included
  with Peak() as peak:
    engine.convert_file(source, folder, FAMILY, json.loads(fields))
  return peak.found()


def convert_chameleon(source: str, folder: str) -> dict[str, float]:
  """Converts a folder of Chameleon."""
  from conversion import chameleon, engine
  from jaxspec.models.chameleon.chameleon import ChameleonConfig

  engine.template_of(ChameleonConfig(num_layers=1, dim=16, num_heads=1, vocab_size=ChameleonConfig().vocab_size))
  with Peak() as peak:
    chameleon.convert_folder(Path(source), Path(folder), {"layout": "anole"})
  return peak.found()


def decode(folder: str, dtype: str, tokens: str) -> dict[str, int]:
  """Loads a network and draws one row with guidance."""
  import jax
  import jax.numpy as jnp

  from jaxspec.io import checkpoints
  from jaxspec.models.conditions import ClassLabels

  jax.block_until_ready(jnp.zeros(1) + 1)  # the backend is loaded
  with Peak() as loading:
    network = checkpoints.load(folder, dtype=jnp.dtype(dtype))
    jax.block_until_ready(network.params)
  decoder = guided(network)
  with Peak() as decoding:
    result = decoder(ClassLabels(jnp.zeros((1,), jnp.int32)), key=jax.random.key(0), max_len=int(tokens))
    jax.block_until_ready(result.tokens)
  return {"before": loading.before, "loading": loading.most, "loaded": decoding.before, "decoding": decoding.most}


def compiled(size: str, dtype: str, tokens: str) -> dict[str, int]:
  """The compiler's figures for that decode, without weights."""
  import jax
  import jax.numpy as jnp

  from jaxspec.models.conditions import ClassLabels
  from jaxspec.planning import find_model

  model = find_model(f"llamagen-{size.removeprefix('GPT-').lower()}")
  decoder, keys = guided(model.sized(dtype).network), jax.random.key_data(jax.random.split(jax.random.key(0), 1))
  decode, params = decoder.decode_fn(max_len=int(tokens)), decoder.parts.params
  program = jax.jit(decode).lower(params, keys, ClassLabels(jnp.zeros((1,), jnp.int32))).compile()
  said = program.memory_analysis()
  return {"process": resident(), "arguments": said.argument_size_in_bytes, "temporary": said.temp_size_in_bytes}


def guided(network: Any) -> Any:
  """The decoder of a network, with guidance."""
  from jaxspec.run.decoder import Decoder
  from jaxspec.sampling import SamplingConfig

  return Decoder(network, sampling=SamplingConfig(cfg_scale=4.0))


PHASES = {"convert": convert, "convert_chameleon": convert_chameleon, "decode": decode, "compile": compiled}


def main(arguments: list[str]) -> int:
  print(json.dumps(PHASES[arguments[0]](*arguments[1:])))
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
