"""What drafters are trained on and by: samples and their files, the outputs of the target, masks, devices."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import load_pipeline
from jaxspec.core.footprint import tree_bytes
from jaxspec.training.distillation.drawn_samples import Drawing, draw_samples, encode_images, image_side
from jaxspec.training.distillation.eagle_student import EagleSettings
from jaxspec.training.distillation.samples import Samples
from jaxspec.training.distillation.student import DistillationSettings, acceptance_of, master
from jaxspec.training.distillation.students import STUDENTS
from jaxspec.training.distillation.training import Training, check_devices
from tests.run import tiny

KINDS = ("eagle", "block-head", "draft", "inter-head")


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
  folder = tmp_path_factory.mktemp("distilled")
  config = dataclasses.replace(tiny.CLASSES, num_layers=2)
  target = tiny.save(folder / "target", config, 0)
  return load_pipeline(target, tokenizer=tiny.save(folder / "vq", tiny.VQ, 2))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
  return load_pipeline(tiny.texts(tmp_path_factory.mktemp("texts")) / "target")


def text_samples(texts):
  """Rows of random tokens, the second with three valid ones; prompts of different lengths."""
  tokens = np.random.default_rng(0).integers(0, 200, (2, 6)).astype(np.int32)
  condition = texts.encode(["once", "on"]).condition
  return Samples(tokens, np.array([6, 3], np.int32), np.arange(2, dtype=np.int32), condition)


def student_of(kind, pipeline):
  settings = STUDENTS[kind].settings()
  if kind != "eagle":
    settings = dataclasses.replace(settings, num_layers=1)
  return STUDENTS[kind].make_student(pipeline, settings)


@pytest.mark.slow
def test_drawn_rows_are_kept_and_continued(pipe, tmp_path):
  """A file that is continued has the rows of one that is drawn at once; every prompt comes once before any repeats."""
  few, more = Drawing(range(5), 4, batch=4), Drawing(range(5), 10, batch=4)
  parts, whole = tmp_path / "parts.npz", tmp_path / "whole.npz"
  first = draw_samples(pipe, few, parts, {"of": 1})
  continued, drawn = draw_samples(pipe, more, parts, {"of": 1}), draw_samples(pipe, more, whole, {"of": 1})
  chex.assert_trees_all_equal(continued, drawn)
  np.testing.assert_array_equal(first.tokens, drawn.tokens[:4])
  assert drawn.tokens.shape == (10, 4) and (drawn.lengths == 4).all()
  assert sorted(drawn.prompt_rows[:5]) == sorted(drawn.prompt_rows[5:]) == [0, 1, 2, 3, 4]
  with pytest.raises(ValueError, match="another of: name another file"):
    draw_samples(pipe, more, parts, {"of": 2})
  parts.write_bytes(parts.read_bytes()[:200])
  with pytest.raises(ValueError, match="Corrupt samples .*parts.npz"):
    draw_samples(pipe, more, parts, {"of": 1})


def test_images_become_their_codes(pipe):
  tokenizer = pipe.family.tokenizer
  pixels = pipe.family.decode(np.array([[1, 2, 3, 4], [5, 6, 7, 0], [0, 1, 0, 1]], np.int32))
  assert image_side(pipe) == pixels.shape[1]
  samples = encode_images(pipe, pixels, [0, 3, 1], batch=2)
  images = jnp.asarray(pixels, jnp.float32) * 2 / 255 - 1
  np.testing.assert_array_equal(samples.tokens, jax.jit(tokenizer.fns.encode)(tokenizer.params, images)[0])
  np.testing.assert_array_equal(samples.batch(np.array([1]))["condition"].labels, [3])


def test_images_need_a_target_of_images(texts):
  with pytest.raises(ValueError, match="draws square images"):
    image_side(texts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_after_the_end_of_a_row_do_not_count(texts, kind):
  student, samples = student_of(kind, texts), text_samples(texts)
  loss_fn = jax.jit(lambda batch: student.loss_fn(
    student.params, student.frozen, batch | student.teach_fn(student.target, batch), None
  )[0])  # fmt: skip
  batch = samples.batch(np.arange(2))
  other = batch | {"tokens": np.where(batch["valid"], batch["tokens"], 7)}
  different = batch | {"tokens": np.where(batch["valid"] & (np.arange(6) == 1), 7, batch["tokens"])}
  assert loss_fn(batch) == loss_fn(other) != loss_fn(different)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kept_outputs_of_the_target_give_the_same_loss(pipe, kind):
  student = student_of(kind, pipe)
  tokens = np.random.default_rng(1).integers(0, 8, (5, 4)).astype(np.int32)
  samples = Samples(tokens, np.full(5, 4), np.arange(5), pipe.encode(list(range(5))).condition)
  teach = jax.jit(student.teach_fn)
  kept = samples.with_taught(lambda batch: teach(student.target, batch), 2)
  rows = np.array([4, 1])
  loss_fn = jax.jit(lambda batch: student.loss_fn(student.params, student.frozen, batch, jax.random.key(0))[0])
  anew = loss_fn(samples.batch(rows) | teach(student.target, samples.batch(rows)))
  np.testing.assert_allclose(loss_fn(kept.batch(rows)), anew, rtol=1e-4)
  others = kept.batch(rows) | {name: leaf[:2] for name, leaf in kept.taught.items()}
  assert abs(loss_fn(others) - anew) > 1e-3  # the rows differ


def test_acceptance_is_the_mean_over_valid_positions():
  p, q = jnp.array([[[0.5, 0.5], [1.0, 0.0]]]), jnp.array([[[0.25, 0.75], [0.0, 1.0]]])
  assert acceptance_of(p, q, jnp.array([[True, False]])) == 0.75 and acceptance_of(p, q, jnp.array([[True, True]])) == 0.375


def test_a_student_does_not_share_arrays_with_its_target(pipe):
  """Updates donate theirs."""
  student = student_of("draft", pipe)
  assert {leaf.dtype for leaf in jax.tree.leaves(master({"w": jnp.ones(2, jnp.bfloat16)}))} == {jnp.dtype("float32")}
  buffers = lambda tree: {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree)}
  assert not buffers(student.params) & buffers(pipe.target.params)


@pytest.mark.slow
def test_checkpoints_of_a_training_hold_no_target(pipe, tmp_path):
  settings = EagleSettings(num_samples=4, num_held_out=2, batch_size=2, kept_gib=0.0)
  student = student_of("eagle", pipe)
  samples = Samples(np.zeros((4, 4), np.int32), np.full(4, 4), np.zeros(4, int), pipe.encode([1]).condition)
  training = Training(pipe, samples, student, settings)
  assert not training._taught(lambda text: None)[1]  # so that the loss of every step reads the target
  stopped = dataclasses.replace(settings, loop=dataclasses.replace(settings.loop, num_steps=1, eval_every=0))
  state = dataclasses.replace(training, settings=stopped).run(tmp_path).state
  assert tree_bytes(state) < 20.1 * sum(leaf.size for leaf in jax.tree.leaves(student.params)) and state.extra == ()


def test_settings_that_do_not_fit_are_named():
  for fields, words in (
    ({"num_held_out": 100}, "num_held_out in whole batches of 16, we instead got 100"),
    ({"num_samples": 128}, "num_samples above the 128 held out"),
  ):
    with pytest.raises(ValueError, match=words):
      DistillationSettings(**fields).check(tiny.checkpoint(tiny.CLASSES, "own"))
  with pytest.raises(ValueError, match="fewer than the target's 1"):
    STUDENTS["draft"].settings().check(tiny.checkpoint(tiny.CLASSES, "own"))
  with pytest.raises(ValueError, match="1 to 1 layers, we instead got 2"):
    STUDENTS["inter-head"].settings().check(tiny.checkpoint(tiny.CLASSES, "own"))
  with pytest.raises(ValueError, match="network that heads can be put on"):
    STUDENTS["eagle"].settings().check(tiny.checkpoint(tiny.MAR, "own"))
  with pytest.raises(ValueError, match="that 3 devices divide, we instead got 16"):
    check_devices(DistillationSettings(), 3)
