"""Quantiles and probabilities of the normal, Student's t and beta distributions."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist


def normal_quantile(level: float) -> float:
  check_level(level)
  return NormalDist().inv_cdf((1 + level) / 2)


@functools.lru_cache(maxsize=4096)
def t_quantile(level: float, degrees: int) -> float:
  """The t with probability ``level`` between -t and t, for Student's t with ``degrees`` degrees of freedom."""
  if level == 0:
    return 0.0
  check_level(level)
  if degrees < 1:
    raise ValueError(f"Must have at least one degree of freedom, we instead got {degrees}")
  # degrees / (degrees + t^2) has the beta distribution.
  x = beta_quantile(1 - level, degrees / 2, 0.5)
  return math.sqrt(degrees * (1 - x) / x)


def t_cdf(t: float, degrees: int) -> float:
  """Probability that Student's t with ``degrees`` degrees of freedom is at most ``t``."""
  tail = 0.5 * beta_cdf(degrees / (degrees + t * t), degrees / 2, 0.5)
  return tail if t <= 0 else 1 - tail


def beta_quantile(probability: float, a: float, b: float) -> float:
  """The x with `beta_cdf` of ``probability``, by bisection to the last digit."""
  low, high = 0.0, 1.0
  while low < (middle := (low + high) / 2) < high:
    low, high = (middle, high) if beta_cdf(middle, a, b) < probability else (low, middle)
  return high


def beta_cdf(x: float, a: float, b: float) -> float:
  """Regularized incomplete beta function by its continued fraction (Abramowitz & Stegun 26.5.8; Lentz 1976)."""
  if x <= 0 or x >= 1:
    return float(x >= 1)
  if x > (a + 1) / (a + b + 2):
    return 1 - beta_cdf(1 - x, b, a)
  log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
  tiny, result, c, d = 1e-300, 1.0, 1.0, 0.0
  for i in range(10_000):
    m = i // 2
    if i == 0:
      step = 1.0
    elif i % 2:
      step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    else:
      step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    d = 1 / (1 + step * d or tiny)
    c = 1 + step / c or tiny
    result *= c * d
    if i and abs(c * d - 1) < 1e-15:
      break
  return math.exp(log_front) * (result - 1) / a


def check_level(level: float) -> None:
  if not 0 < level < 1:
    raise ValueError(f"Must have a level in (0, 1), we instead got {level}")
