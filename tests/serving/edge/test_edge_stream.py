"""One row over a cloud: the tokens of the fused loop, whatever the cloud forgets."""

import dataclasses
import functools
import threading
import time
import zlib

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.bit_costs import CODINGS
from jaxspec.core.state import Origin
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.edge.remote_decode import RemoteOptions, decode_over_cloud
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError, Profile, Status
from jaxspec.serving.wire.framing import FIRST, REPLY_BYTES, REQUEST, unframe
from tests.helpers import slow_but
from tests.serving.edge.pairs import CLASSES, MAX_LEN, assert_gated_traffic, assert_same, rows_of
from tests.serving.server.crowds import one_row, serve

ROWS = 4
NAMES = ("markov:sqs-lazy", "markov:sqs-trimmed", "markov:ciar-exact", "markov:ciar-greedy")
OTHERS = tuple(f"markov:sqs-{coding}" for coding in CODINGS if coding not in ("lazy", "trimmed")) + ("markov:sqs-block",)
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
# Every other length or prefix compiles another program of this method, so that tests share one.
PREFIXED = {"markov:ciar-exact": dict(max_len=11, end_token=(4, 3), target_prefix=3)}


@functools.cache
def served(names=NAMES):
  return serve(*names)


def found(name):
  """The server of a method, and the number of its profile there."""
  names = NAMES if name in NAMES else OTHERS
  return served(names), names.index(name)


def fused(name, params=None, **options):
  server, profile = found(name)
  case = server.cases[profile]
  keys, condition = rows_of(ROWS)
  return jaxspec.speculate(params or case.params, keys, condition, **case.parts(), **(dict(max_len=MAX_LEN) | options))


def over(cloud, name, remote=RemoteOptions(), **options):
  server, profile = found(name)
  edge = server.cases[profile].edge(**(dict(profile=profile) | options))
  return decode_over_cloud(edge, *rows_of(ROWS), cloud, remote)


class Recording:
  """A cloud that stores every frame in both directions."""

  def __init__(self, cloud):
    self.cloud, self.description = cloud, cloud.description
    self.up, self.down, self.resumes = [], [], 0

  def open(self, handshake, resume=None, *, timeout_s):
    self.resumes += resume is not None
    opened = self.cloud.open(handshake, resume, timeout_s=timeout_s)
    self.down.append(opened.frame)
    return opened

  def verify(self, stream, seq, part, frame, *, timeout_s):
    reply = self.cloud.verify(stream, seq, part, frame, timeout_s=timeout_s)
    self.up.append(frame)
    self.down.append(reply)
    return reply

  def close(self, stream, *, timeout_s):
    self.cloud.close(stream, timeout_s=timeout_s)


class Forgetful(Recording):
  """A cloud that forgets a stream before about a third of its calls, and sometimes twice in a row."""

  def __init__(self, cloud, seed):
    super().__init__(cloud)
    self.generator, self.forgotten = np.random.default_rng(seed), {0: 0, 1: 0}

  def verify(self, stream, seq, part, frame, *, timeout_s):
    if self.generator.random() < 0.3:
      self.cloud.close(stream)
      self.forgotten[part] += 1
    return super().verify(stream, seq, part, frame, timeout_s=timeout_s)


class Pausing(Recording):
  """A cloud whose edge is silent for 100 seconds before about a third of its calls; others keep the engine going."""

  def __init__(self, engine, seed):
    self.now, self.generator, self.pauses = time.monotonic(), np.random.default_rng(seed), {0: 0, 1: 0}
    super().__init__(LocalCloud(engine, clock=lambda: self.now))

  def verify(self, stream, seq, part, frame, *, timeout_s):
    if self.generator.random() < 0.3:
      self.now += 100.0
      self.cloud.close(b"of another edge")
      self.pauses[part] += 1
    return super().verify(stream, seq, part, frame, timeout_s=timeout_s)


