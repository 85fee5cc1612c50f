"""Draws figures 2, 4, 5 and 6 of arXiv 2510.09942, codings over the uplink's rate, and long runs.

    python -m experiments.figures.sqs

Reads ``sqs_{sweep,budget,codecs,long_runs}.json`` (``experiments.run sqs:*``) and writes ``docs/images/sqs_*.png``. Those of
``budget``, whose rounds are ended by the bits alone, are ``sqs_budget_*.png``. Bands are the tables' 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes

from experiments.configs.sqs import CONTROLLERS
from experiments.engine.threshold_runs import bound
from experiments.figures.style import GREEN, GREY, STYLE, Document, band, figures, plain_ticks, save, tables

Entry = dict[str, Any]
BLUE, ORANGE, DARK = "#2f6db3", "#d9772b", "#3a3f47"
LATENCY, RATE = "ms_per_token", "resampling_rate"
LABELS = {LATENCY: "modelled latency,\nms per token", RATE: "resampling rate"}
COLOURS = 128  # of a palette
FIRST = 0.005  # threshold of figure 2


def entries_of(document: Document) -> list[Entry]:
  """One entry for each row and temperature, with the settings of the row."""
  return [row["options"] | {"temperature": float(t)} | cell for row in document["rows"] for t, cell in row["at"].items()]


def shades(first: str, last: str, number: int) -> list[tuple]:
  """Colours between two."""
  ends = np.array([matplotlib.colors.to_rgb(first), matplotlib.colors.to_rgb(last)])
  return [tuple((1 - t) * ends[0] + t * ends[1]) for t in np.linspace(0, 1, max(number, 2))[:number]]


def pick(entries: Sequence[Entry], **wanted: Any) -> list[Entry]:
  """Entries with these values."""
  return [entry for entry in entries if all(entry.get(name) == value for name, value in wanted.items())]


def conformal(entries: Sequence[Entry], controller: str, **wanted: Any) -> list[Entry]:
  """Entries of C-SQS with this controller."""
  eta, alpha = CONTROLLERS[controller]
  return pick(entries, sparsifier="conformal", eta=eta, alpha=alpha, **wanted)


def values(entries: Sequence[Entry], name: str, **wanted: Any) -> list[Any]:
  """Distinct values of a setting, ascending."""
  return sorted({entry[name] for entry in pick(entries, **wanted)})


def line(axes: Axes, entries: Sequence[Entry], x: str, y: str, *, shaded: bool = True, **style: Any) -> None:
  """One curve with its interval."""
  band(axes, [entry[x] for entry in entries], [entry[y] for entry in entries], shaded=shaded, **style)


def by_temperature(panels: Sequence[Axes], draw: Callable[[Axes, str], None]) -> None:
  """Latency left, resampling rate right, over temperature."""
  for axes, name in zip(panels, (LATENCY, RATE)):
    draw(axes, name)
    axes.set(xlabel="temperature", ylabel=LABELS[name])
    axes.set_ylim(0, 1 if name == RATE else None)


def titled(figure: plt.Figure, title: str, path: Path) -> None:
  figure.suptitle(title, x=0.01, ha="left", fontsize=11)
  save(figure, path, colours=COLOURS)


def figure_2(entries: list[Entry], path: Path) -> None:
  """One K against one threshold, with both controllers."""
  figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")

  def draw(axes: Axes, name: str) -> None:
    line(axes, pick(entries, sparsifier="topk", support=32), "temperature", name, color=BLUE, label="K-SQS, K = 32")
    for controller, colour in (("published", ORANGE), ("quick", GREEN)):
      cells = conformal(entries, controller, beta1=FIRST)
      line(axes, cells, "temperature", name, color=colour, label=f"C-SQS, $\\beta_1$ = {FIRST:g}, {controller}")

  by_temperature(panels, draw)
  panels[0].legend()
  titled(figure, "K-SQS, which keeps 32 tokens, and C-SQS, which keeps those above a threshold", path)


def figure_4(entries: list[Entry], path: Path) -> None:
  """Latency against K and, for both controllers, against the first threshold."""
  figure, panels = plt.subplots(1, 3, figsize=(10.8, 3.3), layout="constrained", sharey=True)
  temperatures = values(entries, "temperature")
  for temperature, colour in zip(temperatures, shades("#4c8fd6", "#c8402f", len(temperatures))):
    style = dict(color=colour, label=f"{temperature:g}")
    line(panels[0], pick(entries, sparsifier="topk", temperature=temperature), "support", LATENCY, **style)
    for axes, controller in zip(panels[1:], ("published", "quick")):
      line(axes, conformal(entries, controller, temperature=temperature), "beta1", LATENCY, **style)
  panels[0].set_xscale("log", base=2)
  sizes = values(entries, "support", sparsifier="topk")
  panels[0].set_xticks(sizes, [str(size) for size in sizes])
  panels[0].set(xlabel="K", ylabel=LABELS[LATENCY], title="K-SQS")
  for axes, controller in zip(panels[1:], ("published", "quick")):
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, values(entries, "beta1", sparsifier="conformal"))
    axes.set(xlabel=r"first threshold $\beta_1$", title=f"C-SQS, {controller} controller")
  panels[0].set_ylim(bottom=0)
  figure.legend(*panels[0].get_legend_handles_labels(), title="temperature", title_fontsize=8.5, loc="outside right center")
  titled(figure, "Latency over the setting of K-SQS and of C-SQS", path)


def figure_5(entries: list[Entry], path: Path) -> None:
  """Controllers: adaptive against fixed, one column for each first threshold."""
  firsts = values(entries, "beta1", sparsifier="conformal")
  size = (max(2.6 * len(firsts), 7.8), 5.0)  # the legend's width at least
  figure, grid = plt.subplots(2, len(firsts), figsize=size, layout="constrained", sharey="row", sharex=True)
  styles = {
    "quick": dict(color=GREEN, label=r"quick, $\eta$ = 0.05, $\alpha$ = 0.05"),
    "published": dict(color=ORANGE, label=r"published, $\eta$ = 0.001, $\alpha$ = 0.0005"),
    "fixed": dict(color=DARK, label=r"fixed, $\eta$ = 0", linestyle=(0, (2, 2))),  # on top: it may coincide
  }
  for column, first in zip(grid.T, firsts):
    for controller, style in styles.items():
      for axes, name in zip(column, (LATENCY, RATE)):
        line(axes, conformal(entries, controller, beta1=first), "temperature", name, **style)
    column[0].set_title(f"$\\beta_1$ = {first:g}")
    column[1].set_xlabel("temperature")
  for axes, name in zip(grid[:, 0], (LATENCY, RATE)):
    axes.set_ylabel(LABELS[name])
    axes.set_ylim(0, 1 if name == RATE else None)
  figure.align_ylabels(grid[:, 0])
  figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
  titled(figure, "C-SQS with adaptive and with fixed thresholds", path)


def figure_6(entries: list[Entry], path: Path) -> None:
  """All settings together."""
  figure, panels = plt.subplots(1, 2, figsize=(10.2, 4.1), layout="constrained")
  sizes, firsts = values(entries, "support", sparsifier="topk"), values(entries, "beta1", sparsifier="conformal")

  def draw(axes: Axes, name: str) -> None:
    for size, colour in zip(sizes, shades("#a9cbee", "#173f70", len(sizes))):
      cells = pick(entries, sparsifier="topk", support=size)
      line(axes, cells, "temperature", name, shaded=False, color=colour, label=f"K = {size}")
    for controller, ends, dashes in (("published", ("#f3bd8a", "#9c4206"), "-."), ("quick", ("#a9d8b0", "#1d6b2c"), ":")):
      for first, colour in zip(firsts, shades(*ends, len(firsts))):
        cells = conformal(entries, controller, beta1=first)
        style = dict(color=colour, label=f"$\\beta_1$ = {first:g}, {controller}", linestyle=dashes)
        line(axes, cells, "temperature", name, shaded=False, **style)

  by_temperature(panels, draw)
  figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
  titled(figure, "K-SQS (blue) and C-SQS (orange: published controller, green: quick) over temperature", path)


RUN_COLOURS = (ORANGE, "#9c4206", GREEN, "#1d6b2c", DARK, "#c8402f", "#7d5ba6")


def figure_long_runs(document: Document, path: Path) -> None:
  """Dropped mass of the worst stream over its length, beside the bound."""
  rows = [row for row in document["rows"] if row["options"]["eta"] and row["options"]["policy"] == "text"]
  others = [row for row in document["rows"] if row not in rows]
  figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained", sharey=True)
  for axes, chosen, title in zip(panels, (rows, others), ("the policy of the text", "no step, and the other policies")):
    for row in chosen:
      tokens, worst = np.transpose(row["worst_by_text"])
      colour = RUN_COLOURS[document["rows"].index(row) % len(RUN_COLOURS)]
      axes.plot(tokens, worst, color=colour, label=row["label"])
      if row["options"]["eta"]:
        settings = {name: row["options"][name] for name in ("beta1", "eta", "alpha")}
        axes.plot(tokens, bound(tokens, **settings), color=colour, linestyle="--", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="tokens of a stream", title=title)
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
      axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
      axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.legend(fontsize=7.5)
  panels[0].set_ylabel("dropped mass per token\n(worst stream)")
  titled(figure, "The mean dropped mass of C-SQS (lines) and its bound (dashes)", path)


CODING_STYLES = {
  "K-SQS, K = 8": dict(color="#86b6e6"),
  "K-SQS, K = 32": dict(color="#3c7cc4"),
  "K-SQS, K = 64": dict(color="#173f70"),
  "C-SQS, beta_1 = 0.01, published": dict(color=ORANGE),
  "dense": dict(color="#7d5ba6"),
  "Rice, K = 64": dict(color="#173f70", linestyle=":"),
  "trimmed, K = 64": dict(color=GREEN),
  "lazy, K = 64": dict(color="#c8402f"),
  "half precision": dict(color=GREY),
}


def figure_codecs(document: Document, path: Path) -> None:
  """Latency over the uplink rate, and bytes for each accepted token."""
  temperatures = values(document["rows"], "temperature")
  size = (3.6 * len(temperatures), 6.4)
  figure, grid = plt.subplots(2, len(temperatures), figsize=size, layout="constrained", sharey="row", sharex="row")
  rates, plain = np.geomspace(0.02, 50, 200), document["plain_ms"]
  for column, temperature in zip(grid.T, temperatures):
    rows = pick(document["rows"], temperature=temperature)
    for row in rows:
      fixed, bits = row["ms_without_uplink"], row["uplink_bits_per_token"]
      style = dict(linewidth=1.6) | CODING_STYLES[row["label"]]
      column[0].plot(rates, fixed + bits / (rates * 1e3), label=row["label"], **style)
      # Break-even with plain decoding.
      if fixed < plain and rates[0] < (even := bits / (plain - fixed) / 1e3) < rates[-1]:
        column[0].plot(even, plain, "o", markersize=4, color=style["color"], zorder=5)
    column[0].axhline(plain, color="#20242a", linewidth=1.2, linestyle="--", label="plain decoding in the cloud")
    column[0].set(xscale="log", yscale="log", xlabel="uplink, Mbit/s", title=f"temperature {temperature:g}")
    column[0].set_ylim(top=plain * 20)
    column[0].yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    column[0].yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    for axis in (column[0].xaxis, column[0].yaxis):
      axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    for at, row in enumerate(rows[::-1]):
      middle, low, high = row["wire_bytes_per_accepted"]
      if middle is None:  # no draft was accepted
        continue
      colour = CODING_STYLES[row["label"]]["color"]
      column[1].plot([low, high], [at, at], color=colour, linewidth=3, alpha=0.35, solid_capstyle="round")
      column[1].plot(middle, at, "o", color=colour)
      offset = dict(xytext=(7, 0), textcoords="offset points", va="center", fontsize=8)
      column[1].annotate(f"{middle:,.0f}", (middle, at), **offset)
    column[1].set_yticks(range(len(rows)), [row["label"] for row in rows][::-1])
    column[1].set(xscale="log", xlabel="bytes on the wire per accepted token")
    column[1].margins(x=0.26)
    column[1].xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
    column[1].grid(axis="y", visible=False)
  grid[0, 0].set_ylabel(LABELS[LATENCY])
  figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
  titled(figure, "Latency over the uplink rate (dots: drafting begins to pay), and bytes for an accepted token", path)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  names = {"sqs_sweep": "sqs_figure", "sqs_budget": "sqs_budget"}
  found = tables(results, (*names, "sqs_codecs", "sqs_long_runs"))
  with plt.rc_context(STYLE):
    for name in (name for name in names if name in found):
      entries = entries_of(found[name])
      for number, draw in ((2, figure_2), (4, figure_4), (5, figure_5), (6, figure_6)):
        draw(entries, images / f"{names[name]}_{number}.png")
    if "sqs_codecs" in found:
      figure_codecs(found["sqs_codecs"], images / "sqs_codecs.png")
    if "sqs_long_runs" in found:
      figure_long_runs(found["sqs_long_runs"], images / "sqs_long_runs.png")


if __name__ == "__main__":
  main()
