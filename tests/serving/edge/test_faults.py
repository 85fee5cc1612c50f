"""Under every fault of the wire, of the server and of the edge the replies of a stream are those of an undisturbed run."""

import dataclasses
import functools
import itertools
import random

import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.server import faulty
from jaxspec.serving.edge.journal import Journal, pack
from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.server.dispatcher import Dispatcher, Limits, VerifyCall
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.quotas import Quota, Tenant
from jaxspec.serving.wire.ciar_message import CIAR
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import REQUEST, frame, unframe
from tests.helpers import slow_but
from tests.serving.edge.faulty import KILLS, LOSSLESS, Fault, FaultyCloud, Killed
from tests.serving.edge.toy_edge import CALLS, ToyEdge, handshake
from tests.serving.edge.toy_engine import ToyEngine

LAZY_CALLS = 12


@functools.cache
def undisturbed(number=0, calls=None, lazy=False):
  """The replies and tokens of a decode; with 52 calls, handshake and closing included, or fewer of two parts each."""
  cloud = FaultyCloud()
  edge = ToyEdge(cloud.reliable(handshake(number, lazy=lazy)), calls or (LAZY_CALLS if lazy else CALLS))
  edge.run()
  assert cloud.attempts == len(edge.replies) + 1 and not cloud.server.engine.streams
  return edge.replies, edge.tokens


def decode(schedule, number=0, calls=None, lazy=False):
  cloud = FaultyCloud(schedule)
  reliable = cloud.reliable(handshake(number, lazy=lazy))
  edge = ToyEdge(reliable, calls or (LAZY_CALLS if lazy else CALLS))
  edge.run()
  assert (edge.replies, edge.tokens) == undisturbed(number, calls, lazy), schedule
  return cloud, reliable


def test_the_undisturbed_run_has_accepted_and_rejected_drafts():
  replies, tokens = undisturbed()
  accepted = {int.from_bytes(reply[10:12]) for reply in replies[1:]}
  assert len(replies) == CALLS + 1 < len(tokens) and accepted == {0, 1, 2, 3}
  assert any(reply[3] == REQUEST for reply in undisturbed(lazy=True)[0])


CASES = list(itertools.product((False, True), LOSSLESS))


@pytest.mark.parametrize("lazy, fault", slow_but(CASES, [case for case in CASES if case[0] or case[1] is Fault.DROP_REPLY]))
def test_a_fault_of_the_wire_at_any_call(fault, lazy):
  """Every call runs once, and the stream is not resumed."""
  last = len(undisturbed(lazy=lazy)[0])
  retried = 0
  for place in range(last + 1):
    cloud, reliable = decode({place: fault}, lazy=lazy)
    assert reliable.resumes == 0 and set(cloud.server.engine.runs.values()) == {1}
    retried += reliable.retries
    if place != last or fault is not Fault.OLD_ORIGINAL:
      assert place == last or not cloud.server.engine.streams
  is_duplicate, has_no_frame = fault is Fault.DUPLICATE, fault is Fault.DAMAGE_UP
  assert retried == (0 if is_duplicate else last - has_no_frame)


@pytest.mark.parametrize("fault", KILLS)
@pytest.mark.parametrize("lazy", slow_but([False, True], [True]))
def test_a_server_that_is_killed_at_any_call(fault, lazy):
  """One resume restores the stream with its tokens; earlier calls are not repeated."""
  last = len(undisturbed(lazy=lazy)[0])
  for place in range(last + 1):
    cloud, reliable = decode({place: fault}, lazy=lazy)
    assert reliable.resumes == (0 < place < last) == len(cloud.server.engine.resumes)
    before, after = (server.engine.runs for server in cloud.servers)
    again = {call for call in before.keys() & after.keys() if call[1:] != (0, 0)}
    assert len(again) <= (fault is Fault.KILL_AFTER) + lazy, "only the call in flight, and the drafts before it"


@pytest.mark.parametrize("lazy", [False, True])
def test_random_schedules(lazy):
  """Up to four faults of any kind, also in the attempts that mend earlier ones."""
  generator = random.Random(7)
  for _ in range(150):
    places = generator.sample(range(16), generator.randint(2, 4))
    decode({place: generator.choice(list(Fault)) for place in places}, calls=8, lazy=lazy)


@pytest.mark.slow
def test_every_pair_of_faults():
  for number, (first, second, gap) in enumerate(itertools.product(Fault, Fault, (1, 2, 3))):
    for place in range(number % 3, 10, 3):
      decode({place: first, place + gap: second}, calls=8, lazy=True)


