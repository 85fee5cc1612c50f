"""Numbers of acceptance rules as leaves of the traced parameters, so that a sweep over a factor compiles once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxspec.core.types import AcceptFn, Array, Draft, Key, PyTree, Verdict


class RuleTables(NamedTuple):
  """Tables of a `TracedRule`."""

  numbers: dict[str, Array]  # [] float32, by field of the rule
  tables: PyTree  # tables of the rule itself


@dataclasses.dataclass(frozen=True)
class TracedRule:
  """An `AcceptFn` whose numbers come with its tables (`RuleTables`).

  Attributes:
    rule: the rule without its numbers (`jaxspec.rules.chain_rule.ChainRule.without_numbers`).
  """

  rule: Any

  def __call__(self, tables: RuleTables, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a draft; see `AcceptFn`."""
    return _with_numbers(self.rule, tables.numbers)(tables.tables, keys, draft, target)


def traced_numbers(rule: AcceptFn, tables: PyTree) -> tuple[AcceptFn, PyTree]:
  """The rule without its numbers, and its tables with them; a rule without numbers is returned unchanged.

  A rule that wraps another one in its field ``rule`` has its numbers.
  """
  inner = _innermost(rule)
  names = getattr(inner, "numbers", ())
  if not names:
    return rule, tables
  numbers = {name: jnp.float32(getattr(inner, name)) for name in names}
  return TracedRule(_in_place_of(rule, inner, inner.without_numbers())), RuleTables(numbers, tables)


def _innermost(rule: Any) -> Any:
  inner: Any = getattr(rule, "rule", None) if dataclasses.is_dataclass(rule) else None
  return rule if inner is None else _innermost(inner)


def _in_place_of(rule: Any, inner: Any, other: Any) -> Any:
  return other if rule is inner else dataclasses.replace(rule, rule=_in_place_of(rule.rule, inner, other))


def _with_numbers(rule: Any, numbers: dict[str, Array]) -> Any:
  """The rule with traced numbers, without the checks of its settings."""
  inner = _innermost(rule)
  filled = object.__new__(type(inner))
  filled.__dict__.update(vars(inner) | numbers)
  return _in_place_of(rule, inner, filled)
