"""Experiments: frozen values with the rows and sizes of a table, and the lab in which they run."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import platform
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import jax

from experiments.engine.cache import Cache
from experiments.engine.lifted import Lift
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline

AT_LEAST_ONE = ("batch", "num_train", "num_images", "number", "repeats", "positions", "tokens", "seeds", "texts")


class Lab:
  """Environment of measurements.

  Attributes:
    runs: folder of cached decodes and wall times.
    retime: repeat cached wall times.
    official: folder of a checkout of official code, for tables that need it.
  """

  def __init__(self, runs: Path, *, retime: bool = False, official: Path | None = None):
    self.runs, self.retime, self.official = runs, retime, official
    self.decodes, self.clocks = Cache(runs / "decodes"), Cache(runs / "clocks")

  @functools.cache
  def pipeline(self, bundle: str) -> Pipeline:
    """The networks of a bundle, loaded once."""
    return load_pipeline(bundle)

  @functools.cache
  def lifted(self, bundle: str, lift: Lift) -> Pipeline:
    """The networks of a bundle of scenes in a lifted world."""
    return lift(self.pipeline(bundle))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
  """A table; subclasses measure its figures.

  Attributes:
    title: of the table.
    notes: lines below it: published figures, hints.
  """

  title: str
  notes: tuple[str, ...] = ()
  kind: ClassVar[str]

  def __post_init__(self):
    for field in dataclasses.fields(self):
      least = 1 if field.name in AT_LEAST_ONE else 0
      value = getattr(self, field.name)
      if isinstance(value, int) and not isinstance(value, bool) and field.name != "seed" and value < least:
        raise ValueError(f"Must have {field.name} of at least {least}, we instead got {value}")

  def measure(self, lab: Lab) -> dict[str, Any]:
    """The document of the table without `frame`; JSON."""
    raise NotImplementedError

  def frame(self, name: str, command: str) -> dict[str, Any]:
    """Common fields of all documents: kind, command, machine, versions; JSON."""
    return {
      "kind": self.kind,
      "name": name,
      "title": self.title,
      "command": command,
      "notes": list(self.notes),
      **provenance(),
    }


def provenance() -> dict[str, Any]:
  """``machine`` and ``versions`` of this process; JSON."""
  versions = {"python": platform.python_version(), "jax": jax.__version__}
  return {
    "machine": {"kind": jax.devices()[0].device_kind, "cpus": os.cpu_count()},
    "versions": versions | {"jaxspec": importlib.metadata.version("jaxspec-decoding")},
  }


def keep_compiled() -> None:
  """Caches compiled programs on disk, like the command line of the package, unless JAX has a cache folder."""
  if jax.config.jax_compilation_cache_dir:
    return
  root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
  folder = Path(os.environ.get("JAXSPEC_CACHE_DIR") or Path(root) / "jaxspec" / "xla")
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError:
    return
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
