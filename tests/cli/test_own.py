"""A converted class-conditional network on the command line: its page verbatim, and errors."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from conversion import engine, llamagen, llamagen_vq
from jaxspec.cli import prompts
from jaxspec.io.bundle import BUNDLE_FILE, read_bundle
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from jaxspec.run.loading import load_pipeline
from tests.cli import fake_bundle
from tests.cli.command_lines import lines_of

PAGE = Path(__file__).parents[2] / "docs" / "converting.md"
C2I = LlamaGenConfig(num_layers=2, dim=16, num_heads=2, vocab_size=16, num_tokens=16, num_classes=1000, multiple_of=16)
VQ = LlamaGenVQConfig(base_channels=32, multipliers=(1, 1), num_res_blocks=1, z_channels=8, codebook_size=16, codebook_dim=4)
# Additional arguments for a tiny network, or for a short run, by the first words of a line.
SHORT = ("loop.num_steps=2", "num_samples=44", "num_held_out=4", "batch_size=2", "optimizer.warmup_steps=1")
BESIDES = {
  "jaxspec convert llamagen ": ("--config", "tiny.json"),
  "jaxspec bench ": ("--repeats", "1"),
  "jaxspec calibrate ": ("--samples", "1", "--tolerance", "0.2"),
  "jaxspec studio ": ("--listen", "127.0.0.1:0"),
  "jaxspec train ": ("--batch", "44", *(word for setting in SHORT for word in ("--set", setting))),
}


def release(file, config, family, seed):
  """A file of random weights with the official names."""
  generator = np.random.default_rng(seed)
  shapes = engine.source_shapes(family, engine.template_of(config))
  draw = lambda shape: 0.3 * generator.normal(size=shape) + (len(shape) == 1)
  save_file({name: draw(shape).astype(np.float32) for name, shape in shapes.items()}, file)


@pytest.mark.slow
def test_the_page_from_released_files_to_heads(run, tmp_path, monkeypatch):
  pytest.importorskip("uvicorn", reason="needs the studio extra: pip install 'jaxspec-decoding[studio]'")
  release(tmp_path / "c2i.safetensors", C2I, llamagen.FAMILY, 0)
  release(tmp_path / "vq.safetensors", VQ, llamagen_vq.FAMILY, 1)
  (tmp_path / "tiny.json").write_text(json.dumps({"num_heads": 2, "num_tokens": 16}))
  monkeypatch.setattr("uvicorn.Config", lambda app, **settings: None)  # it would log to the streams of the runner
  monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: [sock.close() for sock in sockets])
  files = {"c2i_B_256.pt": "c2i.safetensors", "vq_ds16_c2i.pt": "vq.safetensors"}
  said, lines = {}, lines_of(PAGE)
  for words in lines[lines.index(["jaxspec", "convert", "llamagen", "c2i_B_256.pt", "own/target"]) :]:
    line = " ".join(words)
    more = [word for start, words in BESIDES.items() if line.startswith(start) for word in words]
    words = [files.get(word, word) for word in words] + more
    outcome = run(*words[1:])
    assert outcome.exit_code == 0, (line, outcome.output, outcome.exception)
    said[line] = outcome.stdout
  own = read_bundle("own")
  assert list(own.drafts) == ["draft-1", "eagle", "inter-1"] and own.parts == {"tokenizer": "tokenizer"}
  assert own.defaults.sampling == {"cfg_scale": 4.0, "top_k": 2000} and own.defaults.options == {"gamma": 3}
  with np.load("own.npz") as samples:
    rows = samples["prompt_rows"]
    assert samples["tokens"].shape == (44, 16) and len(set(rows)) == 44 and rows.max() < 1000
  audits = [text for line, text in said.items() if line.startswith("jaxspec audit")]
  assert re.search("class (207|360)", audits[0])  # the worst token of an exact method is one of rounding
  assert "6 images" in audits[1] and "draft draft-1" in audits[2]
  assert json.loads(Path("audit.json").read_text())["rows"][0]["images"][1]["prompt"] == "class 166"
  assert "calibration" in json.loads(Path("own/inter-1/config.json").read_text())["meta"]


@pytest.fixture
def own(class_models, tmp_path):
  """The converted folders, and a head that fits the target, in a folder of the test's own."""
  folder = Path(shutil.copytree(class_models, tmp_path / "own"))
  (folder / "vq").rename(folder / "tokenizer")
  return folder


BOTH = ("--model", "own/target", "--tokenizer", "own/tokenizer")


def test_what_lies_beside_the_target_belongs_to_it(own):
  pipe = load_pipeline(own)
  assert list(pipe.drafts) == ["draft"] and pipe.sampling().cfg_scale == 4.0
  assert pipe.encode([4]).captions == ["class 4"]
  shutil.rmtree(own / "tokenizer")
  with pytest.raises(ValueError, match="part 'tokenizer' for .*own, .* jaxspec bundle --part tokenizer=DIR adds it"):
    load_pipeline(own)


def test_a_bundle_is_written(run, own, tmp_path):
  """From what lies there, and completed; folders outside of it are named from it."""
  outcome = run("bundle", "own")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert outcome.stdout == "wrote own/bundle.json: target target, drafts draft\n"
  (tmp_path / "names.txt").write_text("a\nb\nc\nd\ne\n")
  (own / "draft").rename(tmp_path / "small")
  outcome = run("bundle", "new/one", "--target", "own/target", "--tokenizer", "own/tokenizer", "--classes", "names.txt")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  outcome = run("bundle", "new/one", "--draft-model", "small", "--method", "speculative", "--gamma", 3, "--top-p", 0.9)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert json.loads((tmp_path / "new/one" / BUNDLE_FILE).read_text()) == {
    "version": 2, "target": "../../own/target", "drafts": {"small": "../../small"},
    "parts": {"tokenizer": "../../own/tokenizer", "classes": list("abcde")},
    "defaults": {
      "method": "speculative", "sampling": {"cfg_scale": 4.0, "top_k": 2000, "top_p": 0.9}, "options": {"gamma": 3}
    },
  }  # fmt: skip
  pipe = load_pipeline("new/one")
  assert pipe.encode(["b", 4]).captions == ["b", "e"] and pipe.method().gamma == 3 and pipe.sampling().top_p == 0.9


