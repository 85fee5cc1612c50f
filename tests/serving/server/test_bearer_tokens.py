"""Tokens: secrets are in no file, revoked ones are refused, damaged files change nothing."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxspec.serving.server.bearer_tokens import AuthBackoff, TokenFile, new_token
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.wire.cloud import CloudError, Status


def refused(tokens, secret):
  with pytest.raises(CloudError) as caught:
    tokens.tenant_of(secret)
  return caught.value.status


def test_a_new_token_opens_and_is_in_no_file(tmp_path):
  path = tmp_path / "tokens.jsonl"
  alice, bob = new_token(path, "alice"), new_token(path, "bob", Quota(streams=3, fed_per_s=2.5))
  assert alice not in path.read_text() and len(alice) >= 40 and path.stat().st_mode & 0o077 == 0
  tokens = TokenFile(path)
  assert tokens.tenant_of(alice).name == "alice" and tokens.tenant_of(bob) == ("bob", Quota(3, fed_per_s=2.5))
  assert refused(tokens, None) is refused(tokens, "") is refused(tokens, alice[:-1]) is Status.UNAUTHENTICATED
  for name, message in (("alice", "a new name"), ("", "a name")):
    with pytest.raises(ValueError, match=f"Must have {message} for a token"):
      new_token(path, name)


def test_two_that_add_the_same_name_at_once(tmp_path):
  """One of them is refused; a file with both would be refused whole."""
  path = tmp_path / "tokens.jsonl"

  def add(number):
    try:
      return new_token(path, f"edge {number % 4}")
    except ValueError as error:
      assert "a new name" in str(error)

  with ThreadPoolExecutor(8) as pool:
    found = [secret for secret in pool.map(add, range(32)) if secret]
  tokens = TokenFile(path)
  assert sorted(tokens.tenant_of(secret).name for secret in found) == [f"edge {number}" for number in range(4)]


def test_a_token_after_a_line_without_its_end(tmp_path):
  """Editors may leave the last line so; two tokens in one line would both be lost."""
  path = tmp_path / "tokens.jsonl"
  alice = new_token(path, "alice")
  path.write_text(path.read_text().rstrip())
  bob = new_token(path, "bob")
  tokens = TokenFile(path)
  assert [tokens.tenant_of(secret).name for secret in (alice, bob)] == ["alice", "bob"]


def test_a_file_is_read_again(tmp_path):
  path = tmp_path / "tokens.jsonl"
  secret = new_token(path, "alice")
  tokens, line = TokenFile(path), json.loads(path.read_text())
  path.write_text(json.dumps(line | {"revoked": True}) + "\n\n")
  assert tokens.tenant_of(secret).name == "alice"
  tokens.reload()
  assert refused(tokens, secret) is Status.PERMISSION_DENIED
  for damaged in (
    "{",
    "[]",
    json.dumps(line | {"streams": 0}),
    json.dumps(line | {"sha256": "ab"}),
    json.dumps(line | {"x": 1}),
  ):
    path.write_text(damaged)
    tokens.reload()
    assert refused(tokens, secret) is Status.PERMISSION_DENIED, "the old tokens stay"
    with pytest.raises(ValueError, match="line 1 of"):
      TokenFile(path)
  path.unlink()
  tokens.reload()
  assert refused(tokens, secret) is Status.PERMISSION_DENIED, "the old tokens stay"
  with pytest.raises(ValueError, match="file of tokens.*tokens.jsonl: No such file"):
    TokenFile(path)
  path.write_bytes(b"\xff")
  with pytest.raises(ValueError, match="file of tokens.*no UTF-8"):
    TokenFile(path)
  path.write_text(2 * (json.dumps(line) + "\n"))
  with pytest.raises(ValueError, match="'?alice'? twice"):
    TokenFile(path)


def test_an_issued_token_is_in_no_file(tmp_path):
  path = tmp_path / "tokens.jsonl"
  new_token(path, "alice")
  tokens = TokenFile(path)
  own = [tokens.issue("this process"), tokens.issue("this process")]
  tokens.reload()
  assert [tokens.tenant_of(each).name for each in own] == ["this process"] * 2
  assert refused(TokenFile(path), own[0]) is Status.UNAUTHENTICATED


def test_wrong_tokens_are_slowed_down():
  failures = AuthBackoff(free=3)
  assert [failures.delay_s("a", now) for now in (0, 1, 2, 3, 4)] == [0, 0, 0, 1, 1]
  assert failures.delay_s("b", 4) == 0 and failures.delay_s("a", 100) == 0
