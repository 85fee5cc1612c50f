"""Ids of captions are those of the official tokenizers, from either file."""

import shutil
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.io.text.t5_tokenizer import SENTENCEPIECE_FILE, encode, load_t5_tokenizer
from tests import t5_folders

TEXT = t5_folders.TEXT


def _folder(tmp_path, *names):
  for name in names:
    shutil.copyfile(t5_folders.GOLDEN / name, tmp_path / name)
  return tmp_path


@pytest.mark.parametrize("name", [TOKENIZER_FILE, SENTENCEPIECE_FILE])
def test_stored_ids(tmp_path, name):
  if name == SENTENCEPIECE_FILE:
    pytest.importorskip("sentencepiece", reason="needs sentencepiece: pip install 'jaxspec-decoding[t5]'")
  tokenizer = load_t5_tokenizer(_folder(tmp_path, name))
  assert tokenizer.size == (500 if name == TOKENIZER_FILE else 400)  # with and without those that mask spans
  ids, mask, num_dropped = encode(tokenizer, TEXT["cleaned"], TEXT["max_length"])
  assert ids.shape == mask.shape == (len(TEXT["ids"]), 120) and ids.dtype == np.int32
  for row, wanted in enumerate(TEXT["ids"]):
    assert ids[row, mask[row]].tolist() == wanted and wanted[-1] == 1
    np.testing.assert_array_equal(mask[row], np.arange(120) < len(wanted))
    assert not ids[row, len(wanted) :].any()
    assert (num_dropped[row] > 0) == (len(wanted) == 120)
  short, _, dropped = encode(tokenizer, TEXT["cleaned"][:1], 5)
  assert short.tolist() == [TEXT["ids"][0][:4] + [1]] and dropped.tolist() == [len(TEXT["ids"][0]) - 5]


def test_folders_without_a_tokenizer(tmp_path, monkeypatch):
  with pytest.raises(ValueError, match="Must have tokenizer.json or spiece.model of the T5 in .* neither: copy it there"):
    load_t5_tokenizer(tmp_path)
  monkeypatch.setitem(sys.modules, "sentencepiece", None)
  with pytest.raises(ValueError, match=r"the package sentencepiece for it: pip install 'jaxspec-decoding\[t5\]'"):
    load_t5_tokenizer(_folder(tmp_path, SENTENCEPIECE_FILE))
  load_t5_tokenizer(_folder(tmp_path, TOKENIZER_FILE))  # it comes first


def test_files_that_are_no_tokenizers_of_a_t5(tmp_path):
  file = tmp_path / TOKENIZER_FILE
  file.write_text("{}")
  with pytest.raises(ValueError, match="Corrupt .*tokenizer.json"):
    load_t5_tokenizer(tmp_path)
  Tokenizer(models.BPE({"a": 0, "</s>": 2}, [])).save(str(file))
  with pytest.raises(ValueError, match="Must have </s> as token 1 of a T5 in .*, we instead got 2"):
    load_t5_tokenizer(tmp_path)
  file.unlink()
  pytest.importorskip("sentencepiece", reason="needs sentencepiece: pip install 'jaxspec-decoding[t5]'")
  (tmp_path / SENTENCEPIECE_FILE).write_bytes(b"hello")
  with pytest.raises(ValueError, match="Corrupt .*spiece.model"):
    load_t5_tokenizer(tmp_path)
