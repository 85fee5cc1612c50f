"""Peers that are wrong too often."""

from jaxspec.serving.server.auth_backoff import Failures


def test_wrong_tokens_are_slowed_down():
  failures = Failures(free=3)
  assert [failures.delay_s("a", now) for now in (0, 1, 2, 3, 4)] == [0, 0, 0, 1, 1]
  assert failures.delay_s("b", 4) == 0 and failures.delay_s("a", 100) == 0
