"""Loops in the text of a compiled program: exchanges between devices, copies of large buffers, and padded sizes of state
buffers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

EXCHANGES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(
  r"(?:body|condition|calls|to_apply|called_computations|branch_computations)=\{?((?:%?[\w.\-]+(?:, )?)+)\}?"
)
_SHAPE = re.compile(r"= \(?([a-z]+\d+)\[([\d,]*)\]")
_COPY = re.compile(r" copy(-start)?\(")
_ON_CHIP = re.compile(r"\]\{[\d,]+:[^}]*S\([1-9]\)")  # a layout in another memory space
_LAID_OUT = re.compile(r"([a-z]+\d+)\[([\d,]+)\]\{([\d,]+):T\((\d+),(\d+)\)")


def computations(text: str) -> dict[str, list[str]]:
  """Lines of each computation of a program, by name."""
  found: dict[str, list[str]] = {}
  lines: list[str] = []
  for line in text.splitlines():
    if head := _HEAD.match(line):
      lines = found.setdefault(head[1], [])
    elif line.strip() != "}":
      lines.append(line)
  return found


def loop_lines(text: str) -> list[str]:
  """Lines that run in a loop, including all computations that a loop's body calls."""
  parts = computations(text)
  called = {name: {other for line in lines for other in _names(line)} & parts.keys() for name, lines in parts.items()}
  bodies = re.findall(r" while\(.*body=%?([\w.\-]+)", text)
  seen, left = set(), [name for name in bodies if name in parts]
  while left:
    name = left.pop()
    if name not in seen:
      seen.add(name)
      left += called[name]
  return [line for name in parts if name in seen for line in parts[name]]


def _names(line: str) -> Iterable[str]:
  for group in _CALLED.findall(line):
    yield from (name.strip().lstrip("%") for name in group.split(","))


def exchanges(lines: Iterable[str]) -> dict[str, int]:
  """Number of exchanges between devices in some lines, by kind."""
  pattern = re.compile(rf" ({'|'.join(EXCHANGES)})(?:-start)?\(")
  return dict(Counter(found[1] for line in lines if (found := pattern.search(line))))


class Copies(NamedTuple):
  """Copies of whole buffers by shape.

  Attributes:
    inside: from memory to memory; empty if all updates are in place.
    moved: between memory and the memory on the chip: reads of a buffer or writes back.
  """

  inside: dict[str, int]
  moved: dict[str, int]


def copies(lines: Iterable[str], buffers: Iterable[tuple[str, int]]) -> Copies:
  """Copies of whole buffers in some lines.

  Args:
    buffers: dtype and number of entries of the relevant buffers, ``("bf16", 4096)``.
  """
  wanted, inside, moved = set(buffers), Counter(), Counter()
  for line in lines:
    if not (copy := _COPY.search(line)) or not (shape := _SHAPE.search(line)):
      continue
    if (shape[1], math.prod(_numbers(shape[2]))) in wanted:
      found = moved if _ON_CHIP.search(line[: copy.start()]) else inside
      found[f"{shape[1]}[{shape[2]}]"] += 1
  return Copies(dict(inside), dict(moved))


def padded(text: str, buffers: Iterable[tuple[str, int]]) -> int:
  """Bytes of the buffers in the largest state of a loop in a TPU's layout, which pads the two innermost axes to whole tiles.

  Args:
    buffers: as for `copies`.
  """
  wanted, totals = set(buffers), [0]
  for line in text.splitlines():
    if " while(" not in line:
      continue
    totals.append(0)
    for dtype, sides, order, *tile in _LAID_OUT.findall(line.split(" while(")[0]):
      sizes, inner = _numbers(sides), _numbers(order)[:2]
      if (dtype, math.prod(sizes)) in wanted:
        for axis, whole in zip(inner, reversed(_numbers(",".join(tile)))):
          sizes[axis] = -(-sizes[axis] // whole) * whole
        totals[-1] += math.prod(sizes) * int(re.sub(r"[a-z]+", "", dtype)) // 8
  return max(totals)


def _numbers(text: str) -> list[int]:
  return [int(number) for number in text.split(",") if number]
