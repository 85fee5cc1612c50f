"""A small error of the code, and the names of tests that find several."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One error.

  Attributes:
    name: a few words.
    file: path from the root of the project.
    old: text that occurs in the file exactly once.
    new: replacement with the error.
    killed_by: tests of the default suite, the smallest that fail.
  """

  name: str
  file: str
  old: str
  new: str
  killed_by: tuple[str, ...]


def contract(*names: str) -> tuple[str, ...]:
  return tuple(f"tests/contract/test_contract.py::test_contract[{name}]" for name in names)


def outcomes(*families: str) -> tuple[str, ...]:
  return tuple(f"tests/contract/test_enumeration.py::test_every_outcome_of_a_decode[{family}]" for family in families)


def lossy(*rules: str) -> tuple[str, ...]:
  return tuple(f"tests/contract/test_enumeration.py::test_every_outcome_of_a_lossy_rule[{rule}]" for rule in rules)