class Dying(Recording):
  """A cloud whose edge ends before one of its calls."""

  def __init__(self, cloud, calls):
    super().__init__(cloud)
    self.calls = calls

  def verify(self, *args, **kwargs):
    if len(self.up) == self.calls:
      raise KeyboardInterrupt
    return super().verify(*args, **kwargs)


@pytest.mark.parametrize("name", [NAMES[0], *map(slow, (*NAMES[1:], *OTHERS))])
def test_every_method_over_a_cloud(name):
  """Tokens, origins, counters and reports of the loop; what crossed are the frames of its rows alone."""
  out, traffic = over(LocalCloud(found(name)[0].engine), name)
  assert_same(out, fused(name))
  assert (traffic.exchanges > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer:sqs-lazy", "transformer:ciar-exact"])
def test_every_method_of_transformers_over_a_cloud(name):
  """With a prefix of the target, and rows that end at a token. The test above has every coding and greedy edges;
  tests/drafters has interval features over a cloud, tests/serving/server plain decoding."""
  server, kwargs = serve(name), dict(max_len=MAX_LEN, target_prefix=3, end_token=2)
  case = server.cases[0]
  out, traffic = decode_over_cloud(case.edge(**kwargs), *rows_of(12), LocalCloud(server.engine))
  fused = jaxspec.speculate(case.params, *rows_of(12), **case.parts(), **kwargs)
  assert_same(out, fused)
  if name == "transformer:ciar-exact":
    assert_gated_traffic(fused, traffic)
  assert len(np.unique(out.tokens, axis=0)) > 4


def test_the_profile_is_found_and_the_bytes_of_a_transport_are_counted():
  cloud, (wanted, traffic) = LocalCloud(found(NAMES[1])[0].engine), over(LocalCloud(found(NAMES[1])[0].engine), NAMES[1])
  out, own = over(cloud, NAMES[1], profile=None)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)
  jax.tree.map(np.testing.assert_array_equal, own, traffic)
  assert own.transport_bytes.tolist() == [0, 0]
  cloud.uplink_bytes, cloud.downlink_bytes, count = 5, 7, cloud.verify

  def counting(*args, **options):
    cloud.uplink_bytes += 2
    cloud.downlink_bytes += 1
    return count(*args, **options)

  cloud.verify = counting
  _, own = over(cloud, NAMES[1])
  assert own.transport_bytes.tolist() == [2 * own.exchanges.sum(), own.exchanges.sum()]


@pytest.mark.parametrize("name", ["markov:sqs-lazy", slow("markov:ciar-greedy")])
def test_a_cloud_that_forgets(name):
  """Also between the two parts of a call."""
  cloud = Forgetful(LocalCloud(served().engine), 0)
  assert_same(over(cloud, name, RemoteOptions(policy=Policy(attempts=9)))[0], fused(name))
  assert cloud.forgotten[0] > 3 and (cloud.forgotten[1] > 0) == (name == "markov:sqs-lazy")
  cloud.generator = type("Always", (), {"random": lambda self: 0.0})()
  with pytest.raises(CloudError) as caught:
    over(cloud, name)
  assert caught.value.status is Status.NOT_FOUND and len(served().engine._streams) == 0


@pytest.mark.parametrize("name", ["markov:sqs-lazy", slow("markov:ciar-exact")])
def test_a_stream_that_lost_its_slot(name, monkeypatch):
  """It comes back at its next call; it is resumed where the engine had to drop what a second part belongs to."""
  engine = served().engine
  monkeypatch.setattr(engine, "_settings", dataclasses.replace(engine._settings, idle_s=50.0))
  cloud = Pausing(served().engine, 0)
  assert_same(over(cloud, name)[0], fused(name))
  assert cloud.pauses[0] > 3 and cloud.resumes == cloud.pauses[1] and (cloud.resumes > 0) == (name == "markov:sqs-lazy")


