"""Whatever a user does wrong ends in one line on stderr and exit code 2; Ctrl-C in one line and 130."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxspec.cli import image_folder, prompts
from jaxspec.core.command_line import exit_with
from jaxspec.io import checkpoints
from jaxspec.run.json_values import as_json

NAN = float("nan")


# Ranges of declared options are in test_options; these are the others, and what only loaded networks refuse.
@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--gamma", 16], "gamma below the 16 tokens"),
    (["--out", "n" * 300 + ".png"], "File name too long"),
    (["--draft", "huge"], "small, distilled"),
    (["--draft", "feature"], "family llamagen"),
    (["--draft", "small", "--method", "eagle"], "family eagle"),
    (["--draft", "small", "--draft-model", "x"], "either --draft or --draft-model"),
    (["--model", "x"], "one --model or --checkpoint"),
    (["--method", "eagle", "--tree-size", 7, "--tree-top-k", 2, "--tree-depth", 1], "6 candidates"),
    (["--batch", 0], "batch from 1 to 1024"),
    (["--batch", 5000], "batch from 1 to 1024"),
    (["--samples", 5000], "at most 1024 images"),
    (["--seed", -1], "--seed"),
    (["--dtype", "int8"], "--dtype"),
    (["--method", "ar", "--compare"], "--method speculative"),
    (["--class", 3], "draws no classes"),
    (["--features", "f.npz"], "give prompts instead of --features"),
    (["--tokenizer", "vq"], "No checkpoint folder"),
    (["--out", "missing/o.png"], "no folder missing"),
    (["--out", "."], "ends in .png"),
    (["--out", "o.gif"], "ends in .png"),
    (["--out", "/proc/o.png"], "Cannot write /proc/o.png"),
    (["--heatmap", "images.png"], "different files"),
    (["--json", "o.png"], "ends in .json"),
    (["--prompt-file", "none.txt"], "Cannot read prompts"),
    (["--unknown"], "--unknown"),
    (["--cfg-interval", 2**40], "cfg_interval of at most"),
    (["--method", "sjd", "--window", 17], "window of at most the 16 tokens"),
    (["--method", "sqs", "--max-drafts", 300], "max_drafts of at most the 16 tokens"),
    (["--method", "eagle", "--tree-depth", 300], "tree_depth of at most the 16 tokens"),
    (["--method", "ciar", "--tau", 1, "--gamma", 300], "gamma of at most the 16 tokens"),
    (["--network", "4g"], "we instead got speculative"),
    (["--network", "6g"], "--network"),
  ],
)
def test_options(fails, bundle, options, words):
  assert words in fails("generate", "a red apple", "--checkpoint", bundle, *options)
  assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("prompts", [[], [""], ["red apple", "  "], ["?!"], ["apple", "red \udcff"]])
def test_prompts(fails, bundle, prompts):
  assert "prompt" in fails("generate", *prompts, "--checkpoint", bundle)


def test_too_many_prompts_show_before_anything_is_loaded(fails, tmp_path):
  """Their encoding would need all of the memory."""
  (tmp_path / "many.txt").write_text("a red apple\n" * 600)
  many = ("generate", "--prompt-file", "many.txt", "--samples", 2, "--checkpoint", "/nowhere")
  assert "at most 1024 images or texts in one command, we instead got 1200" in fails(*many)


def test_prompt_files(fails, bundle, tmp_path):
  (tmp_path / "empty.txt").write_text("\n \n")
  (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
  (tmp_path / "latin.txt").write_bytes("caf\u00e9".encode("latin-1"))
  for name, words in (("empty.txt", "empty"), ("binary.txt", "no text in UTF-16"), ("latin.txt", "no text in UTF-8")):
    line = fails("generate", "--prompt-file", name, "--checkpoint", bundle)
    assert name in line and words in line


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lines_of_prompt_files_end_at_newlines_only(tmp_path, encoding):
  lines = ["a red\u2028heart", "a\x0bcat\x85", "two\x0cdogs"]
  (tmp_path / "prompts.txt").write_bytes("\r\n".join(lines).encode(encoding))
  assert prompts.read_prompt_file(tmp_path / "prompts.txt") == [line.strip() for line in lines]
  assert image_folder.read_prompts(tmp_path / "prompts.txt") == [line.strip() for line in lines]


def _truncate(path: Path):
  path.write_bytes(path.read_bytes()[:-100])


def _edit(path: Path, name: str, value):
  """Sets a field of a JSON file, dotted for one of a field."""
  document = fields = json.loads(path.read_text())
  *parents, name = name.split(".")
  for parent in parents:
    fields = fields[parent]
  fields[name] = value
  path.write_text(json.dumps(document))


DAMAGES = {
  "no parameters": (lambda b: (b / "target/params.safetensors").unlink(), "incomplete"),
  "truncated": (lambda b: _truncate(b / "target/params.safetensors"), "Corrupt"),
  "no safetensors": (lambda b: (b / "draft/params.safetensors").write_text("hello"), "Corrupt"),
  "no json": (lambda b: (b / "target/config.json").write_text("{"), "Corrupt"),
  "bundle list": (lambda b: (b / "bundle.json").write_text("[]"), "Corrupt"),
  "bundle empty": (lambda b: (b / "bundle.json").write_text("{}"), "missing"),
  "drafts list": (lambda b: _edit(b / "bundle.json", "drafts", [1]), "Corrupt"),
  "other width": (lambda b: _edit(b / "target/config.json", "config.dim", 32), "must have"),
  "bundle nested too deep": (lambda b: (b / "bundle.json").write_text("[" * 100_000), "Corrupt"),
  "a folder that is a number": (lambda b: _edit(b / "bundle.json", "target", 3), "'target' must be the name of a folder"),
  "defaults list": (lambda b: _edit(b / "bundle.json", "defaults", []), "'defaults' must be an object"),
  "text as a default": (lambda b: _edit(b / "bundle.json", "defaults.options", {"gamma": "three"}), "'three' as gamma"),
  "meta list": (lambda b: _edit(b / "draft/config.json", "meta", [1]), "'meta' must be an object"),
  "family list": (lambda b: _edit(b / "target/config.json", "family", []), "'family' must be a string"),
  "config text": (lambda b: _edit(b / "target/config.json", "config", "wide"), "'config' must be an object"),
  "json nested too deep": (lambda b: (b / "target/config.json").write_text("[" * 100_000), "Corrupt"),
  "text as width": (lambda b: _edit(b / "target/config.json", "config.dim", "wide"), "wide"),
  "no heads": (lambda b: _edit(b / "target/config.json", "config.num_heads", 0), "num_heads"),
  "unknown field": (lambda b: _edit(b / "target/config.json", "config.colour", 1), "colour"),
  "no vocabulary": (lambda b: (b / "vocabulary.json").unlink(), "vocabulary.json"),
  "bad vocabulary": (lambda b: (b / "vocabulary.json").write_text("{}"), "vocabulary.json"),
  "tokenizer is a draft": (
    lambda b: (shutil.rmtree(b / "tokenizer"), shutil.copytree(b / "draft", b / "tokenizer")),
    "image tokenizer",
  ),
  "draft is a tokenizer": (
    lambda b: (shutil.rmtree(b / "draft"), shutil.copytree(b / "tokenizer", b / "draft")),
    "as draft",
  ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_bundles(fails, bundle, tmp_path, damage):
  copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
  act, words = DAMAGES[damage]
  act(copy)
  assert words in fails("generate", "a red apple", "--checkpoint", copy)


def test_damaged_calibration(fails, bundle, tmp_path):
  copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
  _edit(copy / "edge/config.json", "meta", {"calibration": {"thresholds": [{"rate": 0.3}]}})
  assert "run it again" in fails("generate", "a red apple", "--method", "ciar", "--checkpoint", copy)


def test_a_checkpoint_without_meta(bundle, tmp_path):
  copy = Path(shutil.copytree(bundle / "target", tmp_path / "copy"))
  _edit(copy / "config.json", "meta", None)
  assert checkpoints.load(copy).meta == {}


def test_missing_bundle(fails, tmp_path):
  assert "No checkpoint folder" in fails("generate", "apple", "--checkpoint", tmp_path / "none")
  assert "not a bundle" in fails("generate", "apple", "--checkpoint", tmp_path)


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--class", 5], "a class from 0 to 4"),
    (["--class", -1], "a class from 0 to 4"),
    (["--class", "bird"], "a class from 0 to 4"),
    (["a bird"], "give --class NUMBER"),
    (["--class", 1, "--method", "speculative"], "has none"),
    (["--class", 1, "--compare"], "--method sjd"),
    (["--class", 1, "--features", "f.npz"], "one of --class"),
    (["--class", 1, "caption", "another"], "as many captions"),
  ],
)
def test_class_models(fails, class_models, options, words):
  source = ("--model", class_models / "target", "--tokenizer", class_models / "vq")
  assert words in fails("generate", *source, *options)


def test_networks_that_do_not_fit(fails, class_models, bundle):
  target, vq = ("--model", class_models / "target"), ("--tokenizer", class_models / "vq")
  assert "--tokenizer DIR" in fails("generate", *target, "--class", 1)
  assert "a network that generates" in fails("generate", "--model", class_models / "vq", *vq, "--class", 1)
  assert "does not fit" in fails("generate", *target, *vq, "--class", 1, "--draft-model", bundle / "draft")
  assert "text features" in fails("generate", "a prompt", "--model", bundle / "target", *vq)
  assert "draws no classes" in fails("generate", "--model", bundle / "target", *vq, "--class", 1)


GOOD = {"features": np.zeros((2, 6, 8), np.float32), "mask": np.ones((2, 6), bool)}


@pytest.mark.parametrize(
  ("arrays", "words"),
  [
    ({"features": GOOD["features"]}, "mask is missing"),
    (GOOD | {"features": np.zeros((2, 6, 9), np.float32)}, "[B, 6, 8]"),
    (GOOD | {"features": np.zeros((6, 8), np.float32)}, "[B, 6, 8]"),
    (GOOD | {"features": np.full((2, 6, 8), NAN, np.float32)}, "finite"),
    (GOOD | {"mask": np.ones((2, 5), bool)}, "a mask [2, 6]"),
    (GOOD | {"mask": np.arange(6)[None].repeat(2, 0) > 2}, "right-padded"),
    (GOOD | {"mask": np.array([object()])}, "Corrupt"),
  ],
)
def test_features(fails, bundle, tmp_path, arrays, words):
  np.savez(tmp_path / "f.npz", **arrays)
  source = ("--model", bundle / "target", "--tokenizer", bundle / "tokenizer")
  assert words in fails("generate", *source, "--features", "f.npz")


def test_feature_files(fails, bundle, tmp_path):
  source = ("--model", bundle / "target", "--tokenizer", bundle / "tokenizer")
  (tmp_path / "f.npz").write_text("hello")
  (tmp_path / "f.safetensors").write_text("hello")
  (tmp_path / "f.txt").write_text("hello")
  assert "Corrupt" in fails("generate", *source, "--features", "f.npz")
  assert "Corrupt" in fails("generate", *source, "--features", "f.safetensors")
  assert ".npz or .safetensors" in fails("generate", *source, "--features", "f.txt")
  assert "No features file" in fails("generate", *source, "--features", "g.npz")


def test_memory_estimate(fails, bundle, monkeypatch):
  """A batch of 64 rows needs 16 times what 4 rows need."""
  from jaxspec.run.loading import load_pipeline

  pipeline = load_pipeline(bundle)
  need = pipeline.decoder().decode_bytes(4, pipeline.encode("apple").condition)
  monkeypatch.setattr("jaxspec.run.memory_check.available_bytes", lambda: need)
  options = ("--samples", 64, "--batch", 64)
  assert "use a batch of 4 or smaller" in fails("generate", "apple", "--checkpoint", bundle, *options)
  monkeypatch.setattr("jaxspec.run.memory_check.available_bytes", lambda: need // 8)
  assert "use a smaller model" in fails("generate", "apple", "--checkpoint", bundle)


def test_out_of_memory(fails, bundle, monkeypatch):
  def explode(*args):
    raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 10 bytes")

  monkeypatch.setattr("jaxspec.run.run.prepare", explode)
  assert "--batch" in fails("generate", "apple", "--checkpoint", bundle)
  monkeypatch.setattr("jaxspec.run.run.prepare", lambda *args: (_ for _ in ()).throw(MemoryError()))
  assert "Out of memory" in fails("generate", "apple", "--checkpoint", bundle)


def test_interrupt(run, bundle, monkeypatch, tmp_path):
  def interrupt(*args, **kwargs):
    raise KeyboardInterrupt

  monkeypatch.setattr("jaxspec.run.run.in_turns", interrupt)
  outcome = run("generate", "apple", "--checkpoint", bundle, "--out", "o.png")
  assert outcome.exit_code == 130
  assert len(outcome.stderr.strip().splitlines()) == 1 and "Interrupted" in outcome.stderr
  assert not list(tmp_path.iterdir())


def test_interrupt_in_compiled_code():
  """Ctrl-C ends a thread that Python cannot stop."""
  code = (
    "import signal, time\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background inherits that it is ignored
    "from jaxspec.cli import guards\n"
    "from jaxspec.core.command_line import exit_with\n"
    "def main():\n"
    "  print('ready', flush=True)\n"
    "  guards.interruptible(time.sleep, 60)\n"
    "exit_with(main)\n"
  )
  process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  assert process.stdout.readline() == "ready\n"
  process.send_signal(signal.SIGINT)
  _, stderr = process.communicate(timeout=50)
  assert process.returncode == 130 and stderr.count("\n") == 1


def test_figures_are_json_that_every_reader_takes():
  document = {"budget": float("inf"), "rows": [(np.float32(0.5), NAN)], "file": "name-\udcff.png", "text": "ä"}
  refuse = lambda name: pytest.fail(name)
  read = json.loads(as_json(document).encode(), parse_constant=refuse)
  assert read == {"budget": None, "rows": [[0.5, None]], "file": "name-\udcff.png", "text": "ä"}


def test_what_no_command_foresaw(run, bundle, monkeypatch):
  monkeypatch.setattr("jaxspec.run.run.in_turns", lambda *args, **kwargs: {}["nothing"])
  outcome = run("generate", "apple", "--checkpoint", bundle)
  assert outcome.exit_code == 1 and outcome.stderr == "Error: Unforeseen KeyError, 'nothing': JAXSPEC_DEBUG=1 shows where\n"
  monkeypatch.setenv("JAXSPEC_DEBUG", "0")
  assert run("generate", "apple", "--checkpoint", bundle).stderr == outcome.stderr
  monkeypatch.setenv("JAXSPEC_DEBUG", "1")
  outcome = run("generate", "apple", "--checkpoint", bundle)
  assert outcome.exit_code == 1 and "Traceback" in outcome.stderr
  assert outcome.stderr.endswith("Error: Unforeseen KeyError, 'nothing': JAXSPEC_DEBUG=1 shows where\n")


def test_a_backend_that_starts_nowhere(monkeypatch, capsys):
  """The first failure names it."""

  def assertion():
    raise AssertionError

  monkeypatch.setattr(jax, "default_backend", assertion)
  with pytest.raises(SystemExit, match="2"):
    exit_with(assertion)
  assert re.match(r"Error: JAX cannot start (a|the) backend", capsys.readouterr().err)  # named where an earlier test set it
