"""A tiny bundle for this folder, and commands with the compilation cache of the tests."""

import jax
import pytest
from click.testing import CliRunner
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from jaxspec.cli.main import main
from jaxspec.run.pipeline import Pipeline
from jaxspec.run.programs import Programs
from tests.cli import fake_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
  return fake_bundle.make_fake_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


@pytest.fixture(scope="session")
def class_models(tmp_path_factory):
  folder = tmp_path_factory.mktemp("classes")
  fake_bundle.save_random(folder / "target", fake_bundle.CLASS_TARGET, 0)
  fake_bundle.save_random(folder / "draft", fake_bundle.CLASS_DRAFT, 1)
  fake_bundle.save_random(folder / "vq", fake_bundle.TOKENIZER, 2)
  return folder


@pytest.fixture(scope="package", autouse=True)
def _cache(tmp_path_factory):
  """Commands enable the cache; if there is one for tests, they share it."""
  names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
  before = {name: getattr(jax.config, name) for name in names}
  folder = before["jax_compilation_cache_dir"] or tmp_path_factory.mktemp("xla")
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("JAXSPEC_CACHE_DIR", str(folder))
    patch.setattr("jaxspec.cli.compilation_cache.MIN_COMPILE_S", before["jax_persistent_cache_min_compile_time_secs"])
    jax.config.update("jax_compilation_cache_dir", None)
    jax_cache.reset_cache()
    yield
  for name, value in before.items():
    jax.config.update(name, value)
  jax_cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def _programs():
  """The commands of a file share the programs of equal decodes, as the calls of one pipeline do.

  Numbers of a setting that differ are arguments of a program; whatever is static is part of the key.
  """
  kept, static_key, compiled = {}, Pipeline.static_key, Programs.compiled

  def whole_key(self, decoder, *args, **kwargs):
    about = self.target.fns, type(self.family), self.family.end_token, self.mesh, self.matmul_precision
    return about, decoder.sampling, static_key(self, decoder, *args, **kwargs)

  def shared(self, *args, **kwargs):
    self._kept = kept
    return compiled(self, *args, **kwargs)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Pipeline, "static_key", whole_key)
    patch.setattr(Programs, "compiled", shared)
    patch.setattr("jaxspec.run.programs.KEPT", 10_000)
    yield


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch):
  """On a busy machine a command may run long enough to print progress."""
  monkeypatch.setattr("jaxspec.render.working.LINE_EVERY_S", float("inf"))


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Calls ``jaxspec`` in an empty folder."""
  monkeypatch.chdir(tmp_path)
  return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture
def fails(run):
  """Calls ``jaxspec`` and checks that it fails in one line with exit code 2; returns the line."""

  def check(*args) -> str:
    outcome = run(*args)
    lines = outcome.stderr.splitlines()
    assert outcome.exit_code == 2, (outcome.output, outcome.exception)
    assert len(lines) == 1 and lines[0].startswith("Error: "), outcome.stderr
    assert "Traceback" not in outcome.output
    return lines[0]

  return check
