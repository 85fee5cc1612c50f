"""The clauses ``draft`` and ``proposal`` of the contract: an impossible draft is an error before it is judged."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from jaxspec import SpecParams, testing
from jaxspec.core.constructors import stateless
from jaxspec.core.types import Cursor, Draft, Drafter
from tests.contract.cases import CASES, V

ROWS, WINDOW = 4, 2


def _drafter(propose: Callable[[Cursor], Draft]) -> Drafter:
  """Proposes the leading rows of a draft."""

  def draft(params, keys, cursor):
    rows = cursor.length.shape[0]
    return jax.tree.map(lambda leaf: leaf[:rows] if jnp.ndim(leaf) else leaf, propose(cursor))

  return stateless(draft, window=WINDOW)


def _check(drafter: Drafter) -> None:
  parts = CASES["ar"].parts()._replace(drafter=drafter)
  parts = parts._replace(params=SpecParams((), parts.params.target))
  condition = CASES["ar"].condition(ROWS)
  testing.check_contract(parts, condition, max_len=6, key=testing.fast_keys(0, ROWS), num_alone=1, drivers=False)


def _ints(*values: int) -> jnp.ndarray:
  return jnp.broadcast_to(jnp.asarray(values, jnp.int32), (ROWS, len(values)))


def _each(value) -> jnp.ndarray:
  return jnp.full((ROWS,), value)


LOGITS = jnp.zeros((ROWS, WINDOW, V))
GOOD = Draft.chain(_ints(1, 2), LOGITS, WINDOW, 0)
BROKEN = {
  "longer than the window": (dict(tokens=_ints(1, 2, 0)), r"draft: Must have tokens of shape \(4, 2\).* got \(4, 3\)"),
  "one row": (dict(tokens=GOOD.tokens[0]), r"draft: Must have tokens of shape \(4, 2\): rows, then the window"),
  "real tokens": (dict(tokens=GOOD.tokens * 1.0), "draft: Must have tokens of int32, .* got float32"),
  "more than there are": (dict(num_drafted=_each(3)), r"draft: Must have num_drafted from 0 to the 2 tokens .* got \[3"),
  "less than none": (dict(num_drafted=_each(-1)), r"draft: Must have num_drafted from 0 to the 2 tokens .* got \[-1"),
  "one number": (dict(num_drafted=WINDOW), r"draft: Must have num_drafted of shape \(4,\) .* got \(\) of int32"),
  "unknown token": (dict(tokens=_ints(1, V)), r"draft: Must have tokens of the vocabulary, below 3, .* got \[3"),
  "negative token": (dict(tokens=_ints(-1, 1)), r"draft: Must have tokens of the vocabulary, from 0 on, .* got \[-1"),
  "children first": (dict(parents=_ints(1, -1)), r"draft: Must have parents that are -1 or a node before .* got \[1"),
  "levels": (dict(parents=_ints(-1, -1)), r"draft: Must have num_drafted from 0 to the 1 levels of the draft, .* got \[2"),
  "parents of one row": (dict(parents=_each(-1)), r"draft: Must have parents of shape \(4, 2\)"),
  "more local": (
    dict(num_local=_each(2), num_drafted=_each(1)),
    r"draft: Must have num_local from 0 to num_drafted, .* \[2",
  ),
  "local without leave": (dict(num_local=_each(1)), r"draft: Must have num_local of 0 from .* may_accept_locally, .* \[1"),
  "questions": (dict(needs_verify=_each(1)), r"draft: Must have needs_verify of shape \(4,\) and bool"),
  "more calls": (dict(num_calls=_each(5)), r"draft: Must have num_calls from 0 to the 0 of calls_per_round, .* got \[5"),
  "probabilities": (dict(proposal=LOGITS + 1 / V), "proposal: Must have logits, we instead got probabilities"),
  "not a number": (
    dict(proposal=LOGITS.at[1, 0, 2].set(jnp.nan)),
    r"proposal: Must have logits that are finite, .* got \[nan",
  ),
  "never drawn": (dict(proposal=LOGITS.at[:, 1, 2].set(-jnp.inf)), r"proposal: .* that were drawn, .* got -inf for \[2"),
  "logits of one": (dict(proposal=LOGITS[:, :1]), r"proposal: Must have logits \(4, 2, 'V'\), .* got \(4, 1, 3\)"),
  "probability of each": (dict(proposal=LOGITS[..., 0]), r"proposal: Must have logits \(4, 2, 'V'\), .* got \(4, 2\)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_contract_names_what_is_wrong_with_a_draft(name):
  fields, message = BROKEN[name]
  with pytest.raises(AssertionError, match="^" + message):
    _check(_drafter(lambda cursor: GOOD._replace(**fields)))


RETURNED = {
  "nothing": (lambda draft, state: None, "got NoneType"),
  "no trace": (lambda draft, state: (draft, state), "got Draft, tuple"),
  "the draft": (lambda draft, state: draft, "got Draft"),
  "another order": (lambda draft, state: (state, draft, ()), "got tuple, Draft, tuple"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_a_drafter_returns_is_checked(name):
  returned, message = RETURNED[name]

  class Returns(Drafter):
    window, calls_per_round, has_cache = WINDOW, 0, False

    def draft(self, params, keys, state, cursor):
      return returned(GOOD, state)

  with pytest.raises(
    AssertionError, match="^draft: Must have a Draft, the state and a trace from draft, .*" + message + r"(\n|$)"
  ):  # and JAX's note
    _check(Returns())


@pytest.mark.slow
def test_padding_may_be_anything():
  """Beyond the drafts of a row."""
  padded = GOOD._replace(tokens=_ints(1, 99), num_drafted=_each(1), proposal=LOGITS.at[:, 1].set(jnp.nan))
  _check(_drafter(lambda cursor: padded))


LATER = {
  "tokens of the vocabulary, below 3": lambda late: dict(num_drafted=_each(1), tokens=jnp.where(late, V, GOOD.tokens)),
  # As the drafter returns them: the loop cuts numbers.
  "num_drafted from 0 to the 2 tokens": lambda late: dict(num_drafted=jnp.where(late[:, 0], -1, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("wanted", LATER)
def test_later_drafts_are_checked_too(wanted):
  with pytest.raises(AssertionError, match="^draft: Must have " + wanted):
    _check(_drafter(lambda cursor: GOOD._replace(**LATER[wanted](cursor.length[:, None] > 1))))
