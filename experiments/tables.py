"""How tables of figures are written: cells, Markdown, files, and where the figures come from."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import jax

from jaxspec.metrics.bootstrap import Interval


def interval_cell(interval: dict[str, float], scale: float = 1.0, digits: int = 2, sign: str = "") -> str:
  """``value [low, high]`` of an `Interval` as JSON; ``sign="+"`` shows the sign of the value."""
  value, low, high = (scale * interval[name] for name in Interval._fields)
  return f"{value:{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def timing_cell(timing: dict[str, float]) -> str:
  """``median [lowest, highest]`` of a `jaxspec.decode.measure.Timing` as JSON."""
  return f"{timing['median']:.2f} [{timing['low']:.2f}, {timing['high']:.2f}]"


def table(head: list[str], rows: list[list[str]]) -> str:
  """A table in Markdown; cells are text."""
  line = lambda cells: "| " + " | ".join(cells) + " |"
  return "\n".join([line(head), "|" + "---|" * len(head), *(line(row) for row in rows)])


def provenance() -> dict[str, Any]:
  """``machine`` and ``versions`` of this process; JSON."""
  return {
    "machine": {"kind": jax.devices()[0].device_kind, "cpus": os.cpu_count()},
    "versions": {"python": platform.python_version(), "jax": jax.__version__,
                 "jaxspec": importlib.metadata.version("jaxspec-decoding")},
  }  # fmt: skip


def typed_command() -> str:
  """The command that runs, as it was typed."""
  return f"python -m {sys.modules['__main__'].__spec__.name} {shlex.join(sys.argv[1:])}".strip()


def write(name: str, document: dict[str, Any], text: str, folder: Path) -> None:
  """``NAME.json`` and ``NAME.md``; prints the text."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
  (folder / f"{name}.md").write_text(text + "\n")
  print(text)
