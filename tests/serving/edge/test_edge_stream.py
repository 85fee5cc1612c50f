"""One row over a cloud: the tokens of the fused loop, whatever the cloud forgets."""

import functools
import threading
import time

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.bits import CODINGS
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.link_decode import decode_over_link
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError, Profile, Status
from tests.serving.edge.pairs import CLASSES, MAX_LEN, assert_same, rows_of
from tests.serving.server.crowds import one_row, serve

ROWS = 4
NAMES = ("markov:sqs-lazy", "markov:sqs-trimmed", "markov:ciar-exact", "markov:ciar-greedy")
OTHERS = tuple(f"markov:sqs-{coding}" for coding in CODINGS if coding not in ("lazy", "trimmed"))
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


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


def over(cloud, name, **options):
  server, profile = found(name)
  case = server.cases[profile]
  keys, condition = rows_of(ROWS)
  options = dict(max_len=MAX_LEN, profile=profile) | options
  return decode_over_cloud(case.params.draft, keys, condition, cloud=cloud, drafter=case.drafter, wire=case.wire, **options)


class Recording:
  """A cloud that keeps every frame that went up or came down."""

  def __init__(self, cloud):
    self.cloud, self.description = cloud, cloud.description
    self.up, self.down, self.resumes = [], [], 0

  def open(self, opening, resume=None, *, timeout_s):
    self.resumes += resume is not None
    opened = self.cloud.open(opening, resume, timeout_s=timeout_s)
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


@pytest.mark.parametrize("name", [NAMES[0], slow(NAMES[1]), NAMES[2], *map(slow, (NAMES[3], *OTHERS))])
def test_every_method_over_a_cloud(name):
  """Tokens, origins, counters and reports of the loop; what crossed are the frames of its rows alone."""
  out, traffic = over(LocalCloud(found(name)[0].engine), name)
  assert_same(out, fused(name))
  assert (traffic.exchanges > 0).all() and traffic.envelope_bytes == 0 == traffic.opening_bytes


def test_decode_over_link_takes_a_cloud():
  """The profile is found; a cloud that counts its bytes has them in the traffic."""
  server, profile = found(NAMES[1])
  case, cloud = server.cases[profile], LocalCloud(server.engine)
  kwargs = dict(drafter=case.drafter, codec=case.wire.codec, max_len=MAX_LEN, cloud=cloud)
  (wanted, traffic), (out, own) = over(cloud, NAMES[1]), decode_over_link(case.params, *rows_of(ROWS), **kwargs)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)
  jax.tree.map(np.testing.assert_array_equal, own, traffic)
  assert own.transport_bytes.tolist() == [0, 0]
  cloud.uplink_bytes, cloud.downlink_bytes, count = 5, 7, cloud.verify

  def counting(*args, **options):
    cloud.uplink_bytes += 2
    cloud.downlink_bytes += 1
    return count(*args, **options)

  cloud.verify = counting
  _, own = decode_over_link(case.params, *rows_of(ROWS), **kwargs)
  assert own.transport_bytes.tolist() == [2 * own.exchanges.sum(), own.exchanges.sum()]


@pytest.mark.parametrize("name", ["markov:sqs-lazy", "markov:ciar-greedy"])
def test_a_cloud_that_forgets(name):
  """Also between the two parts of a call."""
  cloud = Forgetful(LocalCloud(served().engine), 0)
  assert_same(over(cloud, name, policy=Policy(attempts=9))[0], fused(name))
  assert cloud.forgotten[0] > 3 and (cloud.forgotten[1] > 0) == (name == "markov:sqs-lazy")
  cloud.generator = type("Always", (), {"random": lambda self: 0.0})()
  with pytest.raises(CloudError) as caught:
    over(cloud, name)
  assert caught.value.status is Status.NOT_FOUND and len(served().engine._streams) == 0


@pytest.mark.parametrize("name", ["markov:sqs-lazy", "markov:ciar-exact"])
def test_a_stream_that_lost_its_slot(name, monkeypatch):
  """It comes back at its next call; it is resumed where the engine had to drop what a second part belongs to."""
  monkeypatch.setattr(served().engine, "_idle_s", 50.0)
  cloud = Pausing(served().engine, 0)
  assert_same(over(cloud, name)[0], fused(name))
  assert cloud.pauses[0] > 3 and cloud.resumes == cloud.pauses[1] and (cloud.resumes > 0) == (name == "markov:sqs-lazy")


