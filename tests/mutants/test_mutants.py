"""Every patch still matches the code, and every mutant names tests of the default suite."""

import ast

from tests.conftest import SLOW
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
  """Those that were collected; `tests.mutants.run` checks that pytest collects all of them."""
  slow = request.config.stash[SLOW] & {test for mutant in MUTANTS for test in mutant.killed_by}
  assert not slow, slow