def test_twelve_edges_in_turns_on_a_wire_with_faults():
  """Calls of several streams interleave; each stream is as if it were alone."""
  generator = random.Random(3)
  schedule = {place: generator.choice(LOSSLESS) for place in range(3, 400, 17)}
  cloud = FaultyCloud(schedule | {80: Fault.KILL_BEFORE, 160: Fault.KILL_AFTER})
  edges = {number: ToyEdge(cloud.reliable(handshake(number)), 20) for number in range(12)}
  running = {number: edge.steps() for number, edge in edges.items()}
  while running:
    number = generator.choice(list(running))
    if next(running[number], "end") == "end":
      del running[number]
  for number, edge in edges.items():
    assert (edge.replies, edge.tokens) == undisturbed(number, 20)
  assert len(cloud.servers) == 3 and sum(edge.reliable.resumes for edge in edges.values()) >= 12


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("lazy", slow_but([False, True], [True]))
def test_an_edge_that_is_killed_at_any_call_goes_on_from_its_journal(tmp_path, after, lazy):
  """Killed before it sent a call, or after the reply; answered calls are not repeated."""
  last, calls = len(undisturbed(lazy=lazy)[0]), LAZY_CALLS if lazy else CALLS
  for place in range(last):
    path = tmp_path / f"{place}.jrn"
    cloud = FaultyCloud(edge_dies=(place, after))
    with Journal(path) as journal, pytest.raises(Killed):
      ToyEdge(cloud.reliable(handshake(lazy=lazy), journal=journal), calls).run()
    written = len(Journal(path).records)
    assert written == 1 + place, "the handshake, and every reply that came before"
    with Journal(path) as journal:
      edge = ToyEdge(cloud.reliable(handshake(lazy=lazy, stream=b"another id, 16 b"), journal=journal), calls)
      edge.run()
    assert (edge.replies, edge.tokens) == undisturbed(lazy=lazy)
    assert set(cloud.server.engine.runs.values()) == {1}
    assert cloud.attempts == last + 1 + 1, "only the call in flight is sent twice"


def test_an_edge_that_is_killed_while_it_writes_its_journal(tmp_path):
  """Whatever is left of the last record, the whole run comes out; then it needs no cloud at all."""
  path = tmp_path / "run.jrn"
  with Journal(path) as journal:
    ToyEdge(FaultyCloud().reliable(handshake(), journal=journal), 8).run()
  replies = lambda: [record[:16] + record[28:] for record in Journal(path).records]  # without measured times
  whole, last, answered = path.read_bytes(), len(pack(Journal(path).records[-1])), replies()
  for left in range(last + 1):
    path.write_bytes(whole[: len(whole) - last + left])
    cloud = FaultyCloud()  # a new server, which knows nothing of the stream
    with Journal(path) as journal:
      edge = ToyEdge(cloud.reliable(handshake(), journal=journal), 8)
      edge.run()
    assert (edge.replies, edge.tokens) == undisturbed(calls=8)
    assert replies() == answered and path.read_bytes()[: len(whole) - last] == whole[: len(whole) - last]
    assert cloud.attempts == (1 if left == last else 4), "closing; else also the call, its resume, and the call again"


def test_a_journal_of_another_decode_is_refused(tmp_path):
  with Journal(tmp_path / "run.jrn") as journal:
    ToyEdge(FaultyCloud().reliable(handshake(), journal=journal), 3).run()
  for other in (handshake(1), handshake(temperature=0.7), handshake(lazy=True)):
    with Journal(tmp_path / "run.jrn") as journal, pytest.raises(ValueError, match="the same decode"):
      ToyEdge(FaultyCloud().reliable(other, journal=journal), 3).run()


def test_an_edge_that_asks_something_else_is_refused(tmp_path):
  """Replies to the drafts of another edge would be taken for replies to its own, and give tokens of neither."""

  class Other(ToyEdge):
    def _guesses(self):
      return (*super()._guesses()[:-1], 0 if self.gained[2:] else super()._guesses()[-1])

  with Journal(tmp_path / "run.jrn") as journal:
    ToyEdge(FaultyCloud().reliable(handshake(), journal=journal), 8).run()
    kept = list(journal.records)
  with Journal(tmp_path / "run.jrn") as journal:
    edge = Other(FaultyCloud().reliable(handshake(), journal=journal), 8)
    with pytest.raises(ValueError, match="another draft or option"):
      edge.run()
    assert len(edge.gained) >= 3 and journal.records == kept, "it is told at the first call that differs"


def test_a_journal_of_something_else_is_refused(tmp_path):
  with Journal(tmp_path / "trials.jrn") as journal:
    journal.append(b'{"seed": 3}')
  with Journal(tmp_path / "trials.jrn") as journal, pytest.raises(ValueError, match="one of something else"):
    ToyEdge(FaultyCloud().reliable(handshake(), journal=journal), 3).run()


