"""Tools for authors of methods: a common contract, exact enumeration, and statistical tests.

* `check_contract` decodes with the parts of a method in several ways and compares the results clause by clause.
* `check_exact` decodes targets of known distribution, with a grid and with prompts, and tests the samples against it.
* `Tape` replaces random numbers by chosen numbers. It is an array of row keys, so the production loop runs unpatched, and
  every draw is addressed as in `jaxspec.core.rng`.
* `enumerate_outcomes` decodes all outcomes of a tape and returns the exact distribution of the tokens.
* `assert_same_distribution` and `assert_same_cdf` compare samples with a distribution.

Example: five draws determine two drafts of one round and the tokens around them, and an inaccurate draft network does not
change the distribution::

    tape = Tape.all_outcomes({first_draw(): 2} | dict.fromkeys(round_draws(0, drafts=1, tests=1), 2) | ...)
    joint = enumerate_outcomes(lambda keys: speculate(params, keys, condition, ...).tokens, tape, vocab_size=2)
    np.testing.assert_allclose(joint, expected, atol=1e-6)
"""

from jaxspec.testing.contract import check_contract
from jaxspec.testing.distributions import assert_same_cdf, assert_same_distribution
from jaxspec.testing.exactness import check_exact
from jaxspec.testing.tape import FINAL, Address, Tape, enumerate_outcomes, fast_keys, first_draw, round_draws

__all__ = [
  "FINAL",
  "Address",
  "Tape",
  "assert_same_cdf",
  "assert_same_distribution",
  "check_contract",
  "check_exact",
  "enumerate_outcomes",
  "fast_keys",
  "first_draw",
  "round_draws",
]
