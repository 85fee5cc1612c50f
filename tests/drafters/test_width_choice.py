"""The choice of a draft length by times and acceptance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.core.types import Cursor, Draft, Verdict
from jaxspec.drafters import width_choice
from jaxspec.methods.auto_width import in_plain_rounds, table_of

WIDTHS, MAX_LEN = (0, 1, 3, 7), 256
FLAT = in_plain_rounds([1, 1.05, 1.1, 1.2])
STEEP = in_plain_rounds([1, 2.2, 4.4, 9])  # of a large batch on a CPU: a draft costs more than the token that it may add


@jax.jit
def _round(state, times, acceptance, key):
  """One round of 4 rows whose drafts are accepted independently; also its length and the mean of its tokens."""
  index = width_choice.choose(state, times, WIDTHS)
  width = jnp.asarray(WIDTHS)[index]
  live = jnp.ones((4,), bool)
  state = width_choice.began(state, index, times, WIDTHS, live, reads=True)
  drafted = jnp.full((4,), width)
  leading = jnp.cumprod(jax.random.uniform(key, (4, 7)) < acceptance, axis=1).sum(1)
  accepted = jnp.minimum(leading, drafted).astype(jnp.int32)
  zeros = jnp.zeros((4,), jnp.int32)
  cursor = Cursor(zeros, zeros + 1, live, jnp.int32(0))
  draft = Draft.chain(jnp.zeros((4, 7), jnp.int32), (), drafted, drafted)
  verdict = Verdict.one(accepted, zeros + 1)
  state = width_choice.ended(state, times, width_choice.outcome(cursor, draft, verdict))
  return state, width, 1 + accepted.mean()


def _rounds(times, acceptance):
  """The lengths of all rounds, and the speed over plain decoding."""
  times = jnp.asarray(times)
  state, widths, tokens, spent = width_choice.start(times, 4, 7, MAX_LEN), [], 0.0, 0.0
  while tokens < MAX_LEN:
    state, width, gain = _round(state, times, acceptance, jax.random.key(len(widths)))
    widths.append(int(width))
    tokens, spent = tokens + float(gain), spent + float(times[WIDTHS.index(int(width))] / times[0])
  return widths, tokens / spent


def test_plain_rounds_where_nothing_is_accepted():
  """A few early rounds draft, and later ones only to look again."""
  widths, speed = _rounds(FLAT, 0.0)
  assert widths[0] == 7 and np.mean(np.asarray(widths[20:]) == 0) > 0.85 and max(widths[20:]) == 1
  assert speed > 0.95


def test_the_longest_drafts_where_all_are_accepted_and_passes_are_flat():
  widths, speed = _rounds(FLAT, 1.0)
  assert set(widths) == {7} and speed > 6


def test_no_draft_where_none_can_pay():
  assert set(_rounds(STEEP, 1.0)[0]) == {0}


@pytest.mark.parametrize("acceptance", [0.3, 0.5, 0.7, 0.9])
def test_near_the_best_fixed_length(acceptance):
  times = in_plain_rounds([1, 1.35, 1.6, 2.4])
  best = max(expected_tokens(acceptance, width) * times[0] / time for width, time in zip(WIDTHS, times))
  assert _rounds(times, acceptance)[1] > 0.93 * best


def test_the_expectation_is_that_of_a_chain():
  """After many rounds of one acceptance: (1 - a^(w + 1)) / (1 - a)."""
  times = jnp.asarray(FLAT)
  state = width_choice.start(times, 4, 7, MAX_LEN)
  state = state.replace(tested=jnp.full((7,), 1 << 16), accepted=jnp.full((7,), 3 << 14))
  found = np.asarray(width_choice.tokens_per_round(state, WIDTHS)) / (1 << 14)
  np.testing.assert_allclose(found, [expected_tokens(0.75, width) for width in WIDTHS], rtol=3e-3)


WRONG = [("0:1",), ("1:1", "2:3"), ("0:a", "2:3"), ("0:-1", "2:3"), ("0:1", "2:inf"), ("0:1", "2:2", "2:3"), ("0:1", "2")]


@pytest.mark.parametrize("items", WRONG)
def test_tables_that_cannot_be_read(items):
  with pytest.raises(ValueError, match=r"round_times as LENGTH:TIME, two or more, .* we instead got") as error:
    methods.Speculative(gamma="auto", round_times=items)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize(
  ("make", "words"),
  [
    (lambda: methods.Speculative(gamma=4, round_times=("0:1", "4:2")), "gamma auto with round_times, we instead got 4"),
    (lambda: methods.Sjd(round_times=("0:1", "4:2")), "window auto with round_times, we instead got 15"),
    (lambda: methods.Speculative(gamma="long"), "an int or auto as gamma, we instead got 'long'"),
    (lambda: methods.Sjd(window="auto", branch=2), "branch 1 with window auto, we instead got 2"),
    (lambda: methods.Speculative(gamma="auto").check_length(7), "gamma below the 7 tokens of a row"),
  ],
)
def test_options(make, words):
  with pytest.raises(ValueError, match=words):
    make()


def test_times_are_in_plain_rounds():
  table = table_of(("0:18", "3:27", "7:36"), ())
  assert table.widths == (0, 3, 7) and table.times.tolist() == [1024, 1536, 2048]
  assert methods.Speculative(gamma="auto", round_times=["0:18", "3:27"]).longest_path() == 3
