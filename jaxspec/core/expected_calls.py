"""Expected calls of the target in a row whose tokens call it with a constant probability (CIAR), and the inverse.

Every token that the draft side decides alone calls the target with the probability ``q``. A call tests a window of
drafts and adds one token, so that it commits ``A + 1`` tokens, of which none is decided again.
"""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = 40  # of a bisection


def expected_calls(
  asks: float, accepted: Sequence[float], num_tokens: int, *, prefix: int = 0, early_close: bool = False
) -> float:
  """Expected calls in a row, by recursion over the tokens that are left.

  The first ``prefix`` tokens are a call each. Without a prefix, a call for token 0 is the prefill, which has no window.

  Args:
    asks: the probability ``q``.
    accepted: probability that at least 1, 2 .. K drafts of a window are accepted.
    num_tokens: tokens of the row; a window ends before the last one.
    early_close: whether a window ends before its first draft that would not call.
  """
  at_least = [1.0, *(chance * (asks**number if early_close else 1.0) for number, chance in enumerate(accepted))]
  calls = [0.0]  # by number of tokens that are left
  for left in range(1, num_tokens - min(prefix, num_tokens) + (prefix > 0)):
    window = min(len(accepted), left - 1)
    ends = [here - after for here, after in zip(at_least[:window], at_least[1 : window + 1])] + [at_least[window]]
    after_call = sum(chance * calls[left - 1 - number] for number, chance in enumerate(ends))
    calls.append((1 - asks) * calls[left - 1] + asks * (1 + after_call))
  return min(prefix, num_tokens) + calls[-1] + (0.0 if prefix else asks)


def asking_for(
  calls: float, accepted: Sequence[float], num_tokens: int, *, prefix: int = 0, early_close: bool = False
) -> float:
  """The probability of asking for ``calls`` per token, by bisection; other arguments as in `expected_calls`.

  Raises:
    ValueError: for a share that the windows or the prefix do not allow.
  """
  share = lambda asks: expected_calls(asks, accepted, num_tokens, prefix=prefix, early_close=early_close) / num_tokens
  least, most = share(0.0), share(1.0)
  if not least <= calls <= most:
    raise ValueError(
      f"Must have calls from {least:.3g} to {most:.3g} with this prefix, window and acceptance, we instead got {calls:g}"
    )
  low, high = 0.0, 1.0
  for _ in range(_STEPS):
    middle = (low + high) / 2
    low, high = (middle, high) if share(middle) < calls else (low, middle)
  return (low + high) / 2
