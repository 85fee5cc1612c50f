"""Drafts in a row, each accepted with one probability if those before it are: tokens of a round, and back."""

from __future__ import annotations


def expected_tokens(acceptance: float, drafts: int) -> float:
  """Expected tokens of a round of ``drafts`` drafts: the leading accepted ones and one of the target's own.

  ``(1 - a^(K + 1)) / (1 - a)`` (Leviathan et al. 2023, arXiv 2211.17192, equation 1).
  """
  return float(drafts + 1) if acceptance >= 1 else (1 - acceptance ** (drafts + 1)) / (1 - acceptance)


def acceptance_for(tokens: float, drafts: int) -> float:
  """The acceptance that brings so many tokens in a round, by bisection; 0 up to one token, 1 from ``drafts + 1``.

  The accepted share of drafts is smaller, because drafts after a rejection are never tested.
  """
  if tokens <= 1 or tokens >= drafts + 1:
    return float(tokens > 1)
  low, high = 0.0, 1.0
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if expected_tokens(middle, drafts) < tokens else (low, middle)
  return (low + high) / 2
