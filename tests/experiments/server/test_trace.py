"""Traces: recorded, written, read, and played against servers that forget, differ or stop."""

import json

import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.server.player import play
from experiments.server.recorder import Recorder
from experiments.server.trace import read_trace, read_traces, write_trace
from jaxspec.serving.wire.cloud import CloudError, Profile, Status
from tests.serving.edge.faulty import Clock, Fault, FaultyCloud
from tests.serving.edge.test_faults import undisturbed
from tests.serving.edge.toy_edge import ToyEdge, handshake
from tests.serving.edge.toy_engine import ToyEngine

CALLS, THINK_S = 12, 0.25


def recorded(number=0, *, lazy=False, schedule=None):
  """A trace of an edge with a pause before each call."""
  cloud = FaultyCloud(schedule)
  recorder = Recorder(cloud.clock)
  edge = ToyEdge(cloud.reliable(handshake(number, lazy=lazy), observer=recorder), CALLS)
  for _ in edge.steps():
    cloud.clock.sleep(THINK_S)
  assert edge.replies == undisturbed(number, CALLS, lazy)[0]
  return recorder.trace(cloud.description, len(edge.tokens)), recorder


def replay(trace, schedule=None, **kwargs):
  clock = Clock()
  cloud = FaultyCloud(schedule, clock=clock, **kwargs)
  return play(trace, cloud, settings=cloud.retry_settings), cloud


def untimed(trace):
  return trace._replace(calls=tuple(call._replace(think_s=0) for call in trace.calls))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_trace_has_what_crossed(lazy, tmp_path):
  trace, recorder = recorded(lazy=lazy)
  replies, tokens = undisturbed(0, CALLS, lazy)
  assert [trace.first, *(call.reply for call in trace.calls)] == replies and trace.num_tokens == len(tokens)
  whole = [call for call in trace.calls if not call.part]
  assert [call.think_s for call in whole] == pytest.approx([THINK_S] * CALLS)
  assert [call.think_s for call in trace.calls if call.part] == [0.0] * (len(trace.calls) - CALLS)
  assert trace.resume.tokens == tokens[: len(trace.resume.tokens)] and recorder.resumes == 0
  write_trace(tmp_path / "a.json", trace)
  assert read_trace(tmp_path / "a.json") == trace and read_traces(tmp_path) == [trace]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("fault", [None, Fault.KILL_BEFORE, Fault.DROP_REPLY])
def test_every_reply_is_the_recorded_one(lazy, fault):
  """With faults in the recording and in the replay."""
  trace, recorder = recorded(lazy=lazy, schedule={5: fault})
  assert untimed(trace) == untimed(recorded(lazy=lazy)[0])
  assert recorder.resumes == (fault is Fault.KILL_BEFORE) and (recorder.retries > 0) == (fault is not None)
  last = len(trace.calls)
  for place in range(last + 1):
    played, cloud = replay(trace, {place: fault})
    assert played.differing is None and played.num_tokens == trace.num_tokens and len(played.call_s) == last
    assert played.think_s == pytest.approx(CALLS * THINK_S)
    assert played.resumes == (fault is Fault.KILL_BEFORE and place > 0) and (played.retries > 0) == (fault is not None)
    assert not cloud.server.engine.streams


def test_another_reply_ends_it():
  trace, _ = recorded()
  at = 4
  other = trace.calls[at]._replace(reply=trace.calls[at].reply[:-1] + b"?")
  played, cloud = replay(trace._replace(calls=(*trace.calls[:at], other, *trace.calls[at + 1 :])))
  assert played.differing == other.seq and played.num_tokens == 0 and len(played.call_s) == at + 1
  assert not cloud.server.engine.streams and replay(trace._replace(first=b""))[0].differing == 0


def test_a_server_that_cannot_answer_it():
  trace, _ = recorded()
  with pytest.raises(ValueError, match="numerics .*6f6f6f.* where the trace has 6e6e6e"):
    replay(trace, make_engine=lambda: ToyEngine(numerics=b"o" * 32))
  with pytest.raises(ValueError, match="networks"):
    replay(trace._replace(handshake=trace.handshake._replace(model=b"x" * 32)))
  with pytest.raises(ValueError, match="we instead got one of method=eagle window=2"):
    replay(trace._replace(profile=Profile(0, "eagle", window=2)))
  with pytest.raises(CloudError) as caught:
    replay(trace, {number: Fault.RESET_BEFORE for number in range(3, 200)})
  assert caught.value.status is Status.UNAVAILABLE


def test_files_that_are_no_traces(tmp_path):
  trace, _ = recorded()
  path = tmp_path / "a.json"
  write_trace(path, trace)
  whole = path.read_text()
  for change, words in {
    "": "no JSON",
    "[]": "has no attribute",
    '{"trace": 2}': "version 2",
    whole[:-9]: "no JSON",
    whole.replace('"resume"', '"other"'): "no 'resume'",
    whole.replace('"think_s": 0', '"think_s": NaN, "x": 0', 1): "unexpected keyword",
    whole.replace('"gained": [1, ', '"gained": [2, '): "add up",
    whole.replace('"seq": 3', '"seq": 4'): "follow each other",
    whole.replace('"key": "', '"key": "00'): "another length",
    whole.replace('"first": "', '"first": "x'): "hexadecimal",
    whole.replace('"round": ', '"round": -'): "no count",
  }.items():
    path.write_text(change)
    with pytest.raises(ValueError, match=words) as caught:
      read_trace(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
  document = json.loads(whole)
  document["calls"][1]["think_s"] = -1
  path.write_text(json.dumps(document))
  with pytest.raises(ValueError, match="a time that is none"):
    read_trace(path)
  path.unlink()
  with pytest.raises(ValueError, match="none in it"):
    read_traces(tmp_path)
  with pytest.raises(ValueError, match="no folder"):
    read_traces(tmp_path / "nowhere")
  with pytest.raises(ValueError, match="No such file"):
    read_trace(path)


def test_a_stream_has_one_trace():
  """And none without an open stream."""
  cloud = FaultyCloud()
  recorder = Recorder(cloud.clock)
  with pytest.raises(ValueError, match="over a network"):
    recorder.trace(cloud.description, 3)
  ToyEdge(cloud.reliable(handshake(), observer=recorder), 2).run()
  assert len(recorder.trace(cloud.description, 3).calls) == 2
  with pytest.raises(ValueError, match="over a network"):
    recorder.trace(cloud.description, 3)
