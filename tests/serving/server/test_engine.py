"""The engine: a row's tokens, frames and cache are the same alone, in a crowd, in every slot, and after it was away."""

import functools

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.serving.server.engine import EngineFailed
from jaxspec.serving.server.engine_interface import NoRoom, NotFinite, StreamExists, StreamLost
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.handshake import Resume
from tests.serving.edge.pairs import CLASSES, MAX_LEN, rows_of
from tests.serving.server.crowds import decode, serve

pytestmark = (
  pytest.mark.slow
)  # a server of transformers takes a minute to compile; tests/serving/edge/test_edge_stream.py has a short one
NAMES = ("transformer:sqs-lazy", "transformer:ciar-exact", "transformer:plain")
EDGES = 12


@functools.cache
def served():
  return serve(*NAMES)


def edges_of(number=EDGES, **options):
  """Edges of all profiles in turn."""
  return [served().edge(index % len(NAMES), **options) for index in range(number)]


@functools.cache
def alone():
  """Every row decoded alone."""
  found = [decode(served(), [edge], rows=[row]) for row, edge in enumerate(edges_of())]
  return [tuple(part[0] for part in rows) for rows in found]


def assert_as_alone(rows):
  for row, (tokens, frames, cache) in enumerate(alone()):
    np.testing.assert_array_equal(rows.tokens[row], tokens)
    assert rows.frames[row] == frames and rows.caches[row] == cache


def test_tokens_are_those_of_the_loop():
  """Every method, each row in the first slot of an empty engine."""
  keys, condition = rows_of(EDGES)
  for profile, case in enumerate(served().cases):
    out = jaxspec.speculate(case.params, keys, condition, max_len=MAX_LEN, **case.parts())
    for row in range(profile, EDGES, len(NAMES)):
      np.testing.assert_array_equal(alone()[row][0], np.asarray(out.tokens[row]))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_crowd_changes_no_bit(seed):
  """12 streams on 8 slots; a random half of those that could call do."""
  assert_as_alone(decode(served(), edges_of(), generator=np.random.default_rng(seed)))
  assert served().engine._streams.num_free == 8 and len(served().engine._streams) == 0


def test_long_calls_are_read_in_several_passes():
  """A gated edge that was silent for long: forced passes come before the one that is judged; widths go with the calls."""
  markov, fed = serve("markov:ciar-exact", widths=(8, 16), max_len=48), set()

  def before_call(engine, name, stream):
    fed.update(stream.resume().fed[1:])

  edges = [markov.edge(0, max_len=48) for _ in range(6)]
  rows = decode(markov, edges, generator=np.random.default_rng(0), before_call=before_call)
  keys, condition = rows_of(6)
  case = markov.cases[0]
  out = jaxspec.speculate(case.params, keys, condition, max_len=48, **case.parts())
  np.testing.assert_array_equal(rows.tokens, out.tokens)
  assert min(fed) <= 8 and any(8 < size <= 16 for size in fed)


@pytest.mark.parametrize("slot", [1, 4, 7])
def test_a_slot_changes_no_bit(slot):
  engine = served().engine
  others = [bytes([200 + index]) * 16 for index in range(slot)]
  for other in others:
    engine.open(other, served().handshake(5))
    engine.step(0.0)
  assert engine._streams.num_free == 8 - slot
  for row in range(len(NAMES)):
    rows = decode(served(), [edges_of()[row]], rows=[row])
    tokens, frames, cache = alone()[row]
    np.testing.assert_array_equal(rows.tokens[0], tokens)
    assert rows.frames[0] == frames and rows.caches[0] == cache
  for other in others:
    engine.close(other)


def test_an_evicted_stream_comes_back_with_the_same_bits():
  """Evicted before every third call, in a crowd."""
  generator = np.random.default_rng(2)

  def before_call(engine, name, stream):
    if stream.request.part == 0 and generator.random() < 0.3:
      engine.evict(name)
      assert engine._streams[name].slot is None

  assert_as_alone(decode(served(), edges_of(), generator=generator, before_call=before_call))


@pytest.mark.parametrize("in_chunks", [True, False])
def test_a_forgotten_stream_is_resumed_with_the_same_bits(in_chunks, monkeypatch):
  """Opened again from its tokens before every third call; replayed in the fewest passes, and in those of its calls."""
  assert served().engine.replay_in_chunks
  monkeypatch.setattr(served().engine, "replay_in_chunks", in_chunks)
  generator, resumes = np.random.default_rng(3), []
  for row, edge in enumerate(edges_of()):
    handshake = served().handshake(row, row % len(NAMES))

    def before_call(engine, name, stream, handshake=handshake):
      if stream.request.part == 0 and generator.random() < 0.3:
        resumes.append(stream.resume())
        engine.close(name)
        engine.open(name, handshake, resumes[-1])
        assert [stream for stream, _ in engine.step(0.0)] == [name]

    rows = decode(served(), [edge], rows=[row], before_call=before_call)
    tokens, frames, cache = alone()[row]
    np.testing.assert_array_equal(rows.tokens[0], tokens)
    assert rows.frames[0] == frames and rows.caches[0] == cache
  assert sum(resume.next_seq > 1 for resume in resumes) > 5


