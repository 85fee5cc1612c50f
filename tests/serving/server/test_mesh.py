"""Servers on eight devices: the tokens of one device, and the exchanges of the devices."""

import pytest

from tests import devices
from tests.serving.server import on_devices

pytestmark = pytest.mark.slow
PROGRAM = "tests.serving.server.on_devices"


@pytest.fixture(scope="module")
def eight_devices(tmp_path_factory):
  """What eight devices give."""
  return devices.output_of(devices.run(PROGRAM, tmp_path_factory.mktemp("devices"), devices=8))


def test_tokens_on_eight_devices_are_those_of_one(eight_devices):
  """12 rows of two profiles on 8 slots, all at once and a random half at a time. Alone, frames are the same bytes."""
  assert set(eight_devices["meshes"]) == set(on_devices.MESHES)
  for mesh, found in eight_devices["meshes"].items():
    assert found["same"] and found["bytes"], mesh
    assert found["free"] == 8


def test_a_step_exchanges_two_sums_a_block(eight_devices):
  """Nothing else, for every kind of streams: slots, rows and groups never meet. And the table is written in place."""
  for mesh, found in eight_devices["meshes"].items():
    sums = {} if mesh == "data=8" else {"all-reduce": 2 * on_devices.LAYERS}
    for step in found["exchanges"]:
      assert step.pop("kept") >= step.pop("table") > 0
      assert step == sums, mesh


def test_every_mesh_has_numerics_of_its_own(eight_devices):
  assert len(set(eight_devices["numerics"])) == 1 + len(on_devices.MESHES)