@pytest.mark.slow
@pytest.mark.parametrize("name", [slow("markov:sqs-trimmed"), "markov:ciar-exact"])
def test_prefixes_ends_and_sampling_are_those_of_the_stream(name):
  """The engine was compiled for none of them."""
  params = served().cases[NAMES.index(name)].params
  warmer = params._replace(target=params.target._replace(sampling=jaxspec.sampling_params(0.5)))
  options = PREFIXED["markov:ciar-exact"]
  out, _ = over(LocalCloud(served().engine), name, temperature=0.5, **options)
  assert_same(out, fused(name, warmer, **options))
  assert len(set(np.asarray(out.lengths).tolist())) > 1


@pytest.mark.slow
def test_threads_share_a_cloud():
  """Eight edges of two methods at once; each has the tokens that it has alone."""
  cloud, got = LocalCloud(served().engine), {}
  options = {profile: PREFIXED.get(NAMES[profile], {}) for profile in (0, 2)}
  wanted = {profile: np.asarray(fused(NAMES[profile], **options[profile]).tokens) for profile in options}
  edges = {(profile, row): served().edge(profile, **options[profile]) for profile in wanted for row in range(ROWS)}

  def run(at, edge):
    got[at] = np.asarray(edge.run(*reversed(one_row(at[1])), cloud)[0].tokens[0])

  threads = [threading.Thread(target=run, args=item) for item in edges.items()]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(got) == 2 * ROWS
  for (profile, row), tokens in got.items():
    np.testing.assert_array_equal(tokens, wanted[profile][row])
  assert len(served().engine._streams) == 0


