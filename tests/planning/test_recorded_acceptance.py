"""Accepted drafts by round: from a decode, in a file, and the methods that a file applies to."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.expected_tokens import acceptance_for
from jaxspec.core.state import Counters, DecodeResult, Origin
from jaxspec.planning.recorded_acceptance import RecordedAcceptance

RECORDED = RecordedAcceptance("sjd", 7, ((0, 2, 7), (1,)), {"networks": "scenes", "nested": [1, {"a": None}]})


def decoder(method, *, local=False, vectors=False, prefix=0, decode=None):
  parts = SimpleNamespace(drafter=SimpleNamespace(may_accept_locally=local), target_prefix=prefix, decode=decode)
  return SimpleNamespace(method=method, draws_continuous=vectors, parts=parts)


def outcome(rounds, num_tokens=6):
  """A decode whose row b commits ``rounds[b][r]`` tokens in round r, the last one of the target; round 0 is the prefill."""
  commit_round = np.zeros((len(rounds), num_tokens), np.int32)
  origin = np.zeros((len(rounds), num_tokens), np.int8)
  for row, sizes in enumerate(rounds):
    commit_round[row, : sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
    origin[row, : sum(sizes)] = int(Origin.DRAFT)
    origin[row, np.cumsum(sizes) - 1] = int(Origin.BONUS)
  counted = np.array([len(sizes) - 1 for sizes in rounds])
  counters = Counters(counted, *[np.zeros_like(counted)] * 5)
  return DecodeResult(None, None, counters, None, origin, commit_round)


def test_accepted_drafts_of_a_decode():
  """One token of a round is the target's own; a row that ends with its prefill has no rounds."""
  found = RecordedAcceptance.of(decoder(methods.Sjd(window=3)), outcome([[1, 3, 2], [1, 1, 1, 3], [1]]), {"a": 1})
  assert found == RecordedAcceptance("sjd", 3, ((2, 1), (0, 0, 2)), {"a": 1})
  assert found.imposed.lengths == found.lengths
  assert RecordedAcceptance("sjd", 3, ((3, 3),)).acceptance == 1 and RecordedAcceptance("sjd", 3, ((0,),)).acceptance == 0
  assert RecordedAcceptance("sjd", 1, ((0, 1),)).acceptance == pytest.approx(0.5)


def test_rounds_without_a_bonus_token():
  """All tokens of a fully accepted round are drafts; so is an end token that was drafted."""
  first, draft, own = int(Origin.FIRST), int(Origin.DRAFT), int(Origin.REPLACED)
  rows = DecodeResult(
    None, None, None, None, np.array([[first, draft, draft, draft, own, draft]], np.int8), np.array([[0, 1, 1, 2, 2, 3]])
  )
  found = RecordedAcceptance.of(decoder(methods.Speculative(gamma=2, bonus=False)), rows)
  assert found.lengths == ((2, 1, 1),) and found.acceptance == pytest.approx(acceptance_for(1 + 4 / 3, 2))


@pytest.mark.parametrize(
  ("asked", "words"),
  [
    (decoder(methods.Plain()), "drafts of discrete tokens to record their acceptance, we instead got ar"),
    (decoder(methods.Cspd(), vectors=True), "drafts of discrete tokens to record their acceptance, we instead got cspd"),
    (decoder(methods.Rows(row_window=4), decode=print), "to record their acceptance, we instead got rows"),
  ],
)
def test_methods_without_acceptance(asked, words):
  with pytest.raises(ValueError, match=words):
    RecordedAcceptance.of(asked, outcome([[1, 3]]))