@pytest.mark.parametrize(
  ("options", "words"),
  [
    ((), "Must have --target DIR"),
    (("--target", "none"), "No checkpoint folder at none"),
    (("--target", "own"), "No config.json in own"),
    (("--target", "own/target"), "Must have a part 'tokenizer'"),
    (("--target", "own/tokenizer"), "Must have a network that generates"),
    ((*BOTH[2:], "--target", "own/target", "--draft-model", "own/tokenizer"), "a checkpoint of the family llamagen"),
    ((*BOTH[2:], "--target", "own/target", "--draft-model", "odd"), "num_classes 7 instead of 5"),
    ((*BOTH[2:], "--target", "own/target", "--draft", "small"), "a default draft in (none)"),
    ((*BOTH[2:], "--target", "own/target", "--method", "eagle"), "Must have a draft for method eagle"),
    ((*BOTH[2:], "--target", "own/target", "--draft", "small", "--gamma", 3), "a default draft in (none)"),
    ((*BOTH[2:], "--target", "own/target", "--method", "speculative", "--gamma", 3), "a draft for method speculative"),
    ((*BOTH[2:], "--target", "own/target", "--gamma", 3), "a method of these drafts, we instead got --gamma"),
    ((*BOTH[2:], "--target", "own/target", "--method", "cspd"), "a method that draws discrete tokens, we instead got cspd"),
    ((*BOTH[2:], "--target", "own/target", "--steps", 5), "we instead got --steps"),
    ((*BOTH[2:], "--target", "own/target", "--method", "sjd", "--window", 99), "window of at most the 16 tokens"),
    ((*BOTH[2:], "--target", "own/target", "--part", "vae=own/target"), "we instead got vae"),
    ((*BOTH[2:], "--target", "own/target", "--part", "vae=none"), "a path or a number as --part vae"),
    ((*BOTH[2:], "--target", "own/target", "--part", "vae"), "--part NAME=VALUE"),
  ],
)
def test_a_bundle_that_does_not_fit_is_not_written(fails, own, tmp_path, options, words):
  fake_bundle.save_random(tmp_path / "odd", dataclasses.replace(fake_bundle.CLASS_DRAFT, num_classes=7), 0)
  assert words in fails("bundle", "new", *options)
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
  ("words", "line"),
  [
    (("audit", *BOTH), "Must have a method that drafts"),  # with default classes
    (("audit", *BOTH, "--class", 5), "a class from 0 to 4, we instead got 5"),
    (("audit", *BOTH, "7", "--method", "sjd"), "a class from 0 to 4, we instead got 7"),
    (("audit", *BOTH, "a cat"), "own/target draws classes: give --class NUMBER"),
    (("audit", *BOTH, "--class", 1, "--prompts", 2), "not both"),
    (("audit", *BOTH[:2], "--class", 1), "Must have --tokenizer DIR with --model"),
    (("audit", *BOTH[2:]), "--tokenizer goes with --model"),
    (("audit", "--tiny", "--class", 1), "not with --tiny"),
    (("audit", *BOTH, "--draft", "x", "--draft-model", "own/draft"), "either --draft or --draft-model"),
    (("bench", *BOTH, "--class", 9, "--draft-model", "own/draft"), "a class from 0 to 4"),
    (("bench", *BOTH), "Must have a draft of the family llamagen or eagle"),
    (("calibrate", *BOTH), "Must have a draft for method ciar, target has none"),
    (("calibrate", *BOTH, "--draft-model", "own/draft", "--held-out", "8"), "a class from 0 to 4, we instead got 8"),
    (("calibrate", "--model", "digits32-causal"), "of discrete tokens to calibrate, digits32-causal draws continuous"),
    (("bench", "--model", "digits32-causal"), "jaxspec generate --compare measures them"),
    (("evaluate", "--scenes"), "Must have PATH or --model"),
    (("info", "scenes", "--model", "wordnet"), "either PATH or --model"),
    (("plan", "--model", "own/tokenizer", "--device", "h100"), "a network that generates"),
  ],
)
def test_commands_take_folders_and_classes(fails, own, words, line):
  assert line in fails(*words)


def test_a_network_whose_heads_lie_in_its_folder_is_shown_as_a_bundle(run, own):
  assert run("bundle", "own/target", "--tokenizer", "own/tokenizer", "--draft-model", "own/draft").exit_code == 0
  outcome = run("info", "--model", "own/target")
  assert outcome.exit_code == 0 and "bundle of version 2" in outcome.stdout and "draft draft" in outcome.stdout


def test_classes_that_nobody_asked_for(class_models):
  """They are evenly spaced, and two sets are disjoint if there are enough."""
  family = load_pipeline(class_models / "target", tokenizer=class_models / "vq").family
  found = lambda *args, **kwargs: prompts.examples(family, *args, **kwargs).for_family(family)
  assert found(8) == [0, 1, 2, 3, 4] and found(2) == [0, 2]
  assert (found(2, part=0, parts=2), found(2, part=1, parts=2)) == ([0, 2], [1, 3])
  one = dataclasses.replace(family.target, config=dataclasses.replace(C2I, num_classes=1))
  family = dataclasses.replace(family, target=one)
  assert prompts.examples(family, 4, part=1, parts=2).prompts == ["0"]
