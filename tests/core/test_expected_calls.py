"""Expected calls of an edge that asks with a constant probability."""

import numpy as np
import pytest

from jaxspec.core.expected_calls import asking_for, expected_calls


def by_simulation(asks, accepted, num_tokens, prefix, early_close, rows=20_000):
  """Calls of random rows, decided token by token."""
  draws, total = np.random.default_rng(0), 0
  for _ in range(rows):
    position, calls = prefix, prefix
    if not prefix:
      position, calls = 1, int(draws.random() < asks)
    while position < num_tokens:
      if draws.random() >= asks:
        position += 1
        continue
      calls, chance, number = calls + 1, draws.random(), 0
      window = min(len(accepted), num_tokens - 1 - position)
      if early_close:
        drafted = 1
        while drafted < window and draws.random() < asks:
          drafted += 1
        window = min(window, drafted)
      while number < window and chance < accepted[number]:
        number += 1
      position += number + 1
    total += calls
  return total / rows


@pytest.mark.parametrize(
  ("prefix", "early_close", "num_tokens"), [(0, False, 17), (3, False, 17), (0, True, 17), (2, True, 3), (0, False, 1)]
)
def test_expected_calls(prefix, early_close, num_tokens):
  accepted = (0.8, 0.5, 0.4)
  found = expected_calls(0.3, accepted, num_tokens, prefix=prefix, early_close=early_close)
  assert found == pytest.approx(by_simulation(0.3, accepted, num_tokens, prefix, early_close), abs=0.03)


def test_the_inverse():
  accepted = (0.7, 0.49)
  asks = asking_for(0.25, accepted, 64)
  assert expected_calls(asks, accepted, 64) == pytest.approx(16)
  # A long row: one call for the local tokens before it, and the tokens that it commits.
  assert 1 / asking_for(0.25, accepted, 4096) - 1 + 1 + sum(accepted) == pytest.approx(4, rel=1e-3)
  assert asking_for(1.0, (), 8) == pytest.approx(1)
  with pytest.raises(ValueError, match="calls from 0 to .*, we instead got 0.9"):
    asking_for(0.9, accepted, 64)
