"""Acceptance rules written out token by token in NumPy float64, and random positions to compare on. No code is shared."""

from __future__ import annotations

import numpy as np

from jaxspec.rules.gsd_rule import GsdRule
from jaxspec.rules.lantern_rule import LanternRule
from jaxspec.rules.scaled_rule import ScaledRule, always
from jaxspec.rules.static_groups import StaticGroupsRule


def random_distributions(
  seed: int, positions: int, size: int, *, sharpness: float = 1.0, noise: float = 0.7, keep: int | None = None
):
  """Targets and stale proposals ``[positions, size]`` float32; ``keep`` truncates both to their largest entries."""
  generator = np.random.default_rng(seed)
  logits = sharpness * generator.normal(size=(positions, size))
  stale = logits + noise * generator.normal(size=(positions, size))

  def distribution(x):
    if keep is not None:
      x = np.where(x < np.sort(x, axis=-1)[:, -keep, None], -np.inf, x)
    x = np.exp(x - x.max(-1, keepdims=True))
    return (x / x.sum(-1, keepdims=True)).astype(np.float32)

  return distribution(logits), distribution(stale)


def token_ratio(p, q) -> float:
  return min(1.0, p / q) if q > 0 else float(p > 0)


def gsd_accept(rule: GsdRule, distance: np.ndarray, x: int, p: np.ndarray, q: np.ndarray) -> float:
  """Window by an explicit sort."""
  order = sorted(range(p.size), key=lambda y: (p[y], y))
  rank, half = order.index(x), rule.group_size // 2
  stop = rank + half + (1 if rule.window == "centered" else 0)
  if rank < half and rule.edge == "compat":
    window = []
  else:
    window = order[max(rank - half, 0) : max(stop, rank)]
  group = {x}
  for y in window:
    if rule.support == "target" and p[y] == 0:
      continue
    if abs(p[y] - p[x]) < rule.max_gap and distance[x, y] < rule.max_distance:
      group.add(y)
  accept = token_ratio(sum(p[y] for y in group), sum(q[y] for y in group))
  if rule.support == "target" and p[x] == 0:
    return 0.0
  return max(accept, token_ratio(p[x], q[x])) if rule.max_rule else accept


def static_accept(groups: np.ndarray, x: int, p: np.ndarray, q: np.ndarray) -> float:
  same = groups == groups[x]
  return token_ratio(p[same].sum(), q[same].sum())


def lantern_borrow(rule: LanternRule, neighbours: np.ndarray, x: int, p: np.ndarray) -> list[int]:
  limit = (rule.bound - 1) * p[x] if rule.relative else rule.bound
  taken, mass = [], 0.0
  for y in neighbours[x, : rule.num_neighbours]:
    mass += p[y]
    if mass > limit:
      break
    taken.append(y)
  return taken


def accept(rule, tables, x: int, p: np.ndarray, q: np.ndarray) -> float:
  if isinstance(rule, GsdRule):
    return gsd_accept(rule, tables, x, p, q)
  if isinstance(rule, LanternRule):
    return token_ratio(p[x] + sum(p[y] for y in lantern_borrow(rule, tables, x, p)), q[x])
  if isinstance(rule, ScaledRule):
    return token_ratio(rule.factor * p[x], q[x])
  if isinstance(rule, StaticGroupsRule):
    return static_accept(tables, x, p, q)
  assert rule == always
  return 1.0


def residual(rule, tables, x: int, p: np.ndarray, q: np.ndarray, accepts: np.ndarray) -> np.ndarray:
  if rule.residual == "optimal":
    weights = np.maximum(p - q * accepts, 0)
  elif isinstance(rule, LanternRule):
    taken = lantern_borrow(rule, tables, x, p)
    if rule.residual == "paper":
      moved = p.copy()
      moved[x] += p[taken].sum()
      moved[taken] = 0
      weights = np.maximum(moved - q, 0)
    else:
      left = q.copy()
      left[tables[x, : rule.num_neighbours + 1] if taken else []] = 0
      weights = np.maximum(p - left, 0)
  else:
    weights = np.maximum(p - q, 0)
  return weights / weights.sum() if weights.sum() > 1e-12 else p


def emitted_distribution(rule, tables, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Acceptance of every token and the distribution of the emitted token, both ``[V]``."""
  p, q = p.astype(np.float64), q.astype(np.float64)
  accepts = np.array([accept(rule, tables, x, p, q) for x in range(p.size)])
  distribution = q * accepts
  for x in range(p.size):
    distribution = distribution + q[x] * (1 - accepts[x]) * residual(rule, tables, x, p, q, accepts)
  return accepts, distribution
