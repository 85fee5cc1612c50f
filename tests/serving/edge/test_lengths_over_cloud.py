"""Draft lengths that an edge chooses by measured times: replays, faults, a killed edge, and what a length may read."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import jaxspec
from jaxspec.run.round_times import forced
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.link_times import table
from jaxspec.serving.edge.round_timing import Timing
from jaxspec.serving.server.in_process import LocalCloud
from tests.serving.edge.faulty import Fault, Killed
from tests.serving.edge.pairs import MAX_LEN, assert_same, rows_of
from tests.serving.edge.test_pipeline import NAMES, ROWS, STREAM, Replies, new_engine, served, wire
from tests.serving.server.crowds import one_row

pytestmark = pytest.mark.slow
LENGTHS = (0, 1, 2, 3)
# An exchange as long as one draft pass: short lengths pay after rejections.
TIMES = jnp.asarray([1024, 1400, 1800, 2150], jnp.int32)


@functools.cache
def case():
  """The pair of the tests of pipelines, whose drafter chooses lengths; the server does not know that."""
  found = served().cases[0]
  drafter = dataclasses.replace(found.drafter, chooses_length=True, bonus=False)
  params = found.params._replace(draft=found.params.draft._replace(times=TIMES))
  return found._replace(params=params, drafter=drafter)


@functools.cache
def fused():
  return jaxspec.speculate(case().params, *rows_of(ROWS), **case().parts(), max_len=MAX_LEN)


def run(cloud, row=0, *, pipeline=1, table_of=None, journal=None):
  replies, edge = Replies(), case().edge(profile=0, pipeline=pipeline, table_of=table_of)
  settings = dict(settings=cloud.retry_settings, journal=journal, observer=replies)
  out, _ = edge.run(*reversed(one_row(row)), cloud, stream=STREAM, **settings)
  return out, replies


def recorded(lengths):
  """The rule that gives every round the length that it had."""
  return lambda past: forced(LENGTHS, lengths[past.number])


class Following:
  """The rule of measured times; keeps the number of each round and of those that it read."""

  def __init__(self):
    self.asked = []

  def __call__(self, past):
    self.asked.append((past.number, len(past.rounds)))
    return table(past)


def schedule(row):
  """Lengths of rounds by a rule that no time enters, which differ from round to round."""
  return [int(length) for length in np.random.default_rng(row).choice([0, 1, 2, 3, 3, 2], MAX_LEN)]


@functools.cache
def scheduled(row):
  out, replies = run(wire(), row, table_of=recorded(schedule(row)))
  return out, replies.frames


@functools.cache
def shortest():
  """The row of fewest calls, which tests disturb at every one of them."""
  return min(range(ROWS), key=lambda row: len(scheduled(row)[1]))


@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_without_measured_times_the_tokens_are_those_of_one_program(pipeline):
  for row in range(ROWS):
    out, _ = run(wire(runs_ahead=row % 2 == 0), row, pipeline=pipeline)
    assert_same(out, jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], fused()))
  assert (np.asarray(fused().report.rounds).sum(axis=0)[1:] > 0).sum() > 1


@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_recorded_lengths_give_the_same_tokens(pipeline):
  """Whatever is sent ahead: rounds have their recorded lengths, so the tokens are those of an edge that waits."""
  for row in range(ROWS):
    out, replies = run(wire(runs_ahead=row % 2 == 0), row, pipeline=pipeline, table_of=recorded(schedule(row)))
    np.testing.assert_array_equal(out.tokens, scheduled(row)[0].tokens)
    np.testing.assert_array_equal(out.report.rounds, scheduled(row)[0].report.rounds)
  assert len({scheduled(row)[0].tokens.tobytes() for row in range(ROWS)}) > 1


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_at_any_call(fault):
  """With recorded lengths; a fault changes times, and with them later lengths, but never a token of given lengths."""
  row = shortest()
  options = dict(row=row, pipeline=4, table_of=recorded(schedule(row)))
  frames = run(wire(), **options)[1].frames
  for place in range(len(frames) + 2):
    out, replies = run(wire({place: fault}), **options)
    np.testing.assert_array_equal(out.tokens, scheduled(row)[0].tokens)
    assert replies.frames == frames, place


@pytest.mark.slow
def test_a_wait_or_a_fault_elsewhere_is_not_measured():
  """An edge that waits measures the attempt that had a reply, so its lengths and tokens are those without the fault."""
  options = dict(row=shortest(), table_of=table)
  out, replies = run(wire(), **options)
  for fault in (Fault.DROP_REPLY, Fault.RESET_AFTER, Fault.DAMAGE_UP, Fault.KILL_BEFORE):
    for place in range(len(replies.frames) + 2):
      again, others = run(wire({place: fault}), **options)
      np.testing.assert_array_equal(again.tokens, out.tokens)
      assert others.frames == replies.frames, (fault, place)


@pytest.mark.parametrize("pipeline", [1, 4])
def test_a_length_reads_rounds_that_were_measured_before_its_first_draft(pipeline):
  """Round r reads the times of rounds up to r - m, also when it is drafted again."""
  for row in range(ROWS):
    rule = Following()
    run(wire(), row, pipeline=pipeline, table_of=rule)
    assert all(read == max(0, number - pipeline + 1) for number, read in rule.asked)
    assert pipeline == 1 or len(rule.asked) > len({number for number, _ in rule.asked})  # drafted again after void drafts


@pytest.mark.parametrize("pipeline", [1, 4])
def test_an_edge_that_is_killed_chooses_the_same_lengths_from_its_journal(tmp_path, pipeline):
  """At any call, by measured times: they are in the journal."""
  options = dict(row=shortest(), pipeline=pipeline, table_of=table)
  out, replies = run(wire(), **options)
  for place in range(len(replies.frames) + 1):
    for after in (False, True):
      cloud, path = wire(edge_dies=(place, after)), tmp_path / f"{place}{after}.jrn"
      with Journal(path) as journal, pytest.raises(Killed):
        run(cloud, **options, journal=journal)
      with Journal(path) as journal:
        again, _ = run(cloud, **options, journal=journal)
        written = [record[28:] for record in journal.records[2:]]
      np.testing.assert_array_equal(again.tokens, out.tokens)
      assert written == [reply for _, reply in replies.frames]


@pytest.mark.slow
def test_lengths_follow_the_delay():
  """An exchange as short as a pass, then one of a hundred passes: drafts become long, and the rows stay correct."""
  mean = []
  for delay_s in (0.0005, 0.2):
    cloud, drafted, rounds = LocalCloud(new_engine()), 0, 0
    for row in range(ROWS):
      start = case().edge(profile=0, table_of=table).open(*reversed(one_row(row)), model=served().engine.model)
      stream = start.receive(cloud.open(start.handshake).frame)
      while (request := stream.request) is not None:
        number = int(stream._rounds[0].draft.num_drafted[0])
        drafted, rounds = drafted + number, rounds + 1
        timing = Timing(2000 * (number + 1), round(1e6 * delay_s), round(1e6 * delay_s))
        stream.receive(cloud.verify(start.handshake.stream, *request), timing)
      cloud.close(start.handshake.stream)
    mean.append(drafted / rounds)
  assert mean[0] + 0.5 < mean[1]


def test_a_fixed_length_has_no_table():
  assert NAMES[0] == "markov:sqs-trimmed, no bonus"
  with pytest.raises(ValueError, match="chooses lengths for measured times, we instead got one of a fixed length"):
    served().edge(0, table_of=table)
