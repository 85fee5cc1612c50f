"""`check_exact`: exact methods pass; errors for lossy ones and wrong drafters name their distance."""

import functools

import jax.numpy as jnp
import pytest

from jaxspec import methods, testing
from jaxspec.core.constructors import stateless
from jaxspec.core.types import Draft, Drafter
from jaxspec.rules.lossless import commit_leading
from tests.helpers import slow_but

DISTANCE = r"^exact: Must have the target's distribution of .*, we instead got a total variation of 0\.\d+ \(0\.\d+ is of"


@functools.cache
def _copies(is_certain: bool) -> Drafter:
  """Drafts copies of the last token, with a correct proposal or a uniform one."""

  def draft(params, keys, cursor):
    tokens = jnp.repeat(cursor.last[:, None], 2, axis=1)
    away = jnp.where(tokens[..., None] == jnp.arange(3)[None, None], 0.0, -jnp.inf if is_certain else 0.0)
    return Draft.chain(tokens, away, 2, 0)

  return stateless(draft, window=2)


def _always(tables, keys, draft, target):
  return commit_leading(keys, draft, target, accept_prob=jnp.ones(draft.tokens.shape))


@pytest.mark.slow
def test_exact_methods_pass():
  assert testing.check_exact(methods.Speculative(gamma=2)) > 1e-4


@pytest.mark.slow
def test_copies_pass_where_they_are_called_certain():
  testing.check_exact(drafter=_copies(True))
  with pytest.raises(AssertionError, match=DISTANCE + ".*; the rule is exact: are the drafts drawn from their proposals"):
    testing.check_exact(drafter=_copies(False), targets=("prompt",))


@pytest.mark.parametrize("target", slow_but(testing.toys.TOYS, ["prompt"]))
def test_a_rule_that_is_a_function_is_named_without_a_bias(target):
  with pytest.raises(AssertionError, match=DISTANCE + r" the 8000 samples alone\)$") as caught:
    testing.check_exact(rule=_always, targets=(target,))
  assert f"target {target!r}" in str(caught.value)


@pytest.mark.slow
def test_lossy_methods_fail_with_their_bias():
  """A rule with a table of distances; tests/rules has the biases of all rules."""
  bias = r".*; the rule alone changes the distribution of a token by 0\.\d+$"
  with pytest.raises(AssertionError, match=DISTANCE + bias):
    testing.check_exact(methods.Gsd(window=2), targets=("grid",))


WRONG = {
  "two rules": (
    dict(method=methods.Speculative(), rule=_always),
    "Must have a method, or .*, we instead got a method and rule",
  ),
  "two drafters": (
    dict(method=methods.Plain(), drafter=_copies(True)),
    "Must have a method, or .*, we instead got a method and drafter",
  ),
  "tables of a method": (dict(method=methods.Plain(), tables=jnp.zeros(2)), "we instead got a method and tables"),
  "a class": (dict(method=methods.Speculative), r"its options, Speculative\(...\), we instead got the class"),
  "a number": (dict(drafter=3), "Must have a Drafter as drafter, we instead got an object of type int"),
  "a misspelled target": (dict(targets=("gird",)), r"one or more of grid, prompt, we instead got \('gird',\)"),
  "a word": (dict(targets="grid"), "we instead got 'grid'"),
  "no target": (dict(targets=()), r"we instead got \(\)"),
  "no rows": (dict(rows=0), "Must have rows from 1, we instead got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_are_checked(name):
  arguments, message = WRONG[name]
  with pytest.raises(ValueError, match=message):
    testing.check_exact(**arguments)


def test_what_cannot_be_checked_is_said():
  with pytest.raises(ValueError, match="Must have a method that draws discrete tokens, we instead got cspd for continuous"):
    testing.check_exact(methods.Cspd())
  with pytest.raises(ValueError, match="Must have a grid"):
    testing.check_exact(methods.Sjd(initial="above"), targets=("prompt",))
