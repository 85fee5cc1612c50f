"""Trainings of a device and of its interval features, from a bundle to the bundle, on networks of a few weights."""

import dataclasses
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import train_inter_head, train_interval_features
from experiments.drafter_training import HELD_OUT
from jaxspec.bundle import load_bundle, read_bundle
from jaxspec.models.conditions import Prefixed
from tests.cli.fake_bundle import make_fake_bundle

NUM = HELD_OUT + 4


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  """A bundle of random networks, and samples of random tokens."""
  path = make_fake_bundle(tmp_path_factory.mktemp("device") / "bundle", cfg_scale=2.0)
  text = load_bundle(path, drafts=[]).text.config
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
def test_a_device_and_its_features_are_trained_and_shipped(bundle, tmp_path):
  run = short(train_inter_head.get_config("1x2"), bundle, 2)
  train_inter_head.train(run, tmp_path / "device", export_to=bundle)
  assert "inter-1x2" in read_bundle(bundle)["drafts"]
  first, _ = (json.loads(line) for line in (tmp_path / "device" / "metrics.jsonl").read_text().splitlines())
  assert first["radius"] == pytest.approx(0.5, abs=1e-6) and 0 < first["acceptance"] < 1
  loaded = load_bundle(bundle, drafts=["inter-1x2"])
  device = loaded.drafts["inter-1x2"]
  assert device.config.num_heads == 2 and device.meta["steps"] == 2 and device.meta["guided"] is False
  # Nothing of the cloud moved, and the device is no longer the cloud's first layer.
  chex.assert_trees_all_equal(loaded.target.params, load_bundle(bundle, drafts=[]).target.params)

  run = short(train_interval_features.get_config("inter-1x2"), bundle, 2)
  train_interval_features.train(run, tmp_path / "features", export_to=bundle)
  first, second = (json.loads(line) for line in (tmp_path / "features" / "metrics.jsonl").read_text().splitlines())
  assert first["gain"] == pytest.approx(0, abs=1e-6)  # features are zero at first, and then they are not
  assert second["gain"] != 0
  both = load_bundle(bundle, drafts=["inter-1x2", "inter-1x2-features"]).drafts
  shipped = both["inter-1x2-features"]
  assert shipped.config.features.width == loaded.target.config.dim
  caption = loaded.caption(["red apple"])
  inputs = Prefixed(caption, jnp.asarray([[1, 2, 3]]))
  one, other = (draft.fns.apply(draft.params, inputs)[0].logits for draft in (device, shipped))
  np.testing.assert_array_equal(one, other)  # the trunk stayed as it was


@pytest.mark.slow
def test_a_stopped_training_of_a_device_goes_on_bit_for_bit(bundle, tmp_path):
  run = short(train_inter_head.get_config("1"), bundle, 2)
  whole = train_inter_head.train(run, tmp_path / "whole")
  stopped = dataclasses.replace(run, loop=dataclasses.replace(run.loop, stop_after=1))
  assert int(train_inter_head.train(stopped, tmp_path / "parts").step) == 1
  parts = train_inter_head.train(run, tmp_path / "parts")
  chex.assert_trees_all_equal(jax.device_get(whole.params), jax.device_get(parts.params))


def test_a_folder_that_is_no_bundle_is_refused_before_the_training(tmp_path):
  run = short(train_inter_head.get_config("1"), tmp_path, 1)
  with pytest.raises(ValueError, match="bundle"):
    train_inter_head.train(run, tmp_path / "run", export_to=tmp_path)
  assert not (tmp_path / "run").exists()
