"""`jaxspec train` of drafters: from a converted folder to a head that decodes; resuming, and errors."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conversion import emu3
from jaxspec.io.bundle import read_bundle
from tests.cli import fake_bundle, fake_language
from tests.models import emu3_golden

SHORT = {
  "num_samples": 12, "num_held_out": 4, "batch_size": 2, "loop.num_steps": 4, "loop.log_every": 1, "loop.eval_every": 2,
  "loop.checkpoint_every": 2, "optimizer.warmup_steps": 1,
}  # fmt: skip


IN_ONE_GO = {"loop.checkpoint_every": 0}  # the last state is always saved


def short(**changed):
  return [word for name, value in {**SHORT, **changed}.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def own(class_models, tmp_path):
  folder = Path(shutil.copytree(class_models, tmp_path / "own"))
  (folder / "vq").rename(folder / "tokenizer")
  shutil.rmtree(folder / "draft")
  return folder


@pytest.mark.slow
def test_a_training_is_drawn_stopped_resumed_and_decodes(run, fails, own, tmp_path):
  """A stopped and resumed training has the losses of an undisturbed one on two devices that share every batch, up to the
  order of sums; another one is refused. On one device, they are the same bit for bit: tests/training/test_edge_training.py.
  """
  short_run = ("train", "inter-head", "--model", "own", *short(num_layers=1))
  config = tmp_path / "run.toml"
  config.write_text("batch_size = 2\n[loop]\nnum_steps = 4\n[loss]\nvariation = 1.0\n")
  command = (*short_run, "--config", config, "--run-dir", "parts", "--export", "own")
  stopped = run(*command, "--set", "loop.stop_after=3")  # after the checkpoint of step 2
  assert stopped.exit_code == 0 and stopped.stdout.startswith("step 2") and "acceptance" in stopped.stdout, stopped.output
  assert len(Path("parts/metrics.jsonl").read_text().splitlines()) == 3
  outcome = run(*command)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  first, figure, *_ = outcome.stdout.splitlines()
  assert first.startswith("step 4") and figure.startswith("inter-1: expected acceptance 0.")
  env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
  words = ("--samples", "parts/samples.npz", "--run-dir", "two", "--mesh", "data=2")
  words = [sys.executable, "-m", "jaxspec.cli.main", *short_run, *words]
  done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  losses = lambda name: [json.loads(line)["loss"] for line in Path(name, "metrics.jsonl").read_text().splitlines()]
  np.testing.assert_allclose(losses("parts"), losses("two"), rtol=1e-4)
  assert read_bundle("own").drafts == {"inter-1": "inter-1"} and "wrote two/inter-1" in done.stdout
  weights = lambda folder: Path(folder, "inter-1", "params.safetensors").read_bytes()
  exported = weights("own")
  meta = json.loads(Path("own/inter-1/config.json").read_text())["meta"]
  assert meta["command"].startswith("jaxspec train inter-head --model own --export own --set num_samples=12")
  outcome = run("generate", "--model", "own", "--class", 1, "--method", "ciar", "--tau", 0.5, "--out", "a.png")
  assert outcome.exit_code == 0 and Path("a.png").is_file(), outcome.output
  assert "resume parts with its batch_size 2, we instead got 4" in fails(*command, "--set", "batch_size=4")
  assert "we instead got a run in parts" in fails(*command, "--no-resume")
  shutil.copytree("own", "wider")
  fake_bundle.save_random(Path("wider/target"), fake_bundle.CLASS_TARGET, 7)  # of the same shapes
  assert "target of the training in the bundle wider" in fails(*command, "--export", "wider")
  assert weights("own") == exported


@pytest.mark.slow
def test_spatial_heads_draft(run, fails, own):
  command = ("train", "spatial", "--model", "own", "--export", "own", *short(num_places=3, num_rows=1, **IN_ONE_GO))
  outcome = run(*command)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert outcome.stdout.splitlines()[2].startswith("spatial: expected acceptance 0.")
  generate = ("generate", "--model", "own", "--class", 1, "--method", "spatial", "--out", "a.png")
  outcome = run(*generate, "--gamma", 3)
  assert outcome.exit_code == 0 and "acceptance rate" in outcome.stdout, outcome.output
  assert "gamma of at most the 3 places of the heads, we instead got 4" in fails(*generate, "--gamma", 4)


@pytest.mark.slow
def test_a_text_target_and_a_head_of_its_own(run, tmp_path):
  """A chain of features is trained in the next test, a draft that is cut from a text network in
  tests/experiments/test_cut_draft.py."""
  config = dataclasses.replace(fake_language.TARGET, num_layers=1)
  fake_bundle.save_random(tmp_path / "text", config, 0, scale=0.2)
  fake_language.tokenizer().save(str(tmp_path / "text" / "tokenizer.json"))
  (tmp_path / "beginnings.txt").write_text("a b\nc\n")
  steps = {"loop.num_steps": 24, "loop.eval_every": 8, "optimizer.warmup_steps": 2} | IN_ONE_GO
  outcome = run(
    "train", "block-head", "--model", "text", "--prompt-file", "beginnings.txt", "--max-tokens", 8, *short(**steps)
  )
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  losses = [json.loads(line)["loss"] for line in Path("runs/block-2/eval.jsonl").read_text().splitlines()]
  assert losses[-1] < losses[0]
  options = ("--model", "text", "--draft-model", "runs/block-2/block-2", "--max-tokens", 6)
  outcome = run("generate", "--text", "a", *options, "--method", "block-head")
  assert outcome.exit_code == 0 and "acceptance rate" in outcome.stdout, outcome.output


@pytest.mark.slow
def test_a_head_of_a_network_with_row_ends(run, tmp_path):
  """Of Emu3, which draws a part of its vocabulary; with one block."""
  emu3_golden.write_vq(tmp_path / "hub" / "Emu3-VisionTokenizer")
  emu3.convert_folder(
    emu3_golden.write_small(tmp_path / "hub" / "small"), tmp_path / "emu3", {}, dtype="float32", ratio="1:2", area=32
  )
  (tmp_path / "prompts.txt").write_text("a red fox\ntwo cats\n")
  steps = {"loop.num_steps": 60, "loop.eval_every": 20, "num_samples": 36, "batch_size": 4} | IN_ONE_GO
  outcome = run("train", "eagle", "--model", "emu3", "--prompt-file", "prompts.txt", *short(**steps))
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  losses = [json.loads(line)["loss"] for line in Path("runs/eagle/eval.jsonl").read_text().splitlines()]
  assert losses[-1] < losses[0]
  outcome = run("generate", "a red fox", "--model", "emu3", "--method", "eagle-chain", "--draft-model", "runs/eagle/eagle")
  assert outcome.exit_code == 0 and "acceptance rate" in outcome.stdout, outcome.output


@pytest.mark.slow
def test_images_of_ones_own(run, own, tmp_path):
  (tmp_path / "images").mkdir()
  for number in range(6):
    pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
  (tmp_path / "images" / "prompts.txt").write_text("0\n1\n2\n3\n4\n0\n")
  outcome = run("train", "eagle", "--model", "own", "--images", "images", *short(num_held_out=2, **IN_ONE_GO))
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert not Path("runs/eagle/samples.npz").exists()
  assert json.loads(Path("runs/eagle/run.json").read_text())["settings"]["num_samples"] == 6


def test_a_dry_run_shows_the_settings(run, tmp_path):
  (tmp_path / "a.toml").write_text("[optimizer]\nname = 'adamw'\n")
  outcome = run("train", "draft", "--config", "a.toml", "--set", "num_layers=3", "--dry-run")
  assert outcome.exit_code == 0 and "num_layers  3" in outcome.stdout and "name  adamw" in outcome.stdout
  assert not Path("runs").exists()


@pytest.mark.parametrize(
  ("words", "line"),
  [
    (("eagle", "--model", "none"), "No checkpoint folder at none"),
    (("eagle", "--model", "own/tokenizer"), "a network that generates"),
    (("eagle", "--model", "own/target"), "Must have --tokenizer DIR with --model"),
    (("eagle", "--model", "wordnet"), "Must have --prompt-file FILE, one prompt per line, or --images DIR"),
    (("eagle", "--model", "wordnet", "--prompt-file", "none.txt"), "Cannot read prompts from none.txt"),
    (("eagle", "--model", "own", "--class", 9), "a class from 0 to 4, we instead got 9"),
    (("eagle", "--model", "own", "--images", "none"), "No folder at none"),
    (("eagle", "--model", "own", "--images", "own", "--class", 1), "either --images"),
    (("eagle", "--model", "digits32-mar"), "a network that heads can be put on"),
    (("spatial", "--model", "wordnet"), "Must have a target that draws images for spatial heads, we instead got a GPTNeo"),
    (("spatial", "--model", "own", "--set", "num_rows=9"), "rows of an image, we instead got 9"),
    (("spatial", "--model", "own", "--set", "num_places=0"), "Must have num_places of at least 1, we instead got 0"),
    (("draft", "--model", "own", "--set", "num_layers=9"), "fewer than the target's"),
    (("inter-head", "--model", "own", "--set", "num_layers=9"), "layers, we instead got 9"),
    (("block-head", "--model", "own", "--set", "gamma=0"), "gamma of at least 1, we instead got 0"),
    (("block-head", "--model", "own", "--set", "decay=0"), "decay above 0, we instead got 0"),
    (("block-head", "--model", "digits32-mar"), "a network that heads can be put on"),
    (("inter-head", "--model", "own", "--set", "num_layer=1"), "Must have a field in seed,"),
    (("eagle", "--model", "own", "--set", "batch_size=3"), "num_held_out in whole batches of 3"),
    (("eagle", "--model", "own", "--config", "bad.toml"), "Cannot read settings from bad.toml, it is no TOML"),
    (("eagle", "--model", "own", "--config", "odd.toml"), "Corrupt odd.toml: Must have a value of type float"),
    (("eagle", "--model", "own", "--config", "none.toml"), "Cannot read settings from none.toml"),
    (("eagle", "--model", "own", "--mesh", "data=64"), "64 devices"),
    (("eagle", "--model", "own", "--mesh", "model=2"), "Must have --mesh data=N"),
    (("eagle", "--model", "own", "--name", "checkpoints"), "the name of a folder as --name"),
    (("eagle", "--model", "own", "--samples", "none/a.npz"), "there is no folder none"),
    (("eagle", "--model", "own", "--samples", "a.txt"), "ends in .npz"),
    (("eagle", "--model", "own", "--export", "own/tokenizer"), "the target of the training in the bundle own/tokenizer"),
    (("eagle", "--model", "own", "--export", "own", "--name", "target"), "target is the folder of its target"),
    (("eagle", "--model", "own", "--export", "own", "--name", "tokenizer"), "tokenizer is the folder of its tokenizer"),
    (("eagle", "--model", "own", "--export", "scenes"), "at scenes: the shipped bundle of this name cannot be changed"),
    (("eagle", "--model", "own", "--export", "bad.toml"), "No checkpoint folder at bad.toml: it is a file"),
    (("eagle", "--model", "own", "--run-dir", "/proc/run"), "Cannot write to /proc/run"),
    (("eagle", "--model", "own", "--run-dir", "bad.toml"), "Cannot write to bad.toml"),
  ],
)
def test_errors(fails, own, tmp_path, words, line):
  (tmp_path / "bad.toml").write_text("a = = b")
  (tmp_path / "odd.toml").write_text("noise = 'much'")
  assert line in fails("train", *words)
  assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_full_or_read_only_places(fails, own, tmp_path, monkeypatch):
  """A disk that fills while samples or checkpoints are written is named in one line, and nothing older is lost."""

  def full(path, **arrays):
    raise OSError(28, os.strerror(28))

  with monkeypatch.context() as patch:
    patch.setattr("numpy.savez", full)
    message = fails("train", "inter-head", "--model", "own", *short(num_layers=1))
  assert "Cannot write runs/inter-1/samples.npz: No space left on device" in message
  assert [path.name for path in Path("runs/inter-1").iterdir()] == ["run.json"]

  def storage(self, step, **kwargs):
    raise ValueError(
      "RESOURCE_EXHAUSTED: Error writing: Failed to write 712 bytes: No space left on device [os_error_code='28']"
    )

  monkeypatch.setattr("orbax.checkpoint.CheckpointManager.save", storage)
  message = fails("train", "inter-head", "--model", "own", *short(num_layers=1))
  assert message.endswith("runs/inter-1/checkpoints: No space left on device") and Path("runs/inter-1/samples.npz").is_file()