def test_streams_that_are_not_heard_of():
  """They lose their slot, get it back at their next call, and are closed later."""
  markov = serve("markov:sqs-lazy", idle_s=10.0, forget_s=100.0)
  engine, start = markov.engine, markov.start(markov.edge(0), 1)
  name = b"n" * 16
  engine.open(name, start.handshake)
  ((_, frame),) = engine.step(0.0)
  stream = start.receive(frame)
  assert engine.step(9.0) == [] and engine._streams[name].slot is not None
  assert engine.step(10.0) == [] and engine._streams[name].slot is None and engine._streams.num_free == 8
  engine.submit(name, *stream.request[1:])
  answers = engine.step(11.0) + engine.step(11.0) + engine.step(11.0)
  assert len(answers) == 1 and engine._streams[name].slot is not None
  stream.receive(answers[0][1])
  while stream.request.part == 0:
    engine.submit(name, *stream.request[1:])
    stream.receive(engine.step(12.0)[0][1])
  engine.step(30.0)  # the target's distribution is not cached for this long
  assert engine._streams[name].slot is None
  with pytest.raises(StreamLost):
    engine.submit(name, *stream.request[1:])
  assert not engine.knows(name)
  engine.open(name, start.handshake, stream.resume())
  assert engine.step(31.0) and engine.step(132.0) == [] and not engine.knows(name)
  with pytest.raises(StreamLost):
    engine.submit(name, *stream.request[1:])
  engine.close(name)


def test_refusals_change_nothing():
  markov = serve("markov:sqs-trimmed", "markov:ciar-exact")
  engine, start, name = markov.engine, markov.start(markov.edge(0), 1), b"n" * 16
  handshake = start.handshake
  for hostile in (
    dict(profile=2), dict(max_len=17), dict(max_len=0), dict(key=b"short"), dict(end_ids=(1,) * 9), dict(condition=-1),
    dict(condition=CLASSES), dict(condition=(1, 2)), dict(condition="two cats"),
  ):  # fmt: skip
    with pytest.raises(MessageError):
      engine.open(name, handshake._replace(**hostile))
  good = dict(next_seq=3, round=2, tokens=(1, 2, 3, 4), gained=(1, 2, 1), fed=(1, 3, 1))
  for more in (
    dict(tokens=(1, 2, 3)), dict(tokens=(1, 2, 3, 5)), dict(gained=(1, 1, 2), fed=(1, 1, 1)), dict(fed=(1, 9, 1)),
    dict(round=1), dict(round=99), dict(gained=(1, 3)), dict(gained=(2, 1, 1)), dict(next_seq=2), dict(next_seq=4),
    dict(next_seq=0, tokens=(), gained=(), fed=()),
  ):  # fmt: skip
    with pytest.raises(MessageError):
      engine.open(name, handshake, Resume(**(good | more)))
  assert not engine._streams and engine.step(0.0) == []
  engine.open(name, handshake)
  with pytest.raises(StreamExists):
    engine.open(name, handshake)
  with pytest.raises(MessageError, match="order"):
    engine.submit(name, 0, b"too early")
  stream = start.receive(engine.step(0.0)[0][1])
  request = stream.request
  for part, frame in ((0, b""), (0, request.frame[:-1] + b"x"), (1, request.frame), (2, request.frame)):
    with pytest.raises(MessageError):
      engine.submit(name, part, frame)
  engine.submit(name, *request[1:])
  with pytest.raises(MessageError, match="order"):
    engine.submit(name, *request[1:])
  stream.receive(engine.step(0.0)[0][1])
  assert stream.resume().next_seq == 2 and stream.request.part == 0
  for number in range(engine.max_known - 1):
    engine.open(number.to_bytes(16), handshake)
  with pytest.raises(NoRoom):
    engine.open(b"m" * 16, handshake)


def test_logits_that_are_no_numbers_end_their_stream_alone():
  """Their stream is forgotten; its neighbour in the same step is answered as if it were alone."""
  engine, broken = served().engine, b"b" * 16
  start = served().start(served().edge(0), 0)
  engine.open(broken, start.handshake)
  victim = start.receive(engine.step(0.0)[0][1])
  state = engine._streams[broken]
  nan = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf * np.nan, engine.cache_of(broken)[0])
  engine.table = engine.programs.insert(engine.table, nan, state.slot)
  start, name = served().start(served().edge(0), 3), b"g" * 16
  engine.open(name, start.handshake)
  frames = [engine.step(0.0)[0][1]]
  stream = start.receive(frames[0])
  engine.submit(broken, *victim.request[1:])
  engine.submit(name, *stream.request[1:])
  answers = dict(engine.step(0.0))
  assert isinstance(answers[broken], NotFinite) and not engine.knows(broken)
  assert [*frames, answers[name]] == alone()[3][1][:2]
  engine.close(name)
  assert_as_alone(decode(served(), edges_of()))  # the slot of the broken one is whole again


def test_a_failure_of_the_device_is_the_end(monkeypatch):
  markov = serve("markov:sqs-trimmed")
  engine, name = markov.engine, b"n" * 16
  engine.open(name, markov.handshake(0))

  def fail(*args):
    raise RuntimeError("out of memory")

  monkeypatch.setattr(type(engine.programs), "insert", fail)
  for _ in range(2):
    with pytest.raises(EngineFailed):
      engine.step(0.0)
  with pytest.raises(EngineFailed):
    engine.submit(name, 0, b"")
  with pytest.raises(EngineFailed):
    engine.open(b"m" * 16, markov.handshake(0))
