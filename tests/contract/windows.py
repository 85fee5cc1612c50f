"""Enumeration of chains and Jacobi windows with probabilities of any value, in float64, for both exact tests.

It is independent of the library: masses instead of random numbers, one state after the other.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator

import numpy as np

Prefix = tuple[int, ...]
Table = dict[Prefix, np.ndarray]  # the distribution after every prefix


def random_table(generator: np.random.Generator, vocab: int, length: int) -> Table:
  """Distributions after all prefixes of up to ``length`` tokens."""
  prefixes = itertools.chain.from_iterable(itertools.product(range(vocab), repeat=k) for k in range(length + 1))
  return {prefix: generator.dirichlet(np.ones(vocab)) for prefix in prefixes}


def _normalised(weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
  mass = weights.sum()
  return weights / mass if mass > 1e-14 else otherwise


class Enumerated:
  """The outcome of all decodes.

  Attributes:
    distribution: the probability of every row of ``length`` tokens.
    calls: the expected number of passes after the prefill.
  Args:
    recycle: ``fresh`` or ``coupled``, for drafts from the last pass.
    block: whether drafts are tested together.
    draft: distributions of a draft network; None: Jacobi windows whose first drafts are uniform.
    corrected: whether coupled drafts take the law that a draft follows after a test together; False keeps its proposal.
  """

  def __init__(
    self, target: Table, length: int, window: int, *, block: bool, recycle: str = "fresh", draft: Table | None = None,
    corrected: bool = True,
  ):  # fmt: skip
    self.target, self.length, self.window, self.draft = target, length, window, draft
    self.block, self.coupled, self.corrected = block, recycle == "coupled", corrected
    self.vocab = len(target[()])
    self.distribution: dict[Prefix, float] = collections.defaultdict(float)
    self.calls = 0.0
    for token in range(self.vocab):
      self._round((token,), target[()][token], [])

  def total_variation(self) -> float:
    """Between the distribution and the target's."""
    rows = itertools.product(range(self.vocab), repeat=self.length)
    exact = {row: np.prod([self.target[row[:i]][row[i]] for i in range(self.length)]) for row in rows}
    return 0.5 * sum(abs(self.distribution[row] - mass) for row, mass in exact.items())

  def _round(self, prefix: Prefix, mass: float, left: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Rounds after a prefix; ``left`` has the proposal of each recycled position and the law of its draft."""
    if mass == 0:
      return
    if len(prefix) == self.length:
      self.distribution[prefix] += mass
      return
    self.calls += mass
    for tokens, proposals, probability in self._drafts(prefix, left, min(self.window, self.length - len(prefix) - 1)):
      self._judge(prefix, tokens, proposals, mass * probability)

  def _drafts(self, prefix: Prefix, left: list, number: int) -> Iterator[tuple[Prefix, list[np.ndarray], float]]:
    uniform = np.full(self.vocab, 1 / self.vocab)
    for tokens in itertools.product(range(self.vocab), repeat=number):
      proposals, probability = [], 1.0
      for index, token in enumerate(tokens):
        if self.draft is not None:
          proposal = law = self.draft[prefix + tokens[:index]]
        else:
          proposal, law = left[index] if index < len(left) else (uniform, uniform)
        proposals.append(proposal)
        probability *= law[token]
      if probability > 0:
        yield tokens, proposals, probability

  def _judge(self, prefix: Prefix, tokens: Prefix, q: list[np.ndarray], mass: float) -> None:
    number = len(tokens)
    p = [self.target[prefix + tokens[:index]] for index in range(number + 1)]
    ratio = [p[index][token] / q[index][token] for index, token in enumerate(tokens)]
    if self.block:
      reach = list(itertools.accumulate(ratio, lambda before, one: min(1.0, before * one), initial=1.0))
      rest = [np.maximum(reach[index] * p[index] - q[index], 0) for index in range(number)]
      # The largest i whose test passes: the tests are made from the last draft backwards.
      tests = [one.sum() / max(one.sum() + 1 - reach[index], 1e-300) for index, one in enumerate(rest)] + [reach[-1]]
      stops, left = [], 1.0
      for test in reversed(tests):
        stops.insert(0, left * test)
        left *= 1 - test
    else:
      reach = [0.0] * (number + 1)
      rest = [np.maximum(p[index] - q[index], 0) for index in range(number)]
      passed = list(itertools.accumulate((min(1.0, one) for one in ratio), initial=1.0, func=lambda a, b: a * b))
      stops = [passed[index] - passed[index + 1] for index in range(number)] + [passed[-1]]
    for accepted, stop in enumerate(stops):
      if mass * stop == 0:
        continue
      law = p[-1] if accepted == number else _normalised(rest[accepted], p[accepted])
      recycled = []
      for index in range(accepted + 1, number + 1):
        old = None
        if self.coupled and index < number:
          reached = reach[index] if self.corrected else 0.0
          old = tokens[index], _normalised(np.maximum(q[index] - reached * p[index], 0), q[index])
        recycled.append((p[index], p[index] if old is None else self._coupled(p[index], *old)))
      for token in range(self.vocab):
        self._round((*prefix, *tokens[:accepted], token), mass * stop * law[token], recycled)

  def _coupled(self, new: np.ndarray, token: int, old: np.ndarray) -> np.ndarray:
    kept = min(1.0, new[token] / max(old[token], 1e-300))
    return kept * np.eye(self.vocab)[token] + (1 - kept) * _normalised(np.maximum(new - old, 0), new)
