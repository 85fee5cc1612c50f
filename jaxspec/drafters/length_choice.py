"""The draft length of the next round, from the times of rounds, other decodes, and the running acceptance.

A round of ``w`` drafts commits ``1 + S_1 + ... + S_w`` tokens of a row in the mean, where ``S_j`` is the probability that
the first ``j`` drafts are accepted (Leviathan et al. 2023, arXiv 2211.17192, equation 1, with one acceptance per depth). If
the target adds no token after full acceptance, the last term is missing.

A batch takes as many rounds as its slowest row. A round adds to each row a share of the tokens that the row lacks. The
length with the most share per time is chosen, in the row where that share is the smallest. Length 0 is a round of plain
decoding.

* **Acceptance.** Tests and acceptances are counted by row and depth. Counts decay by a sixteenth per round, so that the
  estimate follows the row, and falls back to the prior while no drafts are made. A depth with few tests takes the acceptance
  of all depths of its row, a row with few tests that of the other rows, and these that of other decodes: the smallest of
  noisy estimates is too small.
* **Prior.** Other decodes count as many tests as have one rejection, since rows differ. Where nearly all are accepted,
  these are many, so that one early rejection does not shorten the drafts. A low acceptance of others is not believed: who
  makes no drafts would never know better.
* **Balance.** A decode may lose a limited time against plain decoding. Every round adds the tokens by which the row that
  lacks most advances, in times of plain rounds, and subtracts its own time. A length whose round could exceed the limit is
  not chosen. Chance decides which row lacks most in early rounds: a limit that they use up would end the drafts for good.

All quantities are integers, so that every driver of the loop chooses the same lengths.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import flax.struct
import jax.numpy as jnp

from jaxspec.core import commits
from jaxspec.core.types import Array, Cursor, Draft, Verdict

PLAIN = 1024  # the time of a plain round in a table of times
LONGEST_TIME = 1 << 20  # the largest time of a table
PRIOR, PRIOR_TESTS = 0.7, 2  # acceptance if nothing is known, and its weight in tests
OTHERS_TESTS = 16  # weight in tests of the acceptance of the other rows, in that of a row, and the most of other decodes
LOSS_STEPS, LOSS_SHARE = 2, 28  # a decode may lose 2 plain rounds, and one of 28: with 144 tokens a twentieth
_MOST_LOST = 512  # of the latter
_COUNT = 256  # one test in a count
_DECAY = 4  # counts lose one of 2 ** 4 parts per round
_UNIT = 1 << 14  # probability 1


class Prior(NamedTuple):
  """What is known before the first test; int32."""

  acceptance: Array  # [] probability in ``_UNIT`` parts
  weight: Array  # [] tests, in 256ths


@flax.struct.dataclass
class LengthState:
  """Counts of one batch of ``B`` rows; all int32."""

  tested: Array  # [B, K] tests of the drafts of each depth, in 256ths
  accepted: Array  # [B, K] those that accepted
  prior: Prior
  balance: Array  # [] time against plain decoding, at most ``limit``
  limit: Array  # []
  unread: Array  # [] plain rounds that the draft network has not read
  chosen: Array  # [] index of the round's length
  rounds: Array  # [B, M] rounds of each length


class Outcome(NamedTuple):
  """What a round says about the next ones, ``[B]``."""

  live: Array  # bool, before the round
  accepted: Array  # int32, accepted drafts, with one that ended the row
  drafted: Array  # int32
  before: Array  # int32, tokens that the row lacks before the round, see `lacking`
  after: Array  # int32, those after the round


def unknown() -> Prior:
  """The prior if nothing is known."""
  return Prior(jnp.int32(round(PRIOR * _UNIT)), jnp.int32(PRIOR_TESTS * _COUNT))


def known(tested: int, rejected: int) -> Prior:
  """The prior from the drafts of other decodes; see the module docstring.

  Args:
    tested: how many were tested.
    rejected: how many of these were rejected.
  """
  share = min(rejected / tested, 1 - PRIOR) if tested else 1 - PRIOR
  weight = min(1 / share, OTHERS_TESTS) if share else OTHERS_TESTS
  return Prior(jnp.int32(round((1 - share) * _UNIT)), jnp.int32(round(weight * _COUNT)))


def start(times: Array, rows: int, window: int, max_len: int, prior: Prior | None = None) -> LengthState:
  """The state before the first round.

  Args:
    times: ``[M]`` int32, see `choose`.
    rows: ``B``.
    window: the longest length ``K``.
    max_len: tokens of a row.
    prior: None: `unknown`.
  """
  zero, counts = jnp.int32(0), jnp.zeros((rows, window), jnp.int32)
  limit = times[0] * (LOSS_STEPS + min(max_len // LOSS_SHARE, _MOST_LOST))
  prior = unknown() if prior is None else prior
  return LengthState(counts, counts, prior, limit, limit, zero, zero, jnp.zeros((rows, *times.shape), jnp.int32))


def lacking(cursor: Cursor, max_len: int | Array) -> Array:
  """Tokens ``[B]`` int32 that each row lacks; 0 for finished rows, at most that for rows with an end token."""
  return jnp.where(cursor.live, max_len - cursor.length, 0)


def _share(numerator: Array, denominator: Array) -> Array:
  """A probability in ``_UNIT`` parts. One division of integers: every compiler gives the same."""
  return jnp.floor(numerator.astype(jnp.float32) / denominator.astype(jnp.float32) * _UNIT).astype(jnp.int32)


def survival(state: LengthState) -> Array:
  """Probability ``[B, K + 1]`` int32 that the first 0 to K drafts of a row are all accepted, in ``_UNIT`` parts."""
  pseudo = state.prior.weight
  tested, accepted = jnp.sum(state.tested, axis=1), jnp.sum(state.accepted, axis=1)  # [B]
  others = jnp.sum(tested) - tested
  of_others = _share(jnp.sum(accepted) - accepted + ((pseudo * state.prior.acceptance) >> 14), others + pseudo)
  weight = pseudo + jnp.minimum(others, OTHERS_TESTS * _COUNT)
  of_row = _share(accepted + ((weight * of_others) >> 14), tested + weight)
  at_depth = _share(state.accepted + ((weight * of_row) >> 14)[:, None], state.tested + weight[:, None])  # [B, K]
  found = [jnp.full_like(tested, _UNIT)]
  for depth in range(state.tested.shape[1]):
    found.append((found[-1] * at_depth[:, depth]) >> 14)
  return jnp.stack(found, axis=1)


def tokens_per_round(state: LengthState, widths: tuple[int, ...], *, bonus: bool = True) -> Array:
  """Expected tokens of every row in a round of each length ``[B, M]`` int32, in ``_UNIT`` parts.

  Args:
    bonus: whether the target adds a token after full acceptance.
  """
  total = jnp.cumsum(survival(state), axis=1)
  return jnp.stack([total[:, width if bonus else max(width - 1, 0)] for width in widths], axis=1)


def read_time(times: Array, widths: tuple[int, ...]) -> Array:
  """An upper bound ``[]`` int32 of the time of one draft pass: the smallest increase of a round's time per draft."""
  steps = jnp.asarray([wide - narrow for narrow, wide in zip(widths, widths[1:])], jnp.int32)
  return jnp.maximum(jnp.min((times[1:] - times[:-1]) // steps), 0)


def choose(state: LengthState, times: Array, widths: tuple[int, ...], lacks: Array, *, bonus: bool = True) -> Array:
  """Index ``[]`` int32 of the next round's length.

  Args:
    times: ``[M]`` int32, the time of a round of each length; only ratios matter.
    widths: the lengths, ascending from 0.
    lacks: ``[B]`` int32, see `lacking`.
    bonus: as in `tokens_per_round`.
  """
  expected = tokens_per_round(state, widths, bonus=bonus).astype(jnp.float32)
  share = expected / jnp.maximum(lacks, 1).astype(jnp.float32)[:, None]  # [B, M], that a round adds of what a row lacks
  slowest = jnp.min(jnp.where(lacks[:, None] > 0, share, jnp.inf), axis=0)
  rate = slowest / jnp.maximum(times, 1).astype(jnp.float32)
  drafts = jnp.asarray([width > 0 for width in widths])
  cost = times - times[0] + state.unread * read_time(times, widths)  # a round of drafts may commit one token only
  return jnp.argmax(jnp.where(drafts & (state.balance < cost), -1.0, rate)).astype(jnp.int32)


def began(
  state: LengthState, index: Array, times: Array, widths: tuple[int, ...], live: Array, *, reads: bool
) -> LengthState:
  """The state after a draft of length ``index``.

  Args:
    live: ``[B]`` bool, unfinished rows.
    reads: whether the draft network reads committed tokens, those of plain rounds later.
  """
  drafts, unread = index > 0, state.unread
  cost = times[index] + jnp.where(drafts, unread * read_time(times, widths), 0)
  if reads:
    unread = jnp.where(drafts, 0, unread + 1)
  rounds = state.rounds.at[:, index].add(live.astype(jnp.int32))
  return dataclasses.replace(state, balance=state.balance - cost, unread=unread, chosen=index, rounds=rounds)


def outcome(cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int | Array) -> Outcome:
  """What a verdict says.

  Args:
    cursor: the one before the round.
    max_len: tokens of a row.
  """
  accepted = commits.num_accepted(cursor, draft, verdict)
  before, after = (lacking(each, max_len) for each in (cursor, commits.advance(cursor, draft, verdict, max_len)))
  return Outcome(cursor.live, accepted, draft.num_drafted, before, after)


def ended(state: LengthState, times: Array, found: Outcome) -> LengthState:
  """The state after the verdict about that draft."""
  live = found.live[:, None]
  depth = jnp.arange(state.tested.shape[1])[None]
  is_accepted = live & (depth < found.accepted[:, None])
  is_tested = live & (depth <= found.accepted[:, None]) & (depth < found.drafted[:, None])
  # The row that lacks most may end with a token: all that it lacked would not fit into 32 bits, and fill any balance.
  gain = jnp.minimum(jnp.max(found.before) - jnp.max(found.after), 2 * _MOST_LOST)
  decayed = lambda count, tests: count - (count >> _DECAY) + _COUNT * tests.astype(jnp.int32)
  return dataclasses.replace(
    state,
    tested=decayed(state.tested, is_tested),
    accepted=decayed(state.accepted, is_accepted),
    balance=jnp.minimum(state.balance + gain * times[0], state.limit),
  )
