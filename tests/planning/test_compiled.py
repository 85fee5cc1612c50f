"""Compiling for a TPU without one: errors for missing parts are one line; with libtpu a tiny decode compiles."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxspec.planning import make_plan, parse_device
from jaxspec.planning.compiled import compile_plan
from jaxspec.planning.published_models import MODELS
from tests.planning.test_plan import CAUSAL_TOKENS, DISCRETE, MASKED

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
# In a separate process, since a loaded TPU compiler stays in its process.
COMPILE = """
from jaxspec.core.mesh import MeshSizes
from jaxspec.planning import make_plan, parse_device
from jaxspec.planning.compiled import compile_plan
from tests.methods.networks import small
from tests.planning.test_plan import DISCRETE
for mesh in (MeshSizes(4, 1), MeshSizes(2, 2)):
  plan = make_plan(DISCRETE, parse_device("v5e:2x2"), batches=(4,), method=small("speculative"), mesh=mesh)
  found = compile_plan(plan, 4)
  assert found.fits and found.bytes > found.arguments > 0 and found.temporary > 0, found
  # Rows never meet: what is exchanged in loops is two sums of a block, embeddings and logits of a group.
  assert set(found.exchanges) == ({"all-gather", "all-reduce"} if mesh.model > 1 else set()), found
print("compiled")
"""


def test_without_a_tpu_or_its_library(monkeypatch):
  with pytest.raises(ValueError, match=r"a TPU \(v5e, v5p, v6e\) .* got h100"):
    compile_plan(make_plan(DISCRETE, parse_device("h100")), 1)
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"libtpu .* pip install 'jaxspec-decoding\[tpu-plan\]'"):
    compile_plan(make_plan(DISCRETE, parse_device("v5e:2x2"), batches=(2,)), 2)


def test_too_few_chips(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
  with pytest.raises(ValueError, match="at least 4 chips to compile for, as v5e:2x2, we instead got v5e"):
    compile_plan(make_plan(DISCRETE, parse_device("v5e")), 1)


def test_conditions():
  """Every kind of model has a condition with one row per row of the batch."""
  kinds = {model.name: model.condition_shapes(3) for model in (DISCRETE, CAUSAL_TOKENS, MASKED)}
  assert {name: type(found).__name__ for name, found in kinds.items()} == {
    "tiny": "ClassLabels", "causal": "ClassLabels", "masked": "OrderedLabels",
  }  # fmt: skip
  assert all(found.batch_size == 3 for found in kinds.values())
  assert MODELS["llamagen-xl-t2i"].config.model_type == "t2i"


@pytest.mark.slow
@pytest.mark.skipif(not HAS_LIBTPU, reason="needs the tpu-plan extra")
def test_a_tiny_decode():
  root = Path(__file__).parents[2]
  environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
  outcome = subprocess.run([sys.executable, "-c", COMPILE], cwd=root, env=environment, capture_output=True, text=True)
  assert outcome.returncode == 0 and "compiled" in outcome.stdout, outcome.stderr[-2000:]
