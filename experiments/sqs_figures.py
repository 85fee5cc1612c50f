"""Draws figures 2, 4, 5 and 6 of arXiv 2510.09942, and what they leave out: all codings over the rate of the uplink.

Command (needs matplotlib; seconds)::

    python -m experiments.sqs_figures

Reads ``experiments/results/sqs_sweep.json`` and ``sqs_codecs.json`` (`experiments.sqs_sweep`, `experiments.sqs_codecs`),
writes ``docs/images/sqs_*.png`` and the table ``experiments/results/sqs_sweep.md``. Bands are 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Entry = dict[str, Any]
BLUE, ORANGE, GREEN, GREY = "#2f6db3", "#d9772b", "#3f9a6b", "#8a8f98"
STYLE = {
  "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#9aa0a8", "axes.linewidth": 0.8,
  "axes.grid": True, "grid.color": "#e7e9ed", "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.titlesize": 10.5,
  "axes.titlelocation": "left", "axes.labelsize": 9.5, "axes.labelcolor": "#3a3f47", "xtick.color": "#5a606a",
  "ytick.color": "#5a606a", "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "legend.fontsize": 8.5, "legend.frameon": False,
  "lines.linewidth": 1.8, "lines.markersize": 4.5, "font.family": "DejaVu Sans", "savefig.dpi": 110,
}  # fmt: skip
LATENCY, RATE = "ms_per_token", "resampling_rate"
LABELS = {LATENCY: "modelled latency, ms per token", RATE: "resampling rate"}
PUBLISHED, QUICK, FIXED = (1e-3, 5e-4), (5e-2, 5e-2), (0.0, 5e-4)


def shades(first: str, last: str, number: int) -> list[tuple]:
  """Colours between two."""
  ends = np.array([matplotlib.colors.to_rgb(first), matplotlib.colors.to_rgb(last)])
  return [tuple((1 - t) * ends[0] + t * ends[1]) for t in np.linspace(0, 1, max(number, 2))[:number]]


def pick(entries: Sequence[Entry], **wanted: Any) -> list[Entry]:
  """Entries with these values."""
  return [entry for entry in entries if all(entry.get(name) == value for name, value in wanted.items())]


def conformal(entries: Sequence[Entry], controller: tuple[float, float], **wanted: Any) -> list[Entry]:
  """Entries of C-SQS with this step size and target."""
  return pick(entries, sparsifier="conformal", eta=controller[0], alpha=controller[1], **wanted)


def values(entries: Sequence[Entry], name: str) -> list[Any]:
  """Distinct values of a setting, ascending."""
  return sorted({entry[name] for entry in entries if name in entry})


def line(axes: Axes, entries: Sequence[Entry], x: str, y: str, *, band: bool = True, **style: Any) -> None:
  """One curve with its interval."""
  entries = sorted(entries, key=lambda entry: entry[x])
  at, (mid, low, high) = [entry[x] for entry in entries], np.array([entry[y] for entry in entries]).T
  (drawn,) = axes.plot(at, mid, marker="o", **style)
  if band:
    axes.fill_between(at, low, high, color=drawn.get_color(), alpha=0.13, linewidth=0)


def finish(figure: Figure, path: Path) -> None:
  """Writes a figure with few colours, which halves its size."""
  from PIL import Image

  figure.savefig(path, facecolor="white")
  plt.close(figure)
  with Image.open(path) as image:
    small = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
  small.save(path, optimize=True)
  print(f"wrote {path} ({path.stat().st_size // 1024} kB)")


def by_temperature(axes: Sequence[Axes], draw: Callable[[Axes, str], None]) -> None:
  """Latency left, resampling rate right, over temperature."""
  for place, name in zip(axes, (LATENCY, RATE)):
    draw(place, name)
    place.set(xlabel="temperature", ylabel=LABELS[name])
    place.set_ylim(bottom=0)


def figure_2(entries: list[Entry], path: Path) -> None:
  """One K against one threshold."""
  figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")
  first = values(entries, "beta1")[1]

  def draw(place: Axes, name: str) -> None:
    line(place, pick(entries, sparsifier="topk", support=32), "temperature", name, color=BLUE, label="K-SQS, K = 32")
    cells = conformal(entries, PUBLISHED, beta1=first)
    line(place, cells, "temperature", name, color=ORANGE, label=f"C-SQS, $\\beta_1$ = {first:g}")

  by_temperature(axes, draw)
  axes[0].legend()
  figure.suptitle("A fixed number of tokens against a threshold", x=0.01, ha="left", fontsize=12, fontweight="bold")
  finish(figure, path)


def figure_4(entries: list[Entry], path: Path) -> None:
  """Latency against K and against the first threshold."""
  figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained", sharey=True)
  temperatures = values(entries, "temperature")
  for temperature, colour in zip(temperatures, shades("#4c8fd6", "#c8402f", len(temperatures))):
    style = dict(color=colour, label=f"{temperature:g}")
    line(axes[0], pick(entries, sparsifier="topk", temperature=temperature), "support", LATENCY, **style)
    line(axes[1], conformal(entries, PUBLISHED, temperature=temperature), "beta1", LATENCY, **style)
  axes[0].set_xscale("log", base=2)
  sizes = values(entries, "support")
  axes[0].set_xticks(sizes, [str(size) for size in sizes])
  axes[0].set(xlabel="K", ylabel=LABELS[LATENCY], title="K-SQS")
  axes[1].set_xscale("log")
  axes[1].set(xlabel=r"first threshold $\beta_1$", title="C-SQS")
  axes[0].set_ylim(bottom=0)
  axes[1].legend(title="temperature", title_fontsize=8.5, ncols=2)
  figure.suptitle("What each costs as its setting grows", x=0.01, ha="left", fontsize=12, fontweight="bold")
  finish(figure, path)


def figure_5(entries: list[Entry], path: Path) -> None:
  """Controllers: adaptive against fixed, one column for each first threshold."""
  firsts = values(entries, "beta1")
  size = (2.6 * len(firsts), 5.0)
  figure, axes = plt.subplots(2, len(firsts), figsize=size, layout="constrained", sharey="row", sharex=True)
  styles = (
    (QUICK, dict(color=GREEN, label=r"quick, $\eta$ = 0.05, $\alpha$ = 0.05")),
    (PUBLISHED, dict(color=ORANGE, label=r"published, $\eta$ = 0.001, $\alpha$ = 0.0005")),
    (FIXED, dict(color="#3a3f47", label=r"fixed, $\eta$ = 0", linestyle=(0, (2, 2)))),  # on top: it may coincide
  )
  for column, first in zip(axes.T, firsts):
    for controller, style in styles:
      for place, name in zip(column, (LATENCY, RATE)):
        line(place, conformal(entries, controller, beta1=first), "temperature", name, **style)
    column[0].set_title(f"$\\beta_1$ = {first:g}")
    column[1].set_xlabel("temperature")
  for place, name in zip(axes[:, 0], (LATENCY, RATE)):
    place.set_ylabel(LABELS[name])
    place.set_ylim(bottom=0)
  figure.align_ylabels(axes[:, 0])
  handles, labels = axes[0, 0].get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower left", ncols=3)
  figure.suptitle("An adaptive threshold against a fixed one", x=0.01, ha="left", fontsize=12, fontweight="bold")
  finish(figure, path)


def figure_6(entries: list[Entry], path: Path) -> None:
  """All settings together."""
  figure, axes = plt.subplots(1, 2, figsize=(10.2, 3.7), layout="constrained")
  sizes, firsts = values(entries, "support"), values(entries, "beta1")

  def draw(place: Axes, name: str) -> None:
    for size, colour in zip(sizes, shades("#a9cbee", "#173f70", len(sizes))):
      cells = pick(entries, sparsifier="topk", support=size)
      line(place, cells, "temperature", name, band=False, color=colour, label=f"K = {size}")
    for first, colour in zip(firsts, shades("#f3bd8a", "#9c4206", len(firsts))):
      cells = conformal(entries, PUBLISHED, beta1=first)
      line(place, cells, "temperature", name, band=False, color=colour, label=f"$\\beta_1$ = {first:g}", linestyle="-.")

  by_temperature(axes, draw)
  handles, labels = axes[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside right center")
  title = "K-SQS (blue) and C-SQS (orange) over temperature"
  figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
  finish(figure, path)


CODING_STYLES = {
  "K-SQS, K = 8": dict(color="#86b6e6"),
  "K-SQS, K = 32": dict(color="#3c7cc4"),
  "K-SQS, K = 64": dict(color="#173f70"),
  "C-SQS": dict(color=ORANGE),
  "dense": dict(color="#7d5ba6"),
  "Rice, K = 64": dict(color="#173f70", linestyle=":"),
  "trimmed, K = 64": dict(color=GREEN),
  "lazy, K = 64": dict(color="#c8402f"),
  "half precision, no budget": dict(color=GREY),
}


def figure_codecs(document: dict[str, Any], path: Path) -> None:
  """Latency over the uplink rate, and bytes for each accepted token."""
  temperatures = values(document["entries"], "temperature")
  figure, axes = plt.subplots(
    2, len(temperatures), figsize=(3.6 * len(temperatures), 6.4), layout="constrained", sharey="row", sharex="row"
  )
  rates, plain = np.geomspace(0.02, 50, 200), document["plain_ms"]
  for column, temperature in zip(axes.T, temperatures):
    entries = pick(document["entries"], temperature=temperature)
    for entry in entries:
      fixed, bits = entry["ms_without_uplink"], entry["uplink_bits_per_token"]
      style = dict(linewidth=1.6) | CODING_STYLES[entry["name"]]
      column[0].plot(rates, fixed + bits / (rates * 1e3), label=entry["name"], **style)
      # Where drafting takes the time of plain decoding.
      if fixed < plain and rates[0] < (even := bits / (plain - fixed) / 1e3) < rates[-1]:
        column[0].plot(even, plain, "o", markersize=4, color=style["color"], zorder=5)
    column[0].axhline(plain, color="#20242a", linewidth=1.2, linestyle="--", label="plain decoding in the cloud")
    column[0].set(xscale="log", yscale="log", xlabel="uplink, Mbit/s", title=f"temperature {temperature:g}")
    column[0].set_ylim(top=plain * 20)
    for axis in (column[0].xaxis, column[0].yaxis):
      axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    names = [entry["name"] for entry in entries][::-1]
    for row, entry in enumerate(entries[::-1]):
      mid, low, high = entry["wire_bytes_per_accepted"]
      if mid is None:  # no draft was accepted
        continue
      colour = CODING_STYLES[entry["name"]]["color"]
      column[1].plot([low, high], [row, row], color=colour, linewidth=3, alpha=0.35, solid_capstyle="round")
      column[1].plot(mid, row, "o", color=colour)
      column[1].annotate(f"{mid:,.0f}", (mid, row), xytext=(7, 0), textcoords="offset points", va="center", fontsize=8)
    column[1].set_yticks(range(len(names)), names)
    column[1].set(xscale="log", xlabel="bytes on the wire per accepted token")
    column[1].margins(x=0.26)
    column[1].xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
    column[1].grid(axis="y", visible=False)
  axes[0, 0].set_ylabel(LABELS[LATENCY])
  handles, labels = axes[0, 0].get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=5)
  title = "From which uplink rate on drafting pays (dots), and what an accepted token costs"
  figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
  finish(figure, path)


def table(document: dict[str, Any]) -> str:
  """Markdown of the sweep: latency and resampling rate of every setting, one column for each temperature."""
  entries, config = document["entries"], document["config"]
  temperatures = values(entries, "temperature")
  settings = [(f"K-SQS, K = {size}", pick(entries, support=size)) for size in values(entries, "support")]
  for first in values(entries, "beta1"):
    for name, controller in (("fixed", FIXED), ("published", PUBLISHED), ("quick", QUICK)):
      settings.append((f"C-SQS, beta_1 = {first:g}, {name}", conformal(entries, controller, beta1=first)))
  lines = [
    f"Modelled latency in ms per token, and resampling rate, with 95 % intervals; {document['rows']} continuations of "
    f"{config['tokens']} tokens, uplink {config['uplink_mbps']:g} Mbit/s, budget {config['budget']:g} bits, at most "
    f"{config['max_drafts']} drafts, draft pass {config['edge_ms']:g} ms, target pass {config['cloud_ms']:g} + "
    f"{config['cloud_token_ms']:g} ms a token, no round trip. Controllers: fixed eta 0; published eta 0.001, alpha 0.0005; "
    "quick eta 0.05, alpha 0.05.",
    "",
    "| setting | " + " | ".join(f"T = {temperature:g}" for temperature in temperatures) + " |",
    "|---" * (1 + len(temperatures)) + "|",
  ]
  for name, cells in settings:
    found = {entry["temperature"]: entry for entry in cells}
    texts = []
    for temperature in temperatures:
      (ms, low, high), rate = found[temperature][LATENCY], found[temperature][RATE][0]
      texts.append(f"{ms:.1f} [{low:.1f}, {high:.1f}]; {rate:.2f}")
    lines.append(f"| {name} | " + " | ".join(texts) + " |")
  return "\n".join(lines) + "\n"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  parser.add_argument("--images", type=Path, default=Path("docs/images"))
  args = parser.parse_args()
  args.images.mkdir(parents=True, exist_ok=True)
  with plt.rc_context(STYLE):
    if (file := args.results / "sqs_sweep.json").is_file():
      document = json.loads(file.read_text())
      file.with_suffix(".md").write_text(table(document))
      for number, draw in ((2, figure_2), (4, figure_4), (5, figure_5), (6, figure_6)):
        draw(document["entries"], args.images / f"sqs_figure_{number}.png")
    if (file := args.results / "sqs_codecs.json").is_file():
      figure_codecs(json.loads(file.read_text()), args.images / "sqs_codecs.png")


if __name__ == "__main__":
  main()
