"""What the tests of codes share."""

import functools

import pytest

from jaxspec.serving.wire import enumerative as ranks
from jaxspec.serving.wire import rice


@pytest.fixture
def each_rank_once(monkeypatch):
  """Ranks and Rice parameters are pure functions of integers; what a test asks for again and again is computed once."""

  def once(function):
    found = functools.lru_cache(1 << 16)(function)
    hashable = lambda value: tuple(value) if isinstance(value, list) else value
    return lambda *args: found(*map(hashable, args))

  for name in ("rank_subset", "unrank_subset", "rank_composition", "unrank_composition", "rank_multiset", "unrank_multiset"):
    monkeypatch.setattr(ranks, name, once(getattr(ranks, name)))
  monkeypatch.setattr(rice, "best_parameter", once(rice.best_parameter))
