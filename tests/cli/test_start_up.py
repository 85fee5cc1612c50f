"""What a command compiles before it has an image: a few programs, however many leaves and layers its networks have."""

import collections

import jax
import numpy as np
import pytest

from jaxspec.core import rng
from jaxspec.io import checkpoints
from jaxspec.io.shipped import named
from jaxspec.run.batches import make_batches

_COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compiled(compiled_operations):
  """Counts programs by name, those out of the persistent cache too."""
  found = collections.Counter()

  def listen(event: str, duration: float, **about):
    if event == _COMPILED:
      found[about.get("fun_name", "")] += 1

  jax.clear_caches()
  jax.monitoring.register_event_duration_secs_listener(listen)
  yield found
  jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_a_load_compiles_nothing(compiled):
  folder = named("scenes")
  for part in ("target", "eagle", "text", "tokenizer"):
    checkpoints.load(folder / part)
  assert not compiled


@pytest.mark.slow
def test_generate_compiles_one_program_for_each_thing_it_does(run, bundle, compiled):
  """Encoding, keys, two decodes and pixels; one more for a step between them is room enough."""
  outcome = run("generate", "a red apple", "--checkpoint", bundle, "--compare", "--repeats", 1, "--out", "o.png")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert {name: compiled[name] for name in ("jit(apply)", "jit(_key_data)", "jit(decode)", "jit(_pixels)")} == {
    "jit(apply)": 1, "jit(_key_data)": 1, "jit(decode)": 2, "jit(_pixels)": 1,
  }  # fmt: skip
  assert compiled.total() <= 6, compiled


@pytest.mark.slow
def test_seeds_share_the_program_of_the_keys(compiled):
  condition = np.zeros((2, 1), np.float32)
  found = [make_batches(condition, samples=2, seed=seed, rows=4).key_data[0] for seed in (0, 2**32 - 1)]
  assert compiled.total() == 1
  for key_data, seed in zip(found, (0, 2**32 - 1)):
    keys = [rng.sample_key(jax.random.key(seed), p, s) for p in range(2) for s in range(2)]
    np.testing.assert_array_equal(key_data, np.stack([jax.random.key_data(key) for key in keys]))
