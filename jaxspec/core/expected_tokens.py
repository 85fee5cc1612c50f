"""Tokens per round of a chain with constant acceptance, and the inverse."""

from __future__ import annotations


def expected_tokens(acceptance: float, drafts: int) -> float:
  """Expected tokens of a round of ``drafts`` drafts: accepted leading drafts and one token of the target.

  ``(1 - a^(K + 1)) / (1 - a)`` (Leviathan et al. 2023, arXiv 2211.17192, equation 1).
  """
  return float(drafts + 1) if acceptance >= 1 else (1 - acceptance ** (drafts + 1)) / (1 - acceptance)


def acceptance_for(tokens: float, drafts: int) -> float:
  """The acceptance for an expected number of tokens per round, by bisection; 0 up to one token, 1 from ``drafts + 1``.

  The accepted share of drafts is smaller, because drafts after a rejection are never tested.
  """
  if tokens <= 1 or tokens >= drafts + 1:
    return float(tokens > 1)
  low, high = 0.0, 1.0
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if expected_tokens(middle, drafts) < tokens else (low, middle)
  return (low + high) / 2
