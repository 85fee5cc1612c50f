"""Divided decodes on eight devices of one CPU give the tokens of one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxspec.planning.mesh import Mesh
from jaxspec.planning.shardings import device_mesh, of_params, of_rows

ROOT = Path(__file__).parents[2]


def test_specs():
  """Names decide; a side of the tree is no part of them."""
  mesh = device_mesh(Mesh(1, 1), jax.devices()[:1])
  shapes = lambda **leaves: {name: {"weight": np.zeros(shape)} for name, shape in leaves.items()}
  found = of_params((shapes(wqkv=(6, 4), wo=(4, 4), norm=(4,)), {"scale": np.zeros(())}), mesh)
  specs = [leaf.spec for leaf in jax.tree.leaves(found)]
  assert specs == [PartitionSpec(), PartitionSpec(None, "model"), PartitionSpec("model"), PartitionSpec()]
  assert {leaf.spec for leaf in jax.tree.leaves(of_params(shapes(wo=(4, 4)), mesh, whole=True))} == {PartitionSpec()}
  assert of_rows(np.zeros((2, 3)), mesh).spec == PartitionSpec("data")


def test_refused():
  with pytest.raises(ValueError, match="4 devices for the mesh data=2,model=2, we instead got 1"):
    device_mesh(Mesh(2, 2), jax.devices()[:1])


@pytest.mark.slow
def test_divided_decodes():
  environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
  outcome = subprocess.run(
    [sys.executable, "-m", "tests.planning.sharded_process"], cwd=ROOT, env=environment, capture_output=True, text=True
  )
  assert outcome.returncode == 0, outcome.stderr
  found = json.loads(outcome.stdout.splitlines()[-1])
  assert found.pop("devices") == [8, 2, 2] * 2
  for method, tokens in found.items():
    alone = tokens.pop("alone")
    assert tokens and all(divided == alone for divided in tokens.values()), method