@pytest.mark.slow
def test_a_socket_changes_nothing():
  """An engine behind a socket: tokens of the loop, and the frames of a cloud in this process, byte for byte."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  from jaxspec.serving.edge.connection import connect
  from jaxspec.serving.server.server import Server

  local, kept = LocalCloud(served().engine), {}
  for name in (NAMES[0], NAMES[2]):
    kept[name] = Recording(local)
    over(kept[name], name, **PREFIXED.get(name, {}))
  with Server(served().engine) as server:
    remote = connect(server.address)
    assert remote.description == local.description
    for name, other in kept.items():
      cloud = Recording(remote)
      assert_same(over(cloud, name, **PREFIXED.get(name, {}))[0], fused(name, **PREFIXED.get(name, {})))
      assert (cloud.up, cloud.down) == (other.up, other.down)
    lazy, gated = remote.description.profiles[0], remote.description.profiles[2]
    assert (lazy.method, lazy.coding, gated.method, gated.rule) == ("sqs", "lazy", "ciar", "exact")
    assert remote.transport_bytes > 0
    with pytest.raises(CloudError) as caught:
      remote.open(served().handshake(0)._replace(condition=CLASSES), timeout_s=10.0)
    assert caught.value.status is Status.INVALID_ARGUMENT and "class" in caught.value.detail
    remote.hang_up()
  assert len(served().engine._streams) == 0


@pytest.mark.slow
def test_what_edges_are_told():
  """All fields that must agree at both ends; no frame of an edge is longer than declared."""
  lazy, trimmed, exact, greedy = served().engine.profiles
  assert lazy == Profile(0, "sqs", "exact", 3, "lazy", 7, 3, max_frame=lazy.max_frame)
  assert trimmed == Profile(1, "sqs", "exact", 3, "trimmed", 7, 3, max_frame=trimmed.max_frame)
  assert exact == Profile(2, "ciar", "exact", 3, "paper", 7, 3, max_frame=exact.max_frame)
  assert greedy == Profile(3, "ciar", "greedy", 3, max_frame=greedy.max_frame)
  for name in (NAMES[0], NAMES[2]):
    cloud = Recording(LocalCloud(served().engine))
    over(cloud, name, **PREFIXED.get(name, {}))
    assert max(map(len, cloud.up)) <= served().engine.profiles[NAMES.index(name)].max_frame


def test_an_edge_that_was_killed_goes_on_from_its_journal(tmp_path):
  """Before any of its calls, between the two parts of one too; answered calls are not repeated."""
  pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  cloud, wanted = Recording(LocalCloud(served().engine)), np.asarray(fused(NAMES[0]).tokens[1])
  run = lambda cloud, **options: served().edge(0).run(*reversed(one_row(1)), cloud, **options)[0].tokens[0]
  np.testing.assert_array_equal(run(cloud), wanted)
  for calls in range(len(cloud.up)):
    path, dying, second = tmp_path / f"{calls}.jrn", Dying(cloud.cloud, calls), Recording(cloud.cloud)
    with Journal(path) as journal, pytest.raises(KeyboardInterrupt):
      run(dying, journal=journal)
    with Journal(path) as journal:
      np.testing.assert_array_equal(run(second, journal=journal), wanted)
    assert dying.up + second.up == cloud.up and dying.down + second.down == cloud.down
  with Journal(path) as journal, pytest.raises(ValueError, match="one row"):
    over(cloud, NAMES[0], RemoteOptions(journal=journal))


OPTIONS = {"markov:sqs-lazy": dict(target_prefix=2, end_token=4), "markov:ciar-greedy": dict(end_token=(4, 9))}


@functools.cache
def crossed(name, row):
  """The frames of a row both ways, its result and its traffic."""
  server, profile = found(name)
  cloud = Recording(LocalCloud(server.engine))
  out, traffic = server.edge(profile, **OPTIONS[name]).run(*reversed(one_row(row)), cloud)
  return cloud.up, cloud.down, out, traffic


def flipped(data, position=-1):
  position %= len(data)
  return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def refused(call, *args):
  with pytest.raises(MessageError):
    call(*args)


def longest(name):
  """The row of most calls."""
  return max(range(ROWS), key=lambda row: len(crossed(name, row)[0]))


@pytest.mark.parametrize("name", slow_but(OPTIONS, ["markov:sqs-lazy"]))
def test_each_fault_is_an_error_and_changes_nothing(name):
  """At every call a damaged, doubled or late frame, both ways: afterwards the row goes on as if undisturbed."""
  server, profile = found(name)
  row = longest(name)
  up, down, undisturbed, traffic = crossed(name, row)
  start, cloud, engine = server.start(server.edge(profile, **OPTIONS[name]), row), LocalCloud(server.engine), server.engine
  handshake, stream = start.handshake, None
  reply, calls = cloud.open(handshake).frame, 0
  while True:
    assert reply == down[calls]
    receive, request = (start, None) if stream is None else (stream, stream.request)
    for damaged in (flipped(reply), flipped(reply, 9), reply[:-1], reply + b"\0", b""):
      refused(receive.receive, damaged)
    if stream is None:
      stream = start.receive(reply)
    else:
      refused(stream.receive, down[calls - 1])
      assert stream.request == request
      stream.receive(reply)
    if (request := stream.request) is None:
      break
    assert request.frame == up[calls]
    for damaged in (flipped(request.frame), flipped(request.frame, 9), request.frame[:-1], request.frame + b"\0", b""):
      refused(engine.submit, handshake.stream, request.part, damaged)
    if calls:
      refused(engine.submit, handshake.stream, request.part, up[calls - 1])
    reply, calls = cloud.verify(handshake.stream, *request), calls + 1
  cloud.close(handshake.stream)
  assert calls == len(up) > 1 and len(engine._streams) == 0
  out, again = stream.outcome()
  assert_same(out, undisturbed)
  jax.tree.map(np.testing.assert_array_equal, again, traffic)
  with pytest.raises(ValueError, match="open stream"):
    stream.receive(reply)


@pytest.mark.parametrize("name", slow_but(OPTIONS, ["markov:sqs-lazy"]))
def test_what_crosses_is_counted(name):
  """Calls are those of rounds that need the cloud; a frame of token 0 counts where the edge took it."""
  requests = silent = 0
  for row in range(ROWS):
    up, down, out, traffic = crossed(name, row)
    first = int(out.origin[0, 0] == Origin.FIRST)
    assert traffic.exchanges == len(up) and traffic.uplink_bytes == sum(map(len, up))
    assert traffic.downlink_bytes == sum(map(len, down[1 - first :])) and not traffic.transport_bytes.any()
    answers = [unframe(data, REPLY_BYTES).kind for data in down[1:]]
    requests += answers.count(REQUEST)
    calls = int(out.counters.target_calls[0]) - first
    assert len(up) - answers.count(REQUEST) == calls and down[0][3] == FIRST
    silent += int(out.counters.rounds[0]) - calls
  assert (silent > 0) == (name == "markov:ciar-greedy")
  assert (requests > 0) == (name == "markov:sqs-lazy")


def test_a_round_computes_four_checksums(monkeypatch):
  """Each frame's is written once and checked once."""
  server, profile = found(NAMES[1])
  start, cloud, computed, crc32 = server.start(server.edge(profile), 1), LocalCloud(server.engine), [], zlib.crc32
  reliable = ReliableStream(cloud, start.handshake)
  stream = start.receive(reliable.open())
  monkeypatch.setattr(zlib, "crc32", lambda data: computed.append(data) or crc32(data))
  stream.receive(reliable.verify(stream.request.frame, stream.resume))
  assert stream.request is not None and len(computed) == 4
  reliable.close()


