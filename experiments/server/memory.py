"""Memory over work: samples, and the slope of a line through them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_WARM = 0.2  # share of the work that fills tables and pools, and is left out of the slope
_BLOCKS = 16


class Samples:
  """Resident bytes by work done."""

  def __init__(self):
    self._found: list[tuple[int, int]] = []

  def add(self, done: int, resident: int) -> None:
    """Records the process's bytes after an amount of work."""
    self._found.append((done, resident))

  def __len__(self) -> int:
    return len(self._found)

  def slope(self) -> tuple[float, float, float]:
    """Bytes for each piece of work, and the ends of the 95 % interval; the first fifth does not count.

    Neighbours are alike, so the line goes through the means of 16 blocks. NaN where there are too few samples.
    """
    done, resident = np.array(self._found, np.float64).T if self._found else np.zeros((2, 0))
    late = done >= _WARM * done.max(initial=0.0)
    if late.sum() < 2 * _BLOCKS:
      return math.nan, math.nan, math.nan
    x, y = (np.array([block.mean() for block in np.array_split(values[late], _BLOCKS)]) for values in (done, resident))
    x = x - x.mean()
    slope = (x * y).sum() / (x * x).sum()
    residual = y - y.mean() - slope * x
    error = math.sqrt((residual**2).sum() / (_BLOCKS - 2) / (x * x).sum())
    return slope, slope - 2.145 * error, slope + 2.145 * error  # quantile of Student's t with 14 degrees of freedom

  def described(self, what: str) -> str:
    """A sentence."""
    if not self._found:
      return "not sampled."
    first, last, most = self._found[0][1], self._found[-1][1], max(resident for _, resident in self._found)
    slope, low, high = self.slope()
    line = f", {slope:.1f} [{low:.1f}, {high:.1f}] bytes for each {what}" if math.isfinite(slope) else ""
    return f"{first / 1e6:.0f} MB at first, {last / 1e6:.0f} MB at last, {most / 1e6:.0f} MB at most{line}."

  def as_json(self) -> dict[str, Any]:
    """All samples, and the slope."""
    return {"samples": self._found, "slope": list(self.slope())}
