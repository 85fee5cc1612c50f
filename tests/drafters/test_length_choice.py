"""The choice of a draft length by times and acceptance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.core.types import Cursor, Draft, Verdict
from jaxspec.drafters import length_choice
from jaxspec.methods.auto_length import in_plain_rounds, table_of
from jaxspec.run.round_times import forced

WIDTHS, MAX_LEN = (0, 1, 3, 7), 256
FLAT = in_plain_rounds([1, 1.05, 1.1, 1.2])
MIDDLE = in_plain_rounds([1, 1.35, 1.6, 2.4])
SLOW_DRAFTS = in_plain_rounds([1, 1.4, 2.2, 3.3])
STEEP = in_plain_rounds([1, 2.2, 4.4, 9])  # of a large batch on a CPU: a draft costs more than the token that it may add


def _round(state, length, times, acceptance, key):
  """One round of 4 rows of ``length`` tokens, whose drafts are accepted independently; also the number of its draft length
  and their new lengths."""
  cursor = Cursor(jnp.zeros((4,), jnp.int32), length, length < MAX_LEN, jnp.int32(0))
  index = length_choice.choose(state, times, WIDTHS, length_choice.lacking(cursor, MAX_LEN))
  width = jnp.asarray(WIDTHS)[index]
  state = length_choice.began(state, index, times, WIDTHS, cursor.live, reads=True)
  drafted = jnp.clip(width, 0, jnp.maximum(MAX_LEN - length - 1, 0))
  at = jnp.minimum(length[:, None] + jnp.arange(7)[None], MAX_LEN - 1)
  leading = jnp.cumprod(jax.random.uniform(key, (4, 7)) < jnp.take_along_axis(acceptance, at, axis=1), axis=1).sum(1)
  draft = Draft.chain(jnp.zeros((4, 7), jnp.int32), (), drafted, drafted)
  verdict = Verdict.one(jnp.minimum(leading, drafted).astype(jnp.int32), jnp.ones((4,), jnp.int32))
  found = length_choice.outcome(cursor, draft, verdict, MAX_LEN)
  return length_choice.ended(state, times, found), MAX_LEN - found.after, index


@jax.jit
def _decode(table, acceptance, prior, seed):
  """The number of the draft length of every round ``[MAX_LEN]``, and how many rounds there were."""

  def body(carry):
    state, length, chosen, number = carry
    state, length, index = _round(state, length, table, acceptance, jax.random.key(1000 * seed + number))
    return state, length, chosen.at[number].set(index), number + 1

  start = length_choice.start(table, 4, 7, MAX_LEN, prior), jnp.ones((4,), jnp.int32)
  carry = *start, jnp.zeros((MAX_LEN,), jnp.int32), jnp.int32(0)
  return jax.lax.while_loop(lambda carry: carry[1].min() < MAX_LEN, body, carry)[2:]


def _rounds(times, acceptance, chosen_by=None, prior=None, seed=0):
  """The lengths of all rounds, and the speed of the whole batch over plain decoding.

  Args:
    times: those that rounds take.
    acceptance: ``[]``, ``[4]``, or ``[4, MAX_LEN]`` by position.
    chosen_by: the table that the choice reads; None: ``times``.
    prior: what is known from other decodes.
  """
  table = jnp.asarray(times if chosen_by is None else chosen_by)
  acceptance = np.asarray(acceptance, np.float32)
  acceptance = jnp.asarray(np.broadcast_to(acceptance if acceptance.ndim == 2 else acceptance.reshape(-1, 1), (4, MAX_LEN)))
  chosen, number = _decode(table, acceptance, prior, seed)
  chosen = np.asarray(chosen)[: int(number)]
  return np.asarray(WIDTHS)[chosen].tolist(), (MAX_LEN - 1) / np.sum(np.asarray(times, np.float64)[chosen] / times[0])


def _best_fixed(times, acceptance):
  return max(_rounds(times, acceptance, forced(WIDTHS, number))[1] for number in range(len(WIDTHS)))


def test_plain_rounds_where_nothing_is_accepted():
  """A few early rounds draft, and later ones only to look again, by the shortest drafts, which take 1.05 plain rounds."""
  widths, speed = _rounds(FLAT, 0.0)
  assert widths[0] == 7 and np.mean(np.asarray(widths[20:]) == 0) > 0.65 and max(widths[20:]) == 1
  assert speed > 0.98


def test_the_longest_drafts_where_all_are_accepted_and_passes_are_flat():
  widths, speed = _rounds(FLAT, 1.0)
  assert set(widths) == {7} and speed > 6


def test_no_draft_where_none_can_pay():
  assert set(_rounds(STEEP, 1.0)[0]) == {0}


@pytest.mark.parametrize("acceptance", [0.3, 0.5, 0.7, 0.9])
def test_near_the_best_fixed_length(acceptance):
  assert _rounds(MIDDLE, acceptance)[1] > 0.95 * _best_fixed(MIDDLE, acceptance)


@pytest.mark.parametrize("acceptance", [(0.95, 0.95, 0.95, 0.1), (0.8, 0.7, 0.4, 0.2), (0.9, 0.9, 0.6, 0.6)])
def test_a_batch_is_as_fast_as_its_slowest_row(acceptance):
  """The mean of all rows says long drafts, which the slowest row pays for."""
  found = _rounds(MIDDLE, acceptance)[1]
  assert found > 0.95 and found > 0.95 * _best_fixed(MIDDLE, acceptance)


def test_chance_in_early_rounds_ends_no_drafting():
  """A sixth of the places of every row are hard to draft, in blocks of 12."""
  speeds = _speeds_over_the_longest([0] * 5)
  assert np.median(speeds) > 0.92 and min(speeds) > 0.8, speeds


def test_few_batches_lose_a_quarter():
  """As above, with random numbers of their own for each of 20 batches: some shorten their drafts too early."""
  speeds = _speeds_over_the_longest(range(20))
  assert np.median(speeds) > 0.92 and np.quantile(speeds, 0.1) > 0.7, speeds


def _speeds_over_the_longest(seeds):
  """The speed of chosen lengths over that of the longest drafts, for batches with hard blocks of 12."""
  generator, speeds = np.random.default_rng(0), []
  for seed in seeds:
    is_hard = np.repeat(generator.random((4, MAX_LEN // 12 + 1)) < 1 / 6, 12, axis=1)[:, :MAX_LEN]
    acceptance = np.where(is_hard, 0.6, 0.985)
    longest = _rounds(SLOW_DRAFTS, acceptance, forced(WIDTHS, 3), seed=seed)[1]
    speeds.append(_rounds(SLOW_DRAFTS, acceptance, seed=seed)[1] / longest)
  return speeds


def test_one_early_rejection_is_not_believed_where_others_are_rare():
  """Of drafts that are accepted with 0.96; without other decodes, rows shorten them after their first rejection."""
  shortened = lambda prior: sum(set(_rounds(SLOW_DRAFTS, 0.96, None, prior, seed)[0]) != {7} for seed in range(4))
  assert shortened(length_choice.known(1000, 40)) == 0 < shortened(None)


def test_rows_leave_what_other_decodes_say():
  """All drafts of others were accepted, and here none are; none were, and here all are."""
  widths, speed = _rounds(MIDDLE, 0.0, None, length_choice.known(1000, 0))
  assert widths[0] == 7 and np.mean(np.asarray(widths[15:]) == 0) > 0.95 and speed > 0.95
  assert set(_rounds(MIDDLE, 1.0, None, length_choice.known(1000, 1000))[0][1:]) == {7}


def test_the_expectation_is_that_of_a_chain():
  """After many rounds of one acceptance: (1 - a^(w + 1)) / (1 - a)."""
  times = jnp.asarray(FLAT)
  state = length_choice.start(times, 4, 7, MAX_LEN)
  state = state.replace(tested=jnp.full((4, 7), 1 << 16), accepted=jnp.full((4, 7), 3 << 14))
  found = np.asarray(length_choice.tokens_per_round(state, WIDTHS)) / (1 << 14)
  np.testing.assert_allclose(found, [[expected_tokens(0.75, width) for width in WIDTHS]] * 4, rtol=3e-3)


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