@pytest.mark.slow
def test_an_open_gate_calls_nobody():
  server, profile = found("markov:ciar-greedy")
  edge = server.edge(profile)
  edge = dataclasses.replace(edge, params=edge.params._replace(gate=np.float32(np.inf)))
  out, traffic = decode_over_cloud(edge, *rows_of(ROWS), LocalCloud(server.engine))
  assert not traffic.exchanges.any() and not traffic.downlink_bytes.any() and not traffic.coded_bits.any()
  assert not np.asarray(out.counters.target_calls).any()


def test_a_reply_must_be_that_of_its_request():
  """Coding lazy: the second reply accepts what the request said, and is none itself."""
  server, profile = found("markov:sqs-lazy")
  row = next(row for row in range(ROWS) if REQUEST in kinds_of(row))
  start = server.start(server.edge(profile, **OPTIONS["markov:sqs-lazy"]), row)
  up, down, *_ = crossed("markov:sqs-lazy", row)
  at = kinds_of(row).index(REQUEST)
  stream = start.receive(down[0])
  for reply in down[1 : at + 1]:
    stream.receive(reply)
  request, asked, codec = stream.request, unframe(down[at], REPLY_BYTES), server.cases[profile].codec
  assert request.part == 1 and request.frame == up[at]
  for hostile in (codec.encode_reply(asked.round, asked.number + 1, 0), down[at], codec.encode_reply(asked.round + 1, 0, 0)):
    refused(stream.receive, hostile)
  assert stream.request == request
  stream.receive(down[at + 1])
  assert stream.request is None or stream.request.frame == up[at + 1]


def kinds_of(row):
  return [unframe(data, REPLY_BYTES).kind for data in crossed("markov:sqs-lazy", row)[1]]


def test_parts_that_do_not_go_together():
  sqs, ciar = (served().cases[NAMES.index(name)] for name in ("markov:sqs-lazy", "markov:ciar-greedy"))
  edge = lambda case, codec: Edge(case.params.draft, case.drafter, codec, max_len=4)
  with pytest.raises(ValueError, match="in every round"):
    edge(ciar, sqs.codec)
  with pytest.raises(ValueError, match="accept tokens locally"):
    edge(sqs, ciar.codec)
  for bad in (dict(target_prefix=-1), dict(max_len=0), dict(end_token=tuple(range(9)))):
    with pytest.raises(ValueError, match="we instead got"):
      served().edge(0, **bad)


def test_what_an_edge_refuses():
  edge, model = served().edge(0), served().engine.model
  with pytest.raises(ValueError, match="one row"):
    edge.open(rows_of(2)[1], jax.random.key(0), model=model)
  with pytest.raises(ValueError, match="a caption for each"):
    over(LocalCloud(served().engine), NAMES[0], RemoteOptions(["two cats"]))
  with pytest.raises(MessageError):
    served().start(edge, 0).receive(b"no frame")
