"""A studio of tiny networks: captions of 4 tokens, with four drafts."""

import pytest

from jaxspec.run.loading import load_pipeline
from jaxspec.run.sources import Sources
from tests.run import tiny

pytest.importorskip("starlette", reason="needs the studio extra: pip install 'jaxspec-decoding[studio]'")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
  return tiny.captions(tmp_path_factory.mktemp("studio") / "tiny")


@pytest.fixture(scope="package")
def session(bundle):
  from jaxspec.studio.studio_session import StudioSession

  return StudioSession(load_pipeline(bundle, matmul_precision="float32"), Sources(bundle))


@pytest.fixture
def app(session, tmp_path):
  from jaxspec.studio.api import make_app

  folder = tmp_path / "races"
  folder.mkdir()
  return make_app(session, folder=folder, hosts=["testserver"])
