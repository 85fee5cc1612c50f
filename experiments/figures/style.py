"""Common style, arguments and output of all figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import click
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from PIL import Image

from experiments.run import RESULTS, documents
from jaxspec.core.command_line import PATH, script

# Okabe-Ito colours, distinguishable for colour-blind readers.
BLUE, ORANGE, GREEN, RED, GREY, INK = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a8f98", "#20303f"
STYLE = {
  "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#9aa0a8", "axes.linewidth": 0.8,
  "axes.grid": True, "grid.color": "#e7e9ed", "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.titlesize": 10.5,
  "axes.titlelocation": "left", "axes.labelsize": 9.5, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
  "legend.fontsize": 8.5, "legend.frameon": False, "lines.linewidth": 1.8, "lines.markersize": 4.5, "savefig.dpi": 110,
}  # fmt: skip
IMAGES = RESULTS.parents[1] / "docs" / "images"
Document = dict[str, Any]


def figures(doc: str | None) -> Callable[[Callable], click.Command]:
  """The command of a module of figures (`jaxspec.core.command_line.script`), with the options that all of them have."""

  def decorate(function: Callable) -> click.Command:
    function = click.option("--images", type=PATH, default=IMAGES, help="Folder to write to.")(function)
    return script(doc)(click.option("--results", type=PATH, default=RESULTS, help="Folder of the tables.")(function))

  return decorate


def tables(folder: Path, names: Sequence[str]) -> dict[str, Document]:
  """The existing documents, by name."""
  found = documents(folder)
  return {name: found[name] for name in names if name in found}


def read(path: Path) -> Document:
  return json.loads(path.read_text())


def band(axes: Axes, x: Sequence[float], triples: Sequence[Sequence[float]], *, shaded: bool = True, **style: Any) -> None:
  """A curve of ``value, low, high`` with its interval, from left to right."""
  order = np.argsort(x, kind="stable")
  at, (middle, low, high) = np.asarray(x)[order], np.asarray(triples, float)[order].T
  (drawn,) = axes.plot(at, middle, **({"marker": "o"} | style))
  if shaded:
    axes.fill_between(at, low, high, color=drawn.get_color(), alpha=0.13, linewidth=0)


def plain_ticks(axis: Axis, at: Sequence[float]) -> None:
  """Ticks of a logarithmic axis at these values, as plain numbers."""
  axis.set_ticks(at, [f"{value:,g}" for value in at])
  axis.set_ticks([], minor=True)


def bare(axes: Axes) -> None:
  """Axes of an image."""
  axes.set(xticks=[], yticks=[])
  axes.grid(False)
  axes.spines[:].set(visible=True, color="#d8d8d8", linewidth=0.6)


def wrapped(text: str, width: int = 18, lines: int = 3) -> str:
  """At most ``lines`` lines of ``width`` characters."""
  found = [""]
  for word in text.split():
    if found[-1] and len(found[-1]) + 1 + len(word) > width:
      found.append("")
    found[-1] = f"{found[-1]} {word}".strip()
  return "\n".join(found[:lines])


def save(figure: Figure, path: Path, *, colours: int | None = None) -> None:
  """Writes a figure, optionally with a small palette, which halves its size."""
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, facecolor="white")
  plt.close(figure)
  if colours is not None:
    with Image.open(path) as image:
      small = image.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
  print(f"wrote {path}")
