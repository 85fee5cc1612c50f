"""Small errors of the code, each with the tests of the default suite that find it.

A mutant is one textual patch of one file. `python -m tests.mutants.run` applies every one to a copy of the project and runs
its tests there; all must fail. A new rule, drafter or verifier comes with the errors that its author fears.
"""

from tests.mutants.acceptance_mutants import ACCEPTANCE
from tests.mutants.draft_mutants import DRAFT
from tests.mutants.loop_mutants import LOOP
from tests.mutants.row_mutants import ROWS

MUTANTS = (*ACCEPTANCE, *LOOP, *DRAFT, *ROWS)
