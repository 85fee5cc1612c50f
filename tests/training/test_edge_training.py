"""Training of an edge network and of its interval features, from bundle to bundle, on tiny networks."""

import dataclasses
import functools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.data.samples import pick, with_logits
from experiments.train import inter_head, interval_features, student
from experiments.train.student import HELD_OUT
from jaxspec import load_pipeline
from jaxspec.io.bundle import read_bundle
from jaxspec.models.conditions import Prefixed
from jaxspec.models.heads.inter_head import edge_from_cloud
from tests.cli.fake_bundle import make_fake_bundle
from tests.helpers import slow_but
from tests.training.sharing import share_step

NUM = HELD_OUT + 4


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  """A bundle of random networks, and samples of random tokens."""
  path = make_fake_bundle(tmp_path_factory.mktemp("edge") / "bundle", cfg_scale=2.0)
  text = load_pipeline(path).family.text.config
  generator = np.random.default_rng(0)
  np.savez(
    path / "samples.npz", tokens=generator.integers(16, size=(NUM, 16)).astype(np.int16),
    ids=generator.integers(text.vocab_size, size=(NUM, text.max_tokens)), mask=np.ones((NUM, text.max_tokens), bool),
  )  # fmt: skip
  return path


def short(run, bundle, steps):
  loop = dataclasses.replace(run.loop, num_steps=steps, log_every=1, eval_every=0, checkpoint_every=1)
  return dataclasses.replace(
    run, bundle=str(bundle), samples=str(bundle / "samples.npz"), num_samples=NUM, batch_size=2, loop=loop
  )


@pytest.mark.slow
def test_an_edge_network_and_its_features_are_trained_resumed_and_exported(bundle, tmp_path, monkeypatch):
  before = load_pipeline(bundle).target.params
  run = short(inter_head.get_config("1x2"), bundle, 2)
  with monkeypatch.context() as patch:
    share_step(patch, student)
    whole = inter_head.train(run, tmp_path / "edge", export_to=bundle)
    # Stopped after the first update, it resumes bit for bit.
    stopped = dataclasses.replace(run, loop=dataclasses.replace(run.loop, stop_after=1))
    assert int(inter_head.train(stopped, tmp_path / "parts").step) == 1
    parts = inter_head.train(run, tmp_path / "parts")
  chex.assert_trees_all_equal(jax.device_get(whole.params), jax.device_get(parts.params))
  assert "inter-1x2" in read_bundle(bundle).drafts
  first, _ = (json.loads(line) for line in (tmp_path / "edge" / "metrics.jsonl").read_text().splitlines())
  assert first["radius"] == pytest.approx(0.5, abs=1e-6) and 0 < first["acceptance"] < 1
  loaded = load_pipeline(bundle)
  edge = loaded.drafts["inter-1x2"]
  assert edge.config.num_heads == 2 and edge.meta["steps"] == 2 and edge.meta["guided"] is False
  # The cloud did not change, and the edge network is no longer the cloud's first layer.
  chex.assert_trees_all_equal(loaded.target.params, before)

  run = short(interval_features.get_config("inter-1x2"), bundle, 12)
  still = dataclasses.replace(run.loop, num_steps=1)
  still = dataclasses.replace(run, optimizer=dataclasses.replace(run.optimizer, learning_rate=1e-30), loop=still)
  interval_features.train(still, tmp_path / "still", export_to=bundle)
  unmoved = json.loads((tmp_path / "still" / "eval.jsonl").read_text().splitlines()[-1])
  assert unmoved["gain"] == pytest.approx(0, abs=1e-6)  # features are zero at first
  run = dataclasses.replace(run, ema_decay=0.0, loop=dataclasses.replace(run.loop, eval_every=1))
  interval_features.train(run, tmp_path / "features", export_to=bundle)
  lines = [json.loads(line) for line in (tmp_path / "features" / "eval.jsonl").read_text().splitlines()]
  # Then they help the cloud; a negative gain would be a loss.
  assert 0 < lines[-1]["gain"] and abs(lines[0]["gain"]) < 0.1 * lines[-1]["gain"]
  both = load_pipeline(bundle).drafts
  shipped = both["inter-1x2-features"]
  assert shipped.config.features.width == loaded.target.config.dim
  caption = loaded.encode(["red apple"]).condition
  inputs = Prefixed(caption, jnp.asarray([[1, 2, 3]]))
  one, other = (draft.fns.apply(draft.params, inputs)[0].logits for draft in (edge, shipped))
  np.testing.assert_array_equal(one, other)  # the trunk did not change


@pytest.mark.parametrize("guided", slow_but([False, True], [True]))
def test_kept_logits_of_the_cloud_give_the_same_loss(bundle, guided):
  pipeline = load_pipeline(bundle)
  run = dataclasses.replace(short(inter_head.get_config("1"), bundle, 1), guided=guided)
  config, params = edge_from_cloud(pipeline.target.config, pipeline.target.params, 1, jax.random.key(0))
  frozen = {"text": pipeline.family.text.params, "cloud": pipeline.target.params}
  target_fn = functools.partial(jax.jit(inter_head.make_target_fn(run, pipeline)), frozen)
  samples = {name: leaf[:5] for name, leaf in student.samples_of(run).items()}
  kept = with_logits(samples, target_fn, rows=2)
  assert kept["logits"].shape == (5, 1 + guided, 16, pipeline.family.space.vocab_size)
  loss_fn = jax.jit(inter_head.make_loss_fn(run, config, pipeline))
  rows = np.array([4, 1, 3])
  anew, read = (loss_fn(params, frozen, pick(batch, rows), jax.random.key(1)) for batch in (samples, kept))
  chex.assert_trees_all_close(anew[0], read[0], rtol=1e-5)
  other = loss_fn(params, frozen, pick(kept, rows) | {"logits": kept["logits"][:3]}, jax.random.key(1))
  assert abs(other[0] - read[0]) > 1e-3  # the rows differ


def test_a_folder_that_is_no_bundle_is_an_error_before_the_training(tmp_path):
  run = short(inter_head.get_config("1"), tmp_path, 1)
  with pytest.raises(ValueError, match="bundle"):
    inter_head.train(run, tmp_path / "run", export_to=tmp_path)
  assert not (tmp_path / "run").exists()
