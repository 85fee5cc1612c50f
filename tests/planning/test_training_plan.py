"""The plan of a training: its formulas by hand on one network, and against the compiler on another."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxspec.planning import DEVICES, find_model
from jaxspec.planning.training_plan import student_of, training_plan
from jaxspec.training.distillation.draft_student import DraftSettings
from jaxspec.training.distillation.eagle_student import EagleSettings
from jaxspec.training.distillation.inter_head_student import InterHeadSettings
from jaxspec.training.distillation.spatial_student import SpatialSettings
from jaxspec.training.distillation.students import STUDENTS

DEVICE = DEVICES["h100"]


def plan(settings, name="llamagen-b", **options):
  return training_plan(find_model(name), settings, DEVICE, **{"dtype": "bfloat16", "batch": 8} | options)


def test_parts_are_the_formulas():
  """A draft of one layer of GPT-B: 12 layers of width 768, 16,384 ids, 256 tokens, one class as prompt, guided."""
  found = plan(DraftSettings(num_layers=1))
  shapes = jax.tree.leaves(found.student.network.params)
  number = sum(leaf.size for leaf in shapes)
  assert found.memory["student, its mean, moments and gradient"] == 20 * number
  assert found.row_bytes == 256 * 16384 * 2 and not found.is_kept
  distributions = 6 * 4 * 16 * 256 * 16384
  of_target = 16 * found.row_bytes
  rest = found.memory["updates: activations and distributions"] - distributions - of_target
  assert 0 < rest < 0.3 * distributions  # activations of a block of either network
  multiplied = 3 * (2.0 * 16 * 256 * (768 * 16384 + 12 * 768**2))  # attention: 4 squares, MLP: 3 of 8 / 3
  assert found.seconds["updates"] == pytest.approx(1400 * multiplied / DEVICE.bfloat16, rel=0.1)
  assert found.total < found.usable and found.fits


def test_outputs_that_fit_are_computed_once():
  few, many = (plan(EagleSettings(num_samples=num)) for num in (1024, 65_536))
  assert few.is_kept and not many.is_kept
  assert few.row_bytes == 2 * 257 * 768
  each = few.seconds["reading"] / (1024 / 16)
  assert many.seconds["reading"] == pytest.approx(2000 * each)
  assert few.seconds["updates"] == many.seconds["updates"]


@pytest.mark.slow
def test_what_makes_a_training_dearer():
  one, three = (plan(InterHeadSettings(num_layers=1, num_heads=heads)) for heads in (1, 3))
  assert one.total < three.total and one.seconds["updates"] < three.seconds["updates"]
  assert plan(EagleSettings()).total < plan(EagleSettings(), dtype="float32").total
  assert plan(EagleSettings(), batch=8).seconds["drawing"] > plan(EagleSettings(), batch=64).seconds["drawing"]
  float32 = dataclasses.replace(EagleSettings(), matmul_precision=None)
  assert plan(EagleSettings()).seconds["updates"] < plan(float32).seconds["updates"]
  assert not plan(InterHeadSettings(batch_size=128), "anole-7b").fits


@pytest.mark.slow
def test_heads_are_those_that_are_trained():
  config = find_model("llamagen-b").config
  assert student_of(find_model("llamagen-b"), EagleSettings()).config.dim == config.dim
  spatial = SpatialSettings(num_places=31, num_rows=3)
  assert student_of(find_model("llamagen-b"), spatial).config.slots == 3 * 16
  with pytest.raises(ValueError, match="a target that draws images for spatial heads"):
    student_of(find_model("gpt-neo-125m"), spatial)
  assert student_of(find_model("gpt-neo-125m"), InterHeadSettings(num_layers=3)).config.trunk.num_layers == 3
  with pytest.raises(ValueError, match="heads can be put on"):
    student_of(find_model("mar-b"), EagleSettings())


@pytest.mark.slow
def test_the_table_of_the_page_is_computed():
  """docs/training.md, on one A100 of 80 GB."""
  page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
  rows = re.findall(r"^\| `([\w.-]+)` \| (eagle|spatial|draft|inter-head) \| (.*) \|$", page, re.M)
  assert len(rows) == 8
  for name, kind, shown in rows:
    found = training_plan(find_model(name), STUDENTS[kind].settings(), DEVICES["a100-80"], dtype="bfloat16", batch=32)
    figures = [found.student.num_parameters / 1e6, found.total / 1e9, found.row_bytes / 1e6]
    minutes = [found.seconds[part] / 60 for part in ("drawing", "reading", "updates")]
    assert shown == " | ".join([f"{figures[0]:,.0f}", *(f"{value:.1f}" for value in (*figures[1:], *minutes))]), (name, kind)


@pytest.mark.slow
def test_the_compiler_needs_about_as_much_memory(tmp_path):
  """Temporaries of a compiled update on this machine, within a factor of two of the formula."""
  from jaxspec.models.llamagen import LlamaGenConfig
  from jaxspec.planning.published_models import Model
  from jaxspec.run.loading import load_pipeline
  from jaxspec.training import train_state
  from jaxspec.training.distillation.draft_student import draft_student
  from jaxspec.training.distillation.samples import Samples
  from jaxspec.training.optimizer import make_optimizer
  from tests.run import tiny

  config = LlamaGenConfig(num_classes=5, dim=128, num_layers=3, num_heads=4, vocab_size=4096, num_tokens=64)
  settings = DraftSettings(batch_size=8, matmul_precision=None)
  vq = dataclasses.replace(tiny.VQ, num_codes=4096)
  target = tiny.save(tmp_path / "target", config, 0, scale=0.02)
  pipe = load_pipeline(target, tokenizer=tiny.save(tmp_path / "vq", vq, 1))
  student = draft_student(pipe, settings)
  samples = Samples(np.zeros((8, 64), np.int32), np.full(8, 64), np.zeros(8, int), pipe.encode([1]).condition)
  optimizer = make_optimizer(settings.optimizer, 10)

  def update(params, opt_state, target, batch):
    taught = jax.lax.stop_gradient(student.teach_fn(target, batch))
    gradients = jax.grad(lambda params: student.loss_fn(params, (), batch | taught, jax.random.key(0))[0])(params)
    return optimizer.update(gradients, opt_state, params)

  state = train_state.create(student.params, optimizer)
  compiled = jax.jit(update).lower(state.params, state.opt_state, student.target, samples.batch(np.arange(8))).compile()
  needed = compiled.memory_analysis().temp_size_in_bytes
  model = Model("own", "llamagen", config, 64, 1, 4.0)
  planned = training_plan(model, settings, DEVICE, dtype="float32", batch=8).memory["updates: activations and distributions"]
  assert 0.5 * planned < needed < 2 * planned, (needed, planned)
