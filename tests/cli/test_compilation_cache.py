"""Compiled programs are cached, and damaged files are removed."""

import os
import subprocess
import sys

import jax
import pytest

from jaxspec.cli import compilation_cache


def test_cache_folder(monkeypatch, tmp_path):
  monkeypatch.setenv("JAXSPEC_CACHE_DIR", str(tmp_path / "own"))
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
  assert compilation_cache.cache_folder() == tmp_path / "own"
  monkeypatch.delenv("JAXSPEC_CACHE_DIR")
  assert compilation_cache.cache_folder() == tmp_path / "xdg" / "jaxspec" / "xla"


def test_cache_that_cannot_be_written(monkeypatch):
  before = jax.config.jax_compilation_cache_dir
  jax.config.update("jax_compilation_cache_dir", None)
  try:
    monkeypatch.setenv("JAXSPEC_CACHE_DIR", "/proc/cache")
    assert compilation_cache.enable() is None
    assert jax.config.jax_compilation_cache_dir is None
  finally:
    jax.config.update("jax_compilation_cache_dir", before)


_COMPILE = """
import resource, sys
from pathlib import Path
import jax
from jaxspec.cli import compilation_cache

compilation_cache.MIN_COMPILE_S = 0
folder = compilation_cache.enable()
program = lambda: jax.jit(lambda x: x @ x + 1).lower(jax.numpy.ones([64, 64])).compile()


def kept():
  return {each.name: each.stat().st_size for each in folder.glob("*-cache")}


program()
sizes = kept()
assert sizes
for each in folder.glob("*-cache"):
  each.write_bytes(each.read_bytes()[:-9])
jax.clear_caches()
program()
assert kept().keys() == sizes.keys() and all(kept()[name] > sizes[name] - 9 for name in sizes), (sizes, kept())
for each in folder.glob("*-cache"):
  each.unlink()
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
jax.clear_caches()
program()
assert kept() == {}, "no half of a program stays"
"""


@pytest.mark.slow
def test_damaged_files_are_replaced_and_a_full_disk_is_said_once(tmp_path):
  environment = os.environ | {"JAXSPEC_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
  environment.pop("JAX_COMPILATION_CACHE_DIR", None)
  outcome = subprocess.run([sys.executable, "-c", _COMPILE], capture_output=True, text=True, env=environment, check=False)
  assert outcome.returncode == 0, outcome.stderr
  assert outcome.stderr.startswith(f"Note: compiled programs cannot be kept in {tmp_path}: ")
  assert outcome.stderr.count("\n") == 1
