"""Training of an edge network and of its interval features, from bundle to bundle, on tiny networks."""

import dataclasses
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.train import interval_features
from jaxspec import load_pipeline
from jaxspec.io import checkpoints
from jaxspec.io.bundle import read_bundle
from jaxspec.models.conditions import Prefixed
from jaxspec.training.distillation import training as distillation
from jaxspec.training.distillation.drawn_samples import Drawing, draw_samples
from jaxspec.training.distillation.inter_head_student import InterHeadSettings, inter_head_student
from jaxspec.training.distillation.training import Training, export, join
from tests.cli.fake_bundle import make_fake_bundle
from tests.training.sharing import share_step

NUM, HELD_OUT = 36, 32
CAPTIONS = ("red apple", "blue cat", "sleeping cat")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  """A bundle of random networks."""
  return make_fake_bundle(tmp_path_factory.mktemp("edge") / "bundle", cfg_scale=2.0)


def short(run, steps):
  """A run of few steps; the last state is always saved."""
  loop = dataclasses.replace(run.loop, num_steps=steps, log_every=1, eval_every=0, checkpoint_every=0)
  return dataclasses.replace(run, num_samples=NUM, num_held_out=HELD_OUT, batch_size=2, loop=loop)


@pytest.mark.slow
@pytest.mark.parametrize("guided", [False, True])
def test_an_edge_network_and_its_features_are_trained_resumed_and_exported(bundle, tmp_path, monkeypatch, guided):
  pipeline = load_pipeline(bundle)
  before = jax.device_get(pipeline.target.params)
  drawing = Drawing(CAPTIONS, NUM)
  origin = drawing.origin(checkpoints.digest(pipeline.target.folder).hex()[:16], pipeline.sampling())
  np.savez(  # random tokens, which the features then help the cloud to predict
    tmp_path / "samples.npz", tokens=np.random.default_rng(0).integers(16, size=(NUM, 16)).astype(np.int32),
    lengths=np.full(NUM, 16, np.int32), prompt_rows=np.arange(NUM) % len(CAPTIONS), origin=json.dumps(origin),
  )  # fmt: skip
  samples = draw_samples(pipeline, drawing, tmp_path / "samples.npz", origin)
  run = short(InterHeadSettings(num_layers=1, num_heads=2, guided=guided), 2)
  training = Training(pipeline, samples, inter_head_student(pipeline, run)._replace(name="inter-1x2"), run)
  with monkeypatch.context() as patch:
    share_step(patch, distillation)
    whole = training.run(tmp_path / "edge")
    # Stopped after the first update, it resumes bit for bit.
    stopped = dataclasses.replace(run, loop=dataclasses.replace(run.loop, stop_after=1, checkpoint_every=1))
    again = lambda run: Training(pipeline, samples, inter_head_student(pipeline, run), run).run(tmp_path / "parts")
    assert int(again(stopped).state.step) == 1
    parts = again(run)
  export(training, whole, bundle / "inter-1x2", command="train")
  join(pipeline, bundle, "inter-1x2")
  chex.assert_trees_all_equal(jax.device_get(whole.state.params), jax.device_get(parts.state.params))
  assert "inter-1x2" in read_bundle(bundle).drafts
  first, _ = (json.loads(line) for line in (tmp_path / "edge" / "metrics.jsonl").read_text().splitlines())
  assert first["radius"] == pytest.approx(0.5, abs=1e-6) and 0 < first["acceptance"] < 1
  loaded = load_pipeline(bundle)
  edge = loaded.drafts["inter-1x2"]
  assert edge.config.num_heads == 2 and edge.meta["steps"] == 2 and edge.meta["guided"] is guided
  # The cloud did not change, and the edge network is no longer the cloud's first layer.
  chex.assert_trees_all_equal(jax.device_get(loaded.target.params), before)
  if guided:  # features are those of an edge network without guidance
    return

  (tmp_path / "captions.txt").write_text("\n".join(CAPTIONS))
  run = short(interval_features.get_config("inter-1x2"), 12)
  places = {"captions": "captions.txt", "samples": "samples.npz"}
  run = dataclasses.replace(run, bundle=str(bundle), **{field: str(tmp_path / name) for field, name in places.items()})
  run = dataclasses.replace(run, ema_decay=0.0, loop=dataclasses.replace(run.loop, eval_every=1))
  interval_features.train(run, tmp_path / "features", export_to=bundle)
  lines = [json.loads(line) for line in (tmp_path / "features" / "eval.jsonl").read_text().splitlines()]
  # Untrained ones change nothing (tests/models); then they help the cloud. A negative gain would be a loss.
  assert 0 < lines[-1]["gain"] and abs(lines[0]["gain"]) < 0.1 * lines[-1]["gain"]
  both = load_pipeline(bundle).drafts
  shipped = both["inter-1x2-features"]
  assert shipped.config.features.width == loaded.target.config.dim
  caption = loaded.encode(["red apple"]).condition
  inputs = Prefixed(caption, jnp.asarray([[1, 2, 3]]))
  one, other = (draft.fns.apply(draft.params, inputs)[0].logits for draft in (edge, shipped))
  np.testing.assert_array_equal(one, other)  # the trunk did not change


def test_a_folder_that_is_no_bundle_is_an_error_before_the_training(tmp_path):
  run = short(interval_features.get_config("inter-1"), 1)
  with pytest.raises(ValueError, match="bundle"):
    interval_features.train(run, tmp_path / "run", export_to=tmp_path)
  assert not (tmp_path / "run").exists()
