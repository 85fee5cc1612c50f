"""The table of rows: nothing of its size is copied, and rows are taken out of it and put into it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import guidance
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.models.nn import kv_cache
from jaxspec.serving.server import cache_table
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes, batch_of, slots_for
from jaxspec.serving.wire.sqs_codec import PlainCodec
from tests.helpers import FULL_OPTIMISATION, TARGET, random_params, side
from tests.serving.server.crowds import EXAMPLE


def programs_of(*, dtype="float32", guided=False, **sizes):
  fns = llamagen_fns(dataclasses.replace(TARGET, dtype=dtype))
  params = side(random_params(fns, 2), scale=2.0 if guided else None)
  sizes = Sizes(**(dict(max_streams=64, max_rows=2, max_len=16, widths=(8,)) | sizes))
  return Programs(params, guidance.guided(fns) if guided else fns, (ServedProfile(PlainCodec(13)),), sizes, EXAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype, guided", [("float32", False), ("bfloat16", True)])
def test_no_buffer_is_copied(dtype, guided):
  """Every buffer of the table is written in place, by a step and by an insertion; a step only holds its own rows besides."""
  programs = programs_of(dtype=dtype, guided=guided)
  table, profile = programs.table(), programs.profiles[0]
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(table))
  buffer = table.cache.k[0]
  slots, batch = batch_of(profile, 8, (), programs.sizes)
  statics = dict(model=programs.model, verifier=profile.verifier(programs.model), may_request=False)
  step = cache_table.step.lower(programs.params, table, slots, batch, **statics)
  row = programs.row(table, 0)
  insert = cache_table.insert.lower(table, row, slots_for(0, programs.sizes), model=programs.model)
  # A copy of any buffer would take its place in memory besides the table.
  assert len({leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(table)}) == len(jax.tree.leaves(table))
  for lowered in (step, insert):
    compiled = lowered.compile(FULL_OPTIMISATION)
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= size and memory.temp_size_in_bytes < buffer.nbytes
    shape = f"[{','.join(map(str, buffer.shape))}]"
    assert shape in compiled.as_text()
    copies = [line for line in compiled.as_text().splitlines() if " copy(" in line and shape in line.split(" copy(")[0]]
    assert not copies, copies


@pytest.mark.parametrize("guided", [False, True])
def test_rows_are_taken_and_put(guided):
  """Both halves of a guided model; grouped heads of a row stay together."""
  fns = llamagen_fns(dataclasses.replace(TARGET, num_kv_heads=1, num_heads=2))
  fns = guidance.guided(fns) if guided else fns
  generator = np.random.default_rng(0)

  def fill(leaf):
    values = generator.normal(size=leaf.shape)
    return jax.device_put(np.asarray(values > 0 if leaf.dtype == bool else values, leaf.dtype))

  table, rows = (jax.tree.map(fill, fns.init_cache(number, 16)) for number in (5, 2))
  slots, start = jnp.asarray([3, 1]), jnp.asarray([2, 7])
  halves = [3, 1, 8, 6] if guided else [3, 1]
  taken = fns.take(table, slots)
  jax.tree.map(lambda some, all_: np.testing.assert_array_equal(some, np.asarray(all_)[halves]), taken, table)
  whole = fns.put(table, rows, slots)
  jax.tree.map(np.testing.assert_array_equal, fns.take(whole, slots), rows)
  part = fns.put(table, rows, slots, start, 3)
  for after, before, new in zip(jax.tree.leaves(part[:2]), jax.tree.leaves(table[:2]), jax.tree.leaves(rows[:2])):
    expected = np.array(before)
    for number, slot in enumerate(halves):
      at = slice(int(start[number % 2]), int(start[number % 2]) + 3)
      expected[slot, at] = np.asarray(new)[number, at]
    np.testing.assert_array_equal(after, expected)
  np.testing.assert_array_equal(part.key_mask, table.key_mask)
  assert kv_cache.num_rows(table) == (10 if guided else 5)


def test_a_table_needs_rows_that_can_be_moved():
  fns = llamagen_fns(TARGET)._replace(take=None)
  with pytest.raises(ValueError, match="`take` and `put`"):
    cache_table.init_table(fns, num_slots=1, num_cache_slots=8, vocab=None)
