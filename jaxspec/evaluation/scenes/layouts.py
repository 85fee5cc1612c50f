"""Layouts of objects: every legal layout of given sizes is equally likely.

A layout is legal if all boxes are on the grid and a cell of background is between any two of them
(`jaxspec.evaluation.scenes.world`). Drawing and counting are exact:

1. The number of ways to complete a pair of positions is counted once per tuple of sizes.
2. The first two positions are drawn with these numbers as weights.
3. The third position is drawn with the number of positions left for the fourth as weight, the fourth uniformly.

Relations are those of centres: A is left of B if its centre is farther to the left than it is higher or lower. At most one
of the four relations holds between two objects; none does on a diagonal.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxspec.evaluation.scenes.world import GAP, GRID, MOST_OBJECTS, SIZES

RELATIONS = ("left", "right", "above", "below")
OPPOSITES = {"left": "right", "right": "left", "above": "below", "below": "above"}


def relation_of(first: tuple[float, float], second: tuple[float, float]) -> str | None:
  """Relation of the first to the second: a name in ``RELATIONS``, or None on a diagonal.

  Args:
    first: (row, column) of a centre, in any unit; ``second`` likewise.
  """
  down, right = first[0] - second[0], first[1] - second[1]
  if abs(down) == abs(right):
    return None
  if abs(right) > abs(down):
    return "left" if right < 0 else "right"
  return "above" if down < 0 else "below"


def draw_layout(
  generator: np.random.Generator, sizes: tuple[str, ...], relation: str | None = None
) -> tuple[tuple[int, int], ...]:
  """(row, column) of each object, drawn uniformly from all legal layouts.

  Args:
    generator: source of one number per object, but one for the first two together.
    sizes: one to four names in ``SIZES``.
    relation: of the first object to the second; only for two.
  Raises:
    ValueError: for no or too many objects, or a relation with another number than two.
  """
  _check(sizes, relation)
  if len(sizes) == 1:
    rows, columns = _positions(sizes[0])
    chosen = [int(generator.integers(len(rows)))]
  else:
    cumulative = _cumulative(sizes, relation)
    flat = int(np.searchsorted(cumulative, generator.integers(int(cumulative[-1])), side="right"))
    chosen = list(divmod(flat, len(_positions(sizes[1])[0])))
  while len(chosen) < len(sizes):
    third = len(chosen)
    free = _apart(sizes[0], sizes[third])[chosen[0]]
    for number in range(1, third):
      free = free & _apart(sizes[number], sizes[third])[chosen[number]]
    weights = free.astype(np.int64)
    if third == 2 and len(sizes) == 4:
      rest = _apart(sizes[0], sizes[3])[chosen[0]] & _apart(sizes[1], sizes[3])[chosen[1]]
      weights *= (_apart(sizes[2], sizes[3]) & rest).sum(1)
    cumulative = np.cumsum(weights)
    chosen.append(int(np.searchsorted(cumulative, generator.integers(int(cumulative[-1])), side="right")))
  return tuple(
    (int(_positions(size)[0][position]), int(_positions(size)[1][position]))
    for size, position in zip(sizes, chosen, strict=True)
  )


@functools.cache
def count_layouts(sizes: tuple[str, ...], relation: str | None = None) -> int:
  """Number of legal layouts of distinguishable objects; arguments as for `draw_layout`."""
  _check(sizes, relation)
  if len(sizes) == 1:
    return len(_positions(sizes[0])[0])
  return int(_cumulative(sizes, relation)[-1])


def _check(sizes: tuple[str, ...], relation: str | None) -> None:
  if not 1 <= len(sizes) <= MOST_OBJECTS or not set(sizes) <= set(SIZES):
    raise ValueError(f"Must have one to {MOST_OBJECTS} sizes among {tuple(SIZES)}, we instead got {sizes}")
  if relation is not None and (len(sizes) != 2 or relation not in RELATIONS):
    raise ValueError(
      f"Must have a relation among {RELATIONS} between two objects, we instead got {relation!r} of {len(sizes)}"
    )


@functools.cache
def _positions(size: str) -> tuple[np.ndarray, np.ndarray]:
  """Rows and columns ``[P]`` of all positions of a size."""
  side = GRID - SIZES[size] + 1
  rows, columns = np.divmod(np.arange(side * side), side)
  return rows, columns


@functools.cache
def _apart(one: str, other: str) -> np.ndarray:
  """``[P, Q]`` bool: whether positions of two sizes leave a gap."""
  (rows, columns), (other_rows, other_columns) = _positions(one), _positions(other)
  reach, other_reach = SIZES[one] + GAP, SIZES[other] + GAP
  down = other_rows[None] - rows[:, None]
  right = other_columns[None] - columns[:, None]
  return (down >= reach) | (-down >= other_reach) | (right >= reach) | (-right >= other_reach)


@functools.cache
def _related(one: str, other: str, relation: str) -> np.ndarray:
  """``[P, Q]`` bool: whether positions of two sizes are in a relation."""
  (rows, columns), (other_rows, other_columns) = _positions(one), _positions(other)
  down = (rows + SIZES[one] / 2)[:, None] - (other_rows + SIZES[other] / 2)[None]
  right = (columns + SIZES[one] / 2)[:, None] - (other_columns + SIZES[other] / 2)[None]
  if relation in ("left", "right"):
    return (np.abs(right) > np.abs(down)) & ((right < 0) == (relation == "left"))
  return (np.abs(down) > np.abs(right)) & ((down < 0) == (relation == "above"))


@functools.cache
def _cumulative(sizes: tuple[str, ...], relation: str | None) -> np.ndarray:
  """``[P * Q]`` int64 running sums of the number of layouts with the first two objects at a pair of positions."""
  pairs = _apart(*sizes[:2])
  if relation is not None:
    pairs = pairs & _related(*sizes[:2], relation)
  weights = pairs.astype(np.float64)  # whole numbers far below 2^53
  if len(sizes) >= 3:
    to_third = [_apart(size, sizes[2]).astype(np.float64) for size in sizes[:2]]
    if len(sizes) == 3:
      weights *= to_third[0] @ to_third[1].T
    else:
      to_fourth = [_apart(size, sizes[3]).astype(np.float64) for size in sizes[:3]]
      for position in range(len(weights)):
        # [third, fourth]: positions that are free beside the first object and apart from each other
        free = to_third[0][position][:, None] * to_fourth[2] * to_fourth[0][position][None]
        weights[position] *= np.einsum("qt,tf,qf->q", to_third[1], free, to_fourth[1], optimize=True)
  return np.cumsum(np.rint(weights).astype(np.int64).ravel())
