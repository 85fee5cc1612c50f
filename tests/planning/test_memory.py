"""Caches and batches of 7B networks against published figures; parts and phases."""

import dataclasses

import pytest

from jaxspec.core.mesh import MeshSizes
from jaxspec.core.network import Network
from jaxspec.models import registry
from jaxspec.planning.memory_plan import BESIDE, PIXELS, ROUNDS, STAYS, Memory, Need, cache_of
from jaxspec.planning.published_models import MODELS
from jaxspec.planning.sizes import Sized

# Largest batch of guided images of a 7B network, in 90 % of the memory, less 14.03 GB of weights and 3 GB for activations
# and a draft: of 80 GB, of 141 GB, of 8 x 80 GB.
AT_ONCE = {"anole-7b": (1.14, 48, 96, 470), "lumina-7b-768": (2.52, 21, 43, 212), "lumina-7b-1024": (4.42, 12, 24, 121)}
WEIGHTS, RESERVED = 2 * 7_013_158_912, 3e9


def chameleon(name: str) -> Sized:
  """The functions of a published network, without its parameters."""
  config = dataclasses.replace(MODELS[name].config, dtype="bfloat16")
  return Sized(Network(registry.FAMILIES["chameleon"].make_fns(config), {}, config))


def test_cache_of_a_token():
  """0.524 MB for each token and row: 32 layers, keys and values of 4096 channels in two bytes."""
  network = chameleon("anole-7b")
  assert (cache_of(network, MeshSizes(), 1, 800, "gpu") - cache_of(network, MeshSizes(), 1, 0, "gpu")) / 800 == 524_288 + 1


@pytest.mark.parametrize("name", AT_ONCE)
def test_images_at_once(name):
  gigabytes, *largest = AT_ONCE[name]
  model, network = MODELS[name], chameleon(name)
  slots = model.prefix + model.num_tokens
  assert cache_of(network, MeshSizes(), 2, slots, "gpu") / 1e9 == pytest.approx(gigabytes, rel=0.01)
  for (size, mesh), expected in zip(((80, MeshSizes()), (141, MeshSizes()), (80, MeshSizes(1, 8))), largest):
    needs = (
      Need("weights", STAYS, WEIGHTS / mesh.model),
      Need("allowance", STAYS, RESERVED),
      Need("caches", ROUNDS, each=cache_of(network, mesh, 2, slots, "gpu")),
    )
    # Slots are rounded up to eights, and the table's sizes to three digits.
    assert Memory(needs, 0.9 * size * 1e9).most_rows() == pytest.approx(expected, rel=0.006, abs=1)


def test_phases():
  """The memory of rounds is free during pixel decoding."""
  memory = Memory((Need("w", STAYS, 10), Need("c", ROUNDS, 1, 2), Need("p", PIXELS, 0, 5)), 40)
  assert memory.total(1) == 10 + 5 and memory.total(0) == 11 and memory.total(6) == 40
  assert memory.most_rows() == 6 and memory.most_rows(ROUNDS) == 14
  assert Memory(memory.needs, 9).most_rows() == 0
  assert Memory((Need("w", STAYS, 10),), 40).most_rows() is None
  beside = Memory((*memory.needs, Need("tokenizer", BESIDE, 3)), 40)
  assert beside.total(6) == 43 and beside.decode(6) == memory.decode(6) == 10 + 13 and beside.most_rows() == 5
