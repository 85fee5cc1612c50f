"""Shapes of a config are traced once per file of tests."""

import functools

import pytest

from conversion import engine


@pytest.fixture(scope="module", autouse=True)
def _templates():
  kept = functools.cache(engine.template_of)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(engine, "template_of", lambda config: dict(kept(config)))
    yield
