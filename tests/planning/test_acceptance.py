"""Acceptances of plans: given, assumed, or none without drafts."""

import pytest

from jaxspec import methods
from jaxspec.planning.assumed_acceptance import ASSUMED, acceptance_of


def test_given_and_assumed():
  assert acceptance_of(methods.Plain()) is None and acceptance_of(methods.Parallel()) is None
  assert acceptance_of(methods.Sqs()) == (ASSUMED, "assumed") and acceptance_of(methods.Sqs(), 0.9) == (0.9, "given")
  assert acceptance_of(methods.make_method("eagle"), 0.0).value == 0
  with pytest.raises(ValueError, match="from 0 to 1, we instead got -1"):
    acceptance_of(methods.Plain(), -1)
