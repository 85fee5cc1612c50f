"""Times of rounds by draft length, for methods that choose the length (`jaxspec.drafters.auto_length`).

They are measured with the decode's own program: a table in which one length costs next to nothing makes every round that
long. No program is compiled for it. A table is measured once for each program, and kept beside the compiled programs if JAX
keeps these (``jax_compilation_cache_dir``).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.options import values_of
from jaxspec.core.platform import jax_setting
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.types import PyTree
from jaxspec.drafters.auto_length import AutoLengthDrafter
from jaxspec.drafters.length_choice import LONGEST_TIME
from jaxspec.errors import OptionError
from jaxspec.io.whole_files import write_whole
from jaxspec.methods.auto_length import in_plain_rounds

_TURNS = 2  # timed decodes of every length, of which the faster one counts
_PREFIX = "jaxspec-round-times"


def timed_params(decoder: Any, condition: PyTree, max_len: int, decode: Callable[[SpecParams], DecodeResult]) -> SpecParams:
  """The parameters of a decode, with measured times of rounds if its method chooses lengths by them.

  Args:
    decoder: a `jaxspec.run.decoder.Decoder`, whose ``round_times`` keep the tables.
    condition: ``B`` rows.
    decode: the decode of a batch of this shape.
  Raises:
    OptionError: with several processes, which must read one table.
  """
  parts = decoder.parts
  if not isinstance(parts.drafter, AutoLengthDrafter) or getattr(decoder.method, "round_times", None) is not None:
    return parts.params
  if jax.process_count() > 1:
    raise OptionError("Must have round_times for draft lengths that are chosen by several processes, we instead got none")
  key = _program(decoder, condition, max_len)
  if key not in decoder.round_times:
    decoder.round_times[key] = _kept_or_measured(key, parts.drafter.widths, parts.params, decode)
  return _with_times(parts.params, decoder.round_times[key])


def forced(widths: tuple[int, ...], number: int) -> np.ndarray:
  """A table ``[M]`` with which every round has the length ``widths[number]``."""
  times = np.full(len(widths), LONGEST_TIME, np.int32)
  times[number] = 1
  return times


def _with_times(params: SpecParams, times: np.ndarray) -> SpecParams:
  return params._replace(draft=params.draft._replace(times=jnp.asarray(times)))


def _program(decoder: Any, condition: PyTree, max_len: int) -> str:
  """The values that the time of a round depends on, hashed."""
  shapes = jax.tree.map(lambda leaf: (np.shape(leaf), str(leaf.dtype)), (decoder.parts.params, condition))
  device = jax.devices()[0]
  found: dict[str, Any] = {
    "jax": jax.__version__,
    "device": [device.platform, device.device_kind, os.cpu_count(), jax.device_count()],
    "method": [decoder.method.name, values_of(decoder.method)],
    "sampling": values_of(decoder.sampling),
    "decode": [decoder.audit, repr(decoder.imposed), str(decoder.matmul_precision), max_len],
    "shapes": [[jax.tree_util.keystr(path), leaf] for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)],
  }
  return hashlib.sha256(json.dumps(found, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _kept_or_measured(
  key: str, widths: tuple[int, ...], params: SpecParams, decode: Callable[[SpecParams], DecodeResult]
) -> np.ndarray:
  folder = jax_setting("jax_compilation_cache_dir")
  file = None if folder is None else Path(folder) / f"{_PREFIX}-{key}.json"
  if file is not None and (kept := _read(file, widths)) is not None:
    return kept
  times = in_plain_rounds(_seconds_of_rounds(widths, params, decode))
  if file is not None:
    text = json.dumps({"widths": widths, "times": times.tolist()})
    try:
      write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))
    except (OSError, ValueError):  # a folder that cannot be written to keeps no programs either
      pass
  return times


def _read(file: Path, widths: tuple[int, ...]) -> np.ndarray | None:
  """The table of a file; None if there is none, or if it is not one of these lengths."""
  try:
    found = json.loads(file.read_text(encoding="utf-8"))
    times = np.asarray(found["times"], np.int32)
    return times if tuple(found["widths"]) == widths and times.shape == (len(widths),) and (times > 0).all() else None
  except (OSError, ValueError, KeyError, TypeError):
    return None


def _seconds_of_rounds(
  widths: tuple[int, ...], params: SpecParams, decode: Callable[[SpecParams], DecodeResult]
) -> list[float]:
  """Seconds of a round of each length, with its share of the prefill."""
  tables = [_with_times(params, forced(widths, number)) for number in range(len(widths))]
  jax.block_until_ready(decode(tables[0]).tokens)  # compiles
  fastest = [float("inf")] * len(widths)
  for _ in range(_TURNS):
    for number, table in enumerate(tables):
      start = time.perf_counter()
      outcome = jax.block_until_ready(decode(table))
      seconds = time.perf_counter() - start
      fastest[number] = min(fastest[number], seconds / max(int(jnp.max(outcome.counters.rounds)), 1))
  return fastest
