"""Processes that serve together: the tokens of one, and an end for all when one is lost."""

import signal
import socket

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.core import mesh
from jaxspec.methods import Sqs
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server.group import Leader, Link, join
from jaxspec.serving.server.server_programs import Call, Op
from jaxspec.serving.wire.method_codecs import wire_of
from tests import devices
from tests.cli import fake_language
from tests.serving.server.test_plan_wire import PROGRAMS


def test_a_leader_is_heard_until_its_end():
  ours, theirs = socket.socketpair()
  leader, link = Leader([ours]), Link(theirs)
  arrays = PROGRAMS.arrays_like(Call(Op.INSERT))
  leader.tell(Call(Op.INSERT, arrays=arrays + 3))
  leader.check()
  leader.end(has_failed=False)
  (call,) = link.calls(PROGRAMS)
  assert call.op is Op.INSERT and call.arrays.tolist() == (arrays + 3).tolist()
  theirs.close()


@pytest.mark.parametrize("loss", ["killed", "failed"])
def test_a_lost_leader_is_no_end(loss):
  ours, theirs = socket.socketpair()
  leader = Leader([ours])
  if loss == "failed":
    leader.end(has_failed=True)
  else:
    ours.sendall(b"\3\0")
    ours.close()
  with pytest.raises(ConnectionError):
    list(Link(theirs).calls(PROGRAMS))
  theirs.close()


def test_a_lost_follower_is_noticed():
  ours, theirs = socket.socketpair()
  leader = Leader([ours])
  leader.check()
  theirs.close()
  with pytest.raises(ConnectionError, match="lost"):
    leader.check()
  leader.end(has_failed=True)


def test_one_process_is_no_group():
  assert join(None, "127.0.0.1") is None
  assert join(mesh.make_mesh("data=1"), "127.0.0.1") is None


class Group:
  """``jaxspec serve`` in two processes, of one device each."""

  def __init__(self, folder):
    self.address = devices.free_address()
    self._folder = folder
    self.start()

  def start(self):
    coordinator = devices.free_address()
    command = ["serve", self._folder, "--listen", self.address, "--mesh", "model=2", "--matmul-precision", "float32"]
    command += ["--profile", "sqs:coding=lazy,sparsifier=topk,support=4,max_drafts=4", "--max-prompt", 8, "--max-len", 12]
    command += ["--max-streams", 2, "--max-rows", 2, "--widths", 8, "--coordinator", coordinator, "--num-processes", 2]
    start = lambda number: devices.run("jaxspec.cli.main", *command, "--process-id", number, devices=1)
    self.processes = [start(number) for number in range(2)]
    for process, words in zip(self.processes, (f"serving at grpc://{self.address}", "serving with process 0")):
      said = next((line for line in iter(process.stdout.readline, "") if "[Gloo]" not in line), None)
      assert said == words + "\n", process.stderr.read()

  def ends(self):
    """The exit statuses, once both have ended."""
    return [process.wait(60) for process in self.processes]


class Losing:
  """A cloud that loses a process of its group before the third call."""

  def __init__(self, cloud, group):
    self._cloud, self._group, self._calls, self.openings = cloud, group, 0, 0

  def __getattr__(self, name):
    return getattr(self._cloud, name)

  def open(self, *args, **kwargs):
    self.openings += 1
    return self._cloud.open(*args, **kwargs)

  def verify(self, *args, **kwargs):
    self._calls += 1
    if self._calls == 3:
      self._group.processes[1].kill()
      assert self._group.ends() == [1, -signal.SIGKILL]
      self._group.start()
    return self._cloud.verify(*args, **kwargs)


@pytest.mark.slow
def test_a_group_is_lost_and_started_again(tmp_path):
  """The row goes on with the same tokens; SIGTERM to process 0 ends both."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  folder = fake_language.make(tmp_path / "language")
  group = Group(folder)
  cloud = jaxspec.connect(f"grpc://{group.address}")
  pipeline = jaxspec.load_pipeline(folder, matmul_precision="float32")
  method = pipeline.method(Sqs(coding="lazy", sparsifier="topk", support=4, max_drafts=4))
  parts, encoded = pipeline.decoder(method).parts, pipeline.encode(["once"])
  with pipeline.context():
    losing = Losing(cloud, group)
    out, _ = decode_over_cloud(
      parts.params.draft, jax.random.key(0), encoded.condition, cloud=losing, drafter=parts.drafter,
      wire=wire_of(method, 259), max_len=12, end_token=pipeline.host.end_token,
    )  # fmt: skip
  wanted = pipeline(encoded, key=jax.random.key(0), method=method, max_len=12)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)
  assert losing.openings == 2
  cloud.hang_up()
  group.processes[0].send_signal(signal.SIGTERM)
  assert group.ends() == [0, 0]
