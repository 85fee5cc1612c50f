"""Every patch still matches the code, and every mutant names tests of the default suite."""

import ast

from tests.conftest import IS_SLOW
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


def test_killers_are_in_the_default_suite(request):
  """Tests of the files that were collected, with their parameters; `tests.mutants.run` runs them all."""
  is_slow = request.config.stash[IS_SLOW]
  files = {name.split("::")[0] for name in is_slow}
  killers = {test for mutant in MUTANTS for test in mutant.killed_by if test.split("::")[0] in files}
  wrong = {test for test in killers if is_slow.get(test, True)}
  assert not wrong, wrong
