"""Options of several processes: what does not go together is one line before anything is loaded."""

import socket

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

THREE = ("--coordinator", "127.0.0.1:1", "--num-processes", "2", "--process-id")


@pytest.mark.parametrize(
  "args, words",
  [
    (("--mesh", "rows=2"), "a mesh such as data=2,model=4"),
    (("--mesh", "model=4096"), "4096 devices for the mesh"),
    (("--mesh", "data=2", "--process-id", "1"), "go together"),
    ((*THREE, "1"), "and with --mesh"),
    (("--mesh", "data=2", *THREE, "2"), "--process-id from 0 to 1, we instead got 2"),
    (("--mesh", "data=2", *THREE, "1", "--coordinator", "here"), "--coordinator HOST:PORT"),
    (("--mesh", "data=2", *THREE, "1", "--coordinator", "here:70000"), "a port from 1 to 65535"),
    (("--mesh", "data=2", *THREE, "1", "--num-processes", "1"), "x>=2"),
  ],
)
def test_what_does_not_go_together(fails, args, words):
  assert words in fails("serve", "wordnet", *args)


def test_a_coordinator_that_cannot_be(fails):
  """JAX would wait for minutes, or end the process without a word."""
  with socket.create_server(("127.0.0.1", 0)) as taken:
    first = ("--coordinator", f"127.0.0.1:{taken.getsockname()[1]}", "--process-id", 0)
    assert "the port is taken" in fails("serve", "wordnet", "--mesh", "data=2", *THREE[2:4], *first)
  other = ("--coordinator", "nowhere.invalid:1", "--process-id", 1)
  assert "there is no host of the name" in fails("serve", "wordnet", "--mesh", "data=2", *THREE[2:4], *other)
