"""Settings of JAX for every compilation of a process."""

import jax
import jax.numpy as jnp
import pytest

from jaxspec.cli import compilation_cache
from jaxspec.core.precision import precision_context


def _decode():
  with precision_context():
    pass


@pytest.mark.parametrize("enter", [compilation_cache.enable, _decode], ids=["command", "decode"])
def test_programs_have_no_stack_frames(enter, monkeypatch):
  """Called functions in loops, as in every decode: XLA would compare the frames of the callers."""
  called = jax.jit(lambda x: jnp.sin(x) + 1)
  text = lambda: jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: called(x), x)).lower(1.0).compile().as_text()
  before, name = jax.config.jax_traceback_in_locations_limit, "JAX_TRACEBACK_IN_LOCATIONS_LIMIT"
  try:
    for chosen, limit in (("100", 100), (None, 0)):  # that of the user stays
      jax.config.update("jax_traceback_in_locations_limit", 100)
      monkeypatch.setenv(name, chosen) if chosen else monkeypatch.delenv(name)
      enter()
      assert jax.config.jax_traceback_in_locations_limit == limit
    assert "stack_frame" not in text() and "test_platform.py" not in text()
  finally:
    jax.config.update("jax_traceback_in_locations_limit", before)