def test_calls_of_a_decode():
  """Where the edge called the cloud, and the accepted drafts of these windows; local tokens are no part of either."""
  first, draft, own, local = int(Origin.FIRST), int(Origin.DRAFT), int(Origin.REPLACED), int(Origin.LOCAL)
  origin = np.array(
    [[local, local, draft, own, local, own], [first, local, draft, own, 0, 0], [first] + [local] * 5], np.int8
  )
  commit_round = np.array([[0, 1, 1, 1, 2, 3], [0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]], np.int32)
  found = RecordedAcceptance.of(
    decoder(methods.Ciar(tau=1.0), local=True), DecodeResult(None, None, None, None, origin, commit_round)
  )
  assert found == RecordedAcceptance("ciar", 4, ((1, 0), (1,)), {}, ((2, 5), (0, 2)), (6, 4))
  assert found.calls == pytest.approx(4 / 10) and RECORDED.calls is None
  assert (found.imposed.called_at, found.imposed.tokens) == (found.called_at, found.tokens)
  # Tokens that the cloud draws alone are calls without a window.
  alone = np.array([[first, own, draft, own]], np.int8)
  alone = DecodeResult(None, None, None, None, alone, np.array([[0, 1, 2, 2]], np.int32))
  found = RecordedAcceptance.of(decoder(methods.Ciar(tau=1.0, target_prefix=0.5), local=True, prefix=2), alone)
  assert found.called_at == ((0, 1, 2),) and found.lengths == ((1,),)
  with pytest.raises(ValueError, match="a row whose drafts the target judged"):
    RecordedAcceptance.of(decoder(methods.Ciar(tau=1.0), local=True), outcome([[1]]))


ASKED = RecordedAcceptance("ciar", 4, ((0, 4), (1,)), {}, ((0, 5, 7), (3,)), (12, 9))


@pytest.mark.parametrize("recorded", [RECORDED, ASKED])
def test_a_file_is_read_back(tmp_path, recorded):
  path = tmp_path / "recorded.json"
  path.write_text(recorded.as_json())
  assert RecordedAcceptance.read(path) == recorded
  assert recorded.as_json().count("\n") < 22  # a row is a line


def test_which_methods_it_fits():
  RECORDED.check_fits(methods.Sjd(window=7))
  RECORDED.check_fits(methods.Sjd(window=3))
  with pytest.raises(ValueError, match="acceptance of method speculative, we instead got that of sjd"):
    RECORDED.check_fits(methods.Speculative(gamma=3))
  with pytest.raises(ValueError, match="at least 15 drafts in a row, we instead got that of 7"):
    RECORDED.check_fits(methods.Sjd(window=15))


def test_damaged_files(tmp_path):
  path = tmp_path / "a.json"
  with pytest.raises(ValueError, match="Cannot read .*a.json"):
    RecordedAcceptance.read(path)
  good = json.loads(RECORDED.as_json())
  broken = [
    ("no JSON", "{"), ("no JSON", b"\xff"), ("something else", "[]"), ("something else", json.dumps(good | {"version": 2})),
    *(
      ("rows of numbers from 0 to these drafts", json.dumps(good | wrong))
      for wrong in (
        {"method": 3}, {"drafts": 0}, {"drafts": True}, {"lengths": []}, {"lengths": [[]]}, {"lengths": [[8]]},
        {"lengths": [[-1]]}, {"lengths": [[1.0]]}, {"lengths": [[True]]}, {"lengths": {"a": 1}}, {"lengths": None},
      )
    ),
  ]  # fmt: skip
  asked = json.loads(ASKED.as_json())
  broken += [
    ("ascending positions of its calls", json.dumps(asked | wrong))
    for wrong in (
      {"tokens": [12]}, {"tokens": []}, {"called_at": []}, {"tokens": [7, 9]}, {"tokens": ["12", 9]}, {"called_at": 3},
      {"called_at": [[0, 5, 7]]}, {"called_at": [[5, 0], [3]]}, {"called_at": [[], [3]]}, {"called_at": [[0, 0], [3]]},
      {"called_at": [[True], [3]]},
    )
  ]  # fmt: skip
  for words, text in broken:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=words) as caught:
      RecordedAcceptance.read(path)
    assert "a.json" in str(caught.value)
