"""One row over a cloud: the tokens of the fused loop, whatever the cloud forgets."""

import functools
import threading

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.bits import CODINGS
from jaxspec.link.bitstream import MessageError
from jaxspec.link.cloud import LocalCloud, UnknownStream
from jaxspec.link.edge_stream import decode_over_cloud
from tests.link.pairs import MAX_LEN, assert_same, rows_of
from tests.server.crowds import one_row, serve

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


class Forgetful:
  """A cloud that forgets a stream before about a third of its calls, and sometimes twice in a row."""

  def __init__(self, cloud, seed):
    self.cloud, self.generator, self.forgotten = cloud, np.random.default_rng(seed), {0: 0, 1: 0}

  def open(self, stream, opening, resume=None):
    return self.cloud.open(stream, opening, resume)

  def verify(self, stream, part, frame):
    if self.generator.random() < 0.3:
      self.cloud.close(stream)
      self.forgotten[part] += 1
    return self.cloud.verify(stream, part, frame)

  def close(self, stream):
    self.cloud.close(stream)


@pytest.mark.parametrize("name", [NAMES[0], slow(NAMES[1]), NAMES[2], *map(slow, (NAMES[3], *OTHERS))])
def test_every_method_over_a_cloud(name):
  """Tokens, origins, counters and reports of the loop; what crossed are the frames of its rows alone."""
  out, traffic = over(LocalCloud(found(name)[0].engine), name)
  assert_same(out, fused(name))
  assert (traffic.exchanges > 0).all() and traffic.envelope_bytes == 0 == traffic.opening_bytes


@pytest.mark.parametrize("name", ["markov:sqs-lazy", "markov:ciar-greedy"])
def test_a_cloud_that_forgets(name):
  """Also between the two parts of a call."""
  cloud = Forgetful(LocalCloud(served().engine), 0)
  assert_same(over(cloud, name)[0], fused(name))
  assert cloud.forgotten[0] > 3 and (cloud.forgotten[1] > 0) == (name == "markov:sqs-lazy")
  cloud.generator = type("Always", (), {"random": lambda self: 0.0})()
  with pytest.raises(UnknownStream):
    over(cloud, name)


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
  assert served().engine.num_streams == 0


def test_what_an_edge_refuses():
  edge = served().edge(0)
  with pytest.raises(ValueError, match="one row"):
    edge.open(rows_of(2)[1], jax.random.key(0))
  with pytest.raises(ValueError, match="threefry2x32"):
    edge.open(one_row(0)[1], jax.random.key(0, impl="rbg"))
  assert edge.request is None
  with pytest.raises(ValueError, match="no"):
    edge.receive(b"")
  edge.open(*reversed(one_row(0)))
  assert edge.resume is None
  with pytest.raises(MessageError):
    edge.receive(b"no frame")
  with pytest.raises(ValueError, match="token 0"):
    edge.outcome()