def test_two_edges_with_one_stream_id():
  """They open the same stream, but the calls of one differ: it gets an error, and the other continues."""
  cloud = FaultyCloud()
  first, second = (ToyEdge(cloud.reliable(handshake())) for _ in range(2))
  second._guesses = lambda: ()
  first.reliable.close = lambda: None
  first.calls = 1
  first.run()
  with pytest.raises(CloudError) as caught:
    second.run()
  assert caught.value.status is Status.FAILED_PRECONDITION
  other = ToyEdge(cloud.reliable(handshake(condition=(5,))))
  with pytest.raises(CloudError) as caught:
    other.run()
  assert caught.value.status is Status.ALREADY_EXISTS


def test_a_server_of_other_numerics(caplog):
  """A resume at one is a warning; an edge that needs the same numerics is refused with both digests."""
  engines = iter([ToyEngine(), ToyEngine(numerics=b"o" * 32)])
  cloud = FaultyCloud({4: Fault.KILL_BEFORE}, make_engine=lambda: next(engines))
  ToyEdge(cloud.reliable(handshake()), 8).run()
  assert "other numerics" in caplog.text
  engines = iter([ToyEngine(), ToyEngine(numerics=b"o" * 32)])
  cloud = FaultyCloud({4: Fault.KILL_BEFORE}, make_engine=lambda: next(engines))
  with pytest.raises(CloudError, match=f"numerics {'6e' * 32}.*{'6f' * 32}") as caught:
    ToyEdge(cloud.reliable(handshake(need_numerics=b"n" * 32)), 8).run()
  assert caught.value.status is Status.FAILED_PRECONDITION


def test_a_wire_that_stays_cut_is_given_up():
  """After a minute, with the last error; about once a second."""
  cloud = FaultyCloud({place: Fault.RESET_BEFORE for place in range(5, 200)})
  with pytest.raises(CloudError, match="cut"):
    ToyEdge(cloud.reliable(handshake())).run()
  assert 58 < cloud.clock() < 62 and 50 < cloud.attempts < 70


def test_a_wire_without_replies_is_given_up():
  """After six attempts, with the last error: a server may be at work on each of them."""
  cloud = FaultyCloud({place: Fault.DROP_REQUEST for place in range(5, 100)})
  with pytest.raises(CloudError, match="no reply in time"):
    ToyEdge(cloud.reliable(handshake())).run()
  assert cloud.attempts == 5 + 6


def test_a_server_that_is_away_for_some_seconds():
  """Behind a proxy that answers for it: the edge retries until it is back, and no stream is lost."""
  cloud, reliable = decode({place: Fault.RESET_BEFORE for place in range(5, 20)})
  assert reliable.retries == 15 and reliable.resumes == 0 and 8 < cloud.clock() < 20
  assert set(cloud.server.engine.runs.values()) == {1}


@pytest.mark.parametrize("quota", [Quota(streams=1), Quota()])
def test_an_edge_waits_for_a_free_stream(monkeypatch, quota):
  """For longer than six attempts would take, whether its token or the server has none left."""
  monkeypatch.setattr(faulty, "TENANT", Tenant("alice", quota))
  cloud = FaultyCloud()
  cloud.server.dispatcher = Dispatcher(Limits(2 if quota.streams == 1 else 1), jitter=lambda: 0.5)
  other = ToyEdge(cloud.reliable(handshake(1)), 3)
  steps = other.steps()
  next(steps)

  def sleep(seconds):
    cloud.clock.sleep(seconds)
    if cloud.clock() > 20:
      next(steps, None)

  settings = dataclasses.replace(cloud.retry_settings, sleep=sleep)
  edge = ToyEdge(ReliableStream(cloud, handshake(), settings=settings))
  edge.run()
  assert (edge.replies, edge.tokens) == undisturbed() and 15 < edge.reliable.retries < 25 and cloud.clock() < 30


def test_a_stream_that_was_forgotten_is_resumed():
  """The server closes idle streams, and the edge resumes with its tokens."""
  cloud = FaultyCloud()
  edge = ToyEdge(cloud.reliable(handshake()))
  guesses = edge._guesses

  def slow():
    if len(edge.gained) in (7, 30):
      cloud.clock.sleep(1000.0)
      cloud.server.dispatcher.take(cloud.clock())
    return guesses()

  edge._guesses = slow
  edge.run()
  assert (edge.replies, edge.tokens) == undisturbed() and edge.reliable.resumes == 2


def test_a_stream_of_another_tenant_is_not_found():
  cloud = FaultyCloud()
  with pytest.raises(CloudError) as caught:
    call = VerifyCall(handshake().stream, Position(1, 0), unframe(frame(CIAR, 1, 1, 0, b""), 64), 1, Tenant("bob"))
    cloud.server.dispatcher.verify(call, now=cloud.clock())
  assert caught.value.status is Status.NOT_FOUND
