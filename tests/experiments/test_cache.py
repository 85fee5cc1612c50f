"""A cached decode is used only for the same weights, settings and code."""

import jax.numpy as jnp
import pytest

from experiments.engine.cache import WITHOUT_A_SAY, Cache, code_digest, key_of, tree_digest


def test_the_name_follows_weights_settings_and_code():
  weights = lambda value: [tree_digest({"layer": jnp.asarray([1.0, value])})]
  settings = {"method": "gsd", "options": {"group_size": 3}, "seed": 0}
  names = [
    key_of(weights(2.0), settings, code="a"), key_of(weights(2.5), settings, code="a"),
    key_of(weights(2.0), settings | {"seed": 1}, code="a"), key_of(weights(2.0), settings, code="b"),
    key_of(weights(2.0), settings | {"options": {"group_size": 4}}, code="a"),
  ]  # fmt: skip
  assert len(set(names)) == len(names)
  assert key_of(weights(2.0), dict(reversed(settings.items())), code="a") == names[0]
  assert key_of(weights(2.0), settings) == key_of(weights(2.0), settings)


def test_a_tree_is_its_paths_shapes_and_types():
  trees = [
    {"a": jnp.zeros(2)},
    {"b": jnp.zeros(2)},
    {"a": jnp.zeros((2, 1))},
    {"a": jnp.zeros(2, jnp.int32)},
    {"a": jnp.ones(2)},
  ]
  assert len({tree_digest(tree) for tree in trees}) == len(trees)


def test_code_that_decides_tokens_is_hashed(tmp_path):
  for name in ("decode/loop.py", "methods/gsd.py", *(f"{part}/x.py" for part in WITHOUT_A_SAY if "." not in part)):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("1")
  before = code_digest(tmp_path)
  for part in WITHOUT_A_SAY:
    if "." not in part:
      (tmp_path / part / "x.py").write_text("2")
  assert code_digest(tmp_path) == before
  (tmp_path / "methods/gsd.py").write_text("2")
  changed = code_digest(tmp_path)
  (tmp_path / "methods/gsd.py").rename(tmp_path / "methods/gsd2.py")
  assert len({before, changed, code_digest(tmp_path)}) == 3


def test_values_are_made_once(tmp_path):
  cache, made = Cache(tmp_path / "runs"), []
  make = lambda: made.append(1) or {"x": len(made)}
  assert cache.get("a", make) == {"x": 1} == Cache(tmp_path / "runs").get("a", make) and "a" in cache and "b" not in cache
  assert cache.get("a", make, again=True) == {"x": 2} == cache.get("a", make)

  def broken():
    raise RuntimeError

  with pytest.raises(RuntimeError):
    cache.get("b", broken)
  assert "b" not in cache