@pytest.mark.parametrize("name", [slow("markov:sqs-trimmed"), "markov:ciar-exact"])
def test_prefixes_ends_and_sampling_are_those_of_the_stream(name):
  """The engine was compiled for none of them."""
  params = served().cases[NAMES.index(name)].params
  warmer = params._replace(target=params.target._replace(sampling=jaxspec.sampling_params(0.5)))
  options = dict(max_len=11, end_token=(4, 3), target_prefix=3)
  out, _ = over(LocalCloud(served().engine), name, temperature=0.5, **options)
  assert_same(out, fused(name, warmer, **options))
  assert len(set(np.asarray(out.lengths).tolist())) > 1


def test_threads_share_a_cloud():
  """Eight edges of two methods at once; each has the tokens that it has alone."""
  cloud, got = LocalCloud(served().engine), {}
  wanted = {profile: np.asarray(fused(NAMES[profile]).tokens) for profile in (0, 2)}
  edges = {(profile, row): served().edge(profile) for profile in wanted for row in range(ROWS)}

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


def test_a_socket_changes_nothing():
  """An engine behind a socket: tokens of the loop, and the frames of a cloud in this process, byte for byte."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  from jaxspec.serving.edge.connection import connect
  from jaxspec.serving.server.server import Server

  local, kept = LocalCloud(served().engine), {}
  for name in (NAMES[0], NAMES[2]):
    kept[name] = Recording(local)
    over(kept[name], name)
  with Server(served().engine) as server:
    remote = connect(server.address)
    assert remote.description == local.description
    for name, other in kept.items():
      cloud = Recording(remote)
      assert_same(over(cloud, name)[0], fused(name))
      assert (cloud.up, cloud.down) == (other.up, other.down)
    lazy, gated = remote.description.profiles[0], remote.description.profiles[2]
    assert (lazy.method, lazy.coding, gated.method, gated.rule) == ("sqs", "lazy", "ciar", "exact")
    assert remote.transport_bytes > 0
    with pytest.raises(CloudError) as caught:
      remote.open(served().opening(served().edge(0), 0)._replace(condition=CLASSES), timeout_s=10.0)
    assert caught.value.status is Status.INVALID_ARGUMENT and "class" in caught.value.detail
    remote.hang_up()
  assert len(served().engine._streams) == 0


def test_what_edges_are_told():
  """Every field that both ends must have the same of; no frame of an edge is longer than it says."""
  lazy, trimmed, exact, greedy = served().engine.profiles
  assert lazy == Profile(0, "sqs", "exact", 3, "lazy", 7, 3, max_frame=lazy.max_frame)
  assert trimmed == Profile(1, "sqs", "exact", 3, "trimmed", 7, 3, max_frame=trimmed.max_frame)
  assert exact == Profile(2, "ciar", "exact", 3, "paper", 7, 3, max_frame=exact.max_frame)
  assert greedy == Profile(3, "ciar", "greedy", 3, max_frame=greedy.max_frame)
  for name in (NAMES[0], NAMES[2]):
    cloud = Recording(LocalCloud(served().engine))
    over(cloud, name)
    assert max(map(len, cloud.up)) <= served().engine.profiles[NAMES.index(name)].max_frame


def test_an_edge_that_was_killed_goes_on_from_its_journal(tmp_path):
  """Before any of its calls, between the two parts of one too; what was answered is not asked again."""
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
    over(cloud, NAMES[0], journal=journal)


def test_what_an_edge_refuses():
  edge, model = served().edge(0), served().engine.model
  with pytest.raises(ValueError, match="one row"):
    edge.open(rows_of(2)[1], jax.random.key(0), model=model)
  with pytest.raises(ValueError, match="a caption for each"):
    over(LocalCloud(served().engine), NAMES[0], captions=["two cats"])
  assert edge.request is None and edge.resume is None
  with pytest.raises(ValueError, match="no"):
    edge.receive(b"")
  served().opening(edge, 0)
  assert edge.resume is None
  with pytest.raises(MessageError):
    edge.receive(b"no frame")
  with pytest.raises(ValueError, match="token 0"):
    edge.outcome()
