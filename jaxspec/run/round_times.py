"""Times of rounds by draft length, and acceptance, for methods that choose the length (`jaxspec.drafters.auto_length`).

They are measured with the decode's own program: a table in which one length costs next to nothing makes every round that
long. No program is compiled for it. They are measured once for each program, and kept beside the compiled programs if JAX
keeps these (``jax_compilation_cache_dir``).

No other decode has the keys of measured decodes: what is known before a decode is independent of its tokens, so exact rules
stay exact.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import rng
from jaxspec.core.options import values_of
from jaxspec.core.platform import jax_setting
from jaxspec.core.state import DecodeResult, Origin, SpecParams
from jaxspec.core.types import Key, PyTree
from jaxspec.drafters import length_choice
from jaxspec.drafters.auto_length import AutoLengthDrafter
from jaxspec.drafters.length_choice import LONGEST_TIME
from jaxspec.errors import OptionError
from jaxspec.io.whole_files import write_whole
from jaxspec.methods.auto_length import in_plain_rounds

# Timed decodes of every length, of which the fastest counts: at least two, and more for the first seconds.
_TURNS, _MOST_TURNS, _SECONDS = 2, 8, 2.0
_PREFIX = "jaxspec-round-times"

# A decode with these parameters and keys ``[B]``.
Decode = Callable[[SpecParams, Key], DecodeResult]


class Measured(NamedTuple):
  """What is measured of rounds of each of ``M`` lengths."""

  times: np.ndarray  # [M] int32, a plain round is `length_choice.PLAIN`
  drafts: np.ndarray  # [2] int32 tested drafts, and those that were rejected


def timed_params(decoder: Any, condition: PyTree, max_len: int, decode: Decode) -> SpecParams:
  """The parameters of a decode, with measured rounds if its method chooses lengths by them.

  Args:
    decoder: a `jaxspec.run.decoder.Decoder`, whose ``round_times`` keep what is measured.
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
    widths, rows = parts.drafter.widths, condition.batch_size
    decoder.round_times[key] = _kept_or_measured(key, widths, parts.params, functools.partial(_measured, rows, decode))
  found = decoder.round_times[key]
  params = _with_times(parts.params, found.times)
  return params._replace(draft=params.draft._replace(prior=length_choice.known(*found.drafts.tolist())))


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
  key: str, widths: tuple[int, ...], params: SpecParams, measure: Callable[[tuple[int, ...], SpecParams], Measured]
) -> Measured:
  folder = jax_setting("jax_compilation_cache_dir")
  file = None if folder is None else Path(folder) / f"{_PREFIX}-{key}.json"
  if file is not None and (kept := _read(file, widths)) is not None:
    return kept
  found = measure(widths, params)
  if file is not None:
    text = json.dumps({"widths": widths} | {name: value.tolist() for name, value in found._asdict().items()})
    try:
      write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))
    except (OSError, ValueError):  # a folder that cannot be written to keeps no programs either
      pass
  return found


def _read(file: Path, widths: tuple[int, ...]) -> Measured | None:
  """What a file keeps; None if there is none, or if it is not of these lengths."""
  try:
    found = json.loads(file.read_text(encoding="utf-8"))
    kept = Measured(*(np.asarray(found[name], np.int32) for name in Measured._fields))
    fits = tuple(found["widths"]) == widths and (kept.times.shape, kept.drafts.shape) == ((len(widths),), (2,))
    return kept if fits and (kept.times > 0).all() and (kept.drafts >= 0).all() else None
  except (OSError, ValueError, KeyError, TypeError):
    return None


def _measured(rows: int, decode: Decode, widths: tuple[int, ...], params: SpecParams) -> Measured:
  """Measures rounds of each length; their seconds have a share of the prefill."""
  tables = [_with_times(params, forced(widths, number)) for number in range(len(widths))]
  keys = rng.row_keys(0, rows)
  keys_of = lambda turn: rng.stream_keys(keys, rng.Stream.MEASURE, jnp.int32(turn))
  jax.block_until_ready(decode(tables[0], keys_of(_MOST_TURNS)).tokens)  # compiles
  fastest, drafts, begin = [float("inf")] * len(widths), np.zeros(2, np.int32), time.perf_counter()
  for turn in range(_MOST_TURNS):
    if turn >= _TURNS and time.perf_counter() - begin > _SECONDS:
      break
    for number, table in enumerate(tables):
      start = time.perf_counter()
      outcome = jax.block_until_ready(decode(table, keys_of(turn)))
      seconds = time.perf_counter() - start
      fastest[number] = min(fastest[number], seconds / max(int(jnp.max(outcome.counters.rounds)), 1))
      accepted, rejected = (int(jnp.sum(outcome.origin == origin)) for origin in (Origin.DRAFT, Origin.REPLACED))
      drafts += np.asarray([accepted + rejected, rejected], np.int32)
  return Measured(in_plain_rounds(fastest), drafts)
