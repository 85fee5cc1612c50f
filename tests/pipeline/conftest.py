"""Tiny folders, made once."""

import pytest

from tests.pipeline import tiny


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
