"""Errors name files that cannot be opened, and Git LFS pointers in place of files."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from conversion import torch_files
from jaxspec.cli import info
from jaxspec.families import text_features
from jaxspec.io import bundle, checkpoints, stored_files
from jaxspec.io.text import language_tokenizer, t5_tokenizer, text_tokenizer

SHIPPED = Path(__file__).parents[2] / "checkpoints" / "digits32-var"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 2471645608\n"
READERS = {
  "bundle.json": lambda file: bundle.read_bundle(file.parent),
  "target/config.json": lambda file: checkpoints.read_config(file.parent),
  "target/params.safetensors": lambda file: checkpoints.load(file.parent),
  "target/tokenizer.json": lambda file: language_tokenizer.load_tokenizer(file.parent),
  "words.json": text_tokenizer.load_text_tokenizer,
  "features.npz": text_features._read_arrays,
  "features.safetensors": text_features._read_arrays,
  "model.pt": torch_files.read,
}


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "target").mkdir()
  for name in ("bundle.json", "target/config.json", "target/params.safetensors"):
    shutil.copyfile(SHIPPED / name, tmp_path / name)
  return tmp_path


@pytest.mark.parametrize("name", READERS)
def test_pointers_of_git_lfs_and_files_that_may_not_be_read(folder, monkeypatch, name):
  file = folder / name
  file.write_text(POINTER)
  with pytest.raises(ValueError, match=rf"content of .*{name}, it is a pointer of Git LFS"):
    READERS[name](file)

  def denied(path, mode):
    raise PermissionError(13, "Permission denied", str(path))

  monkeypatch.setattr(stored_files, "open", denied, raising=False)
  with pytest.raises(ValueError, match="Cannot read .*: Permission denied"):
    READERS[name](file)


def test_a_pointer_of_a_sentencepiece_model(tmp_path):
  pytest.importorskip("sentencepiece")
  (tmp_path / "spiece.model").write_text(POINTER)
  with pytest.raises(ValueError, match=r"spiece\.model, it is a pointer"):
    t5_tokenizer.load_t5_tokenizer(tmp_path)


def test_a_command_says_it_in_one_line(folder):
  (folder / "target" / "params.safetensors").write_text(POINTER)
  result = CliRunner().invoke(info.info, [str(folder / "target")])
  assert result.exit_code != 0 and "it is a pointer of Git LFS" in str(result.exception)
