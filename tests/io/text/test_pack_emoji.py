"""The packing script: one-line errors, reproducible files, no partial files. There are no downloads."""

import json
import shutil

import numpy as np
import pytest

from experiments.data import pack_emoji
from experiments.data.emoji import load_emoji
from tests.exit_status import status_of
from tests.io.text.packed_emoji import IMAGES, ROWS, image


@pytest.fixture(scope="module")
def packed():
  return {name: pack_emoji.encode(image(seed)) for seed, name in enumerate(IMAGES)}


def test_written_files_can_be_loaded(packed, tmp_path):
  pack_emoji.write(packed, ROWS, tmp_path / "emoji")
  loaded = load_emoji(tmp_path / "emoji")
  assert loaded.style.tolist() == [0, 1, 2, 0, 2]
  assert loaded.concept.tolist() == [0, 0, 1, 2, 2]
  assert loaded.split.tolist() == [0, 0, 2, 0, 1]
  assert [tuple(emoji) for emoji in loaded.emoji] == [(*row[:2], tuple(row[2]), *row[3:6]) for row in ROWS]
  for seed, rgba in enumerate(loaded.rgba):
    expected = np.array(image(seed))
    expected[expected[..., 3] == 0] = 0
    np.testing.assert_array_equal(rgba, expected)  # lossless


def test_files_are_reproducible_and_replaced_whole(packed, tmp_path):
  first, second = tmp_path / "first", tmp_path / "second"
  pack_emoji.write(packed, ROWS, first)
  second.mkdir()
  (second / "stale").touch()
  pack_emoji.write(dict(reversed(packed.items())), ROWS, second)
  assert sorted(path.name for path in second.iterdir()) == ["ATTRIBUTION.md", "emoji64.zip", "index.json"]
  for path in first.iterdir():
    assert path.read_bytes() == (second / path.name).read_bytes()
  assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


def test_failed_writing_keeps_the_old_files(packed, tmp_path):
  out = tmp_path / "emoji"
  pack_emoji.write(packed, ROWS, out)
  before = (out / "index.json").read_bytes()
  unwritable = ("1f601", object(), *ROWS[0][2:])
  with pytest.raises(TypeError):
    pack_emoji.write(packed, [*ROWS, unwritable], out)
  assert (out / "index.json").read_bytes() == before
  assert [path.name for path in tmp_path.iterdir()] == ["emoji"]


def test_index_is_plain_json(packed, tmp_path):
  pack_emoji.write(packed, ROWS, tmp_path / "emoji")
  index = json.loads((tmp_path / "emoji" / "index.json").read_text(encoding="utf-8"))
  assert len(index["fields"]) == len(index["emoji"][0]) == 7


def test_codepoint_key():
  assert pack_emoji.codepoint_key("0023-FE0F-20E3") == "23-20e3"
  assert pack_emoji.codepoint_key("1F468-200D-2764-FE0F-200D-1F468") == "1f468-200d-2764-200d-1f468"


def _error_line(capsys, work) -> str:
  assert status_of(pack_emoji.main, "--work", work, "--out", work / "out") == 2
  captured = capsys.readouterr()
  assert captured.out == "" and captured.err.count("\n") == 1 and not (work / "out").exists()
  return captured.err


def test_missing_npm_is_an_error(capsys, tmp_path, monkeypatch):
  monkeypatch.setenv("PATH", str(tmp_path))
  line = _error_line(capsys, tmp_path)
  assert line.startswith("Error: npm not found: install Node.js, or put emoji-datasource-google-16.0.0.tgz")


def test_failing_npm_is_an_error(capsys, tmp_path, monkeypatch):
  npm = tmp_path / "npm"
  npm.write_text("#!/bin/sh\necho 'npm error network down' >&2\necho 'npm error more' >&2\nexit 7\n")
  npm.chmod(0o755)
  monkeypatch.setattr(shutil, "which", lambda name: str(npm))
  line = _error_line(capsys, tmp_path)
  assert "npm pack emoji-datasource-google@16.0.0 failed (status 7): npm error network down" in line


def test_a_wrong_checksum_is_an_error(capsys, tmp_path):
  (tmp_path / "emoji-datasource-google-16.0.0.tgz").write_bytes(b"something else")
  line = _error_line(capsys, tmp_path)
  assert "emoji-datasource-google-16.0.0.tgz: sha256 must be fb5fd131" in line
  assert "delete the file and run again" in line
