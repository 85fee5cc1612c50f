"""`jaxspec info`: its output, from headers only."""

import dataclasses
import json
import shutil

import pytest

from jaxspec.cli.info import Leaf, group
from jaxspec.io.shipped import BUNDLES
from tests.cli import fake_bundle, fake_classes, fake_language


def test_checkpoint(run, bundle, tmp_path):
  """Equal blocks are one line."""
  copy = shutil.copytree(bundle, tmp_path / "two_blocks")
  meta = json.loads((copy / "target" / "config.json").read_text())["meta"]
  two_blocks = dataclasses.replace(fake_bundle.TARGET, num_layers=2)
  outcome = run("info", fake_bundle.save_random(copy / "target", two_blocks, 0, **meta))
  assert outcome.exit_code == 0, outcome.output
  shown = ("llamagen", "parameters", "float32", "dim=16", "CC0-1.0", "random numbers", "layers_*.attention.wo.weight")
  for words in shown:
    assert words in outcome.stdout
  assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_shipped_bundles_are_listed(run):
  lines = run("info").stdout.splitlines()
  assert [line.split()[0] for line in lines[1 : len(BUNDLES) + 1]] == list(BUNDLES)
  assert "speculative" in lines[1]


def test_bundle(run, bundle):
  outcome = run("info", bundle)
  assert outcome.exit_code == 0, outcome.output
  for words in ("tokenizer", "text_encoder", "draft small", "draft distilled", "word pieces", "psnr=12.3", "gamma=3"):
    assert words in outcome.stdout
  assert "wqkv" not in outcome.stdout
  assert "wqkv" in run("info", bundle, "--full").stdout


def test_things_that_a_small_world_knows(run):
  outcome = run("info", "scenes")
  assert outcome.exit_code == 0 and "things  28: cat, dog, panda" in outcome.stdout


def test_bundle_of_vector_tokens(run, tmp_path):
  outcome = run("info", fake_classes.make(tmp_path / "classes", fake_classes.CAUSAL))
  assert outcome.exit_code == 0, outcome.output
  shown = (
    "kl_vae",
    "target  causal_tokens",
    "draft small",
    "steps=5",
    "gamma=2",
    "3: animal-mammal, animal-bird, food-fruit",
  )
  for words in shown:
    assert words in outcome.stdout


def test_a_pair_without_a_bundle_file(run, tmp_path):
  outcome = run("info", fake_language.make(tmp_path / "pair"))
  assert outcome.exit_code == 0, outcome.output
  assert "target  gpt_neo" in outcome.stdout and "draft draft  llama" in outcome.stdout


def test_weights_may_be_missing_from_the_end(run, bundle, tmp_path):
  """A bundle with one damaged part shows the others and ends in one line."""
  copy = shutil.copytree(bundle, tmp_path / "copy")
  (copy / "draft" / "params.safetensors").write_bytes(b"\0" * 20)
  outcome = run("info", copy)
  assert outcome.exit_code == 2
  assert "cannot be read" in outcome.stdout and "draft distilled" in outcome.stdout
  assert len(outcome.stderr.splitlines()) == 1 and "draft" in outcome.stderr


@pytest.mark.parametrize("damage", ["missing", "no folder", "empty config"])
def test_errors(fails, bundle, tmp_path, damage):
  copy = shutil.copytree(bundle / "target", tmp_path / "copy")
  if damage == "missing":
    (copy / "params.safetensors").unlink()
  elif damage == "empty config":
    (copy / "config.json").write_text('{"family": "llamagen", "config": 3}')
  else:
    shutil.rmtree(copy)
  assert str(copy) in fails("info", copy)


def test_group():
  leaves = [Leaf(f"layers_{i}.wo.weight", (4, 4), "F32") for i in (0, 10, 2)] + [Leaf("conv2.bias", (4,), "F32")]
  assert [(name, times) for name, times, _ in group(leaves)] == [("conv2.bias", 1), ("layers_*.wo.weight", 3)]
