"""Every patch still matches the code, and every mutant names tests of the default suite."""

import ast
import re

from tests.mutants.mutants import MUTANTS
from tests.mutants.run import ROOT


def test_there_are_many_and_no_two_alike():
  assert len(MUTANTS) >= 25
  assert len({mutant.name for mutant in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


def test_every_patch_matches_once():
  wrong = []
  for mutant in MUTANTS:
    text = (ROOT / mutant.file).read_text()
    if text.count(mutant.old) != 1 or mutant.old == mutant.new:
      wrong.append(f"{mutant.name}: {text.count(mutant.old)} times in {mutant.file}")
    ast.parse(text.replace(mutant.old, mutant.new))
  assert not wrong, "\n".join(wrong)


def _is_slow(decorators) -> bool:
  return any("mark.slow" in ast.unparse(decorator) for decorator in decorators)


def test_killers_are_in_the_default_suite():
  """By name; `tests.mutants.run` checks that pytest collects them."""
  for test in sorted({test for mutant in MUTANTS for test in mutant.killed_by}):
    file, name = re.fullmatch(r"(\S+\.py)::(\w+)(?:\[.*\])?", test).groups()
    text = (ROOT / file).read_text()
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert len(found) == 1 and not _is_slow(found[0].decorator_list), test
    assert "\npytestmark" not in text, test
