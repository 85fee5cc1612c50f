"""Tiny checkpoints, made once."""

import numpy as np
import pytest

from jaxspec.io.bundle import write_bundle
from jaxspec.models import registry
from tests.run import tiny, toy


@pytest.fixture(scope="session")
def captions(tmp_path_factory):
  return tiny.captions(tmp_path_factory.mktemp("captions") / "tiny")


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
  return tiny.classes(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def masked(tmp_path_factory):
  return tiny.vectors(tmp_path_factory.mktemp("masked") / "bundle", tiny.MAR)


@pytest.fixture(scope="session")
def causal(tmp_path_factory):
  return tiny.vectors(tmp_path_factory.mktemp("causal") / "bundle", tiny.CAUSAL)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
  return tiny.texts(tmp_path_factory.mktemp("texts") / "pair")


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
  """A bundle of tables: each id is followed by the next one, with high probability in the target, less in the draft."""
  path, step = tmp_path_factory.mktemp("toys"), np.roll(np.eye(3), 1, axis=1)
  with registry.FAMILIES.adding("toy", toy.FAMILY):
    toy.save(path / "target", 40.0 * step)
    toy.save(path / "draft", 1.0 * step, distilled_at_cfg=3.0)
    write_bundle(path, target="target", drafts={"rough": "draft"}, parts={"palette": toy.PALETTE}, options={"gamma": 2})
    yield path
