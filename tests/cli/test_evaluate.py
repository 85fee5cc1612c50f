"""`jaxspec evaluate`: kinds of figures, the standard figures, and user errors."""

import json

import numpy as np
import pytest
from PIL import Image

from jaxspec.cli.image_folder import read_folder, read_prompts, write_folder
from jaxspec.evaluation import standard_metrics as standard
from tests.cli.fake_bundle import make_fake_bundle

PROMPTS = [f"a thing of kind {number}" for number in range(12)]


@pytest.fixture(scope="module")
def drawing_bundle(tmp_path_factory):
  return make_fake_bundle(tmp_path_factory.mktemp("drawing") / "tiny", method="ar")


@pytest.fixture
def folder(tmp_path):
  """Twelve images of 20 pixels with their prompts."""
  pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 20, 3), np.uint8)
  write_folder(tmp_path / "images", pixels, PROMPTS)
  return tmp_path / "images"


@pytest.fixture
def measured(monkeypatch):
  """What would have been measured, without the released networks."""
  seen = {}

  def measure(metrics, pixels, reference, prompts):
    seen.update(metrics=metrics, pixels=pixels, reference=reference, prompts=prompts)
    return {"fid": 12.5, "inception_score": 3.0}

  monkeypatch.setattr(standard, "load_standard", lambda with_clip: {"clip_score": with_clip})
  monkeypatch.setattr(standard, "standard_metrics", measure)
  return seen


def _call(run, *args):
  outcome = run("evaluate", "--standard", *args)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  with open("eval.json", encoding="utf-8") as file:
    return json.load(file), outcome


def test_folder(run, folder, measured):
  document, outcome = _call(run, folder, "--reference", folder)
  assert document["standard"] == {"fid": 12.5, "inception_score": 3.0} and document["reference"]["count"] == 12
  assert document["images"]["count"] == 12 and len(document["images"]["names"]) == 12
  for words in ("12 images against 12 real ones", "fid (lower is better)", "12.5", "eval.json"):
    assert words in outcome.stdout
  assert outcome.stderr == "" and set(document["versions"]) == {"python", "jaxspec"}
  assert measured["pixels"].shape == (12, 20, 20, 3) and measured["prompts"] == PROMPTS
  assert measured["metrics"] == {"clip_score": True}
  np.testing.assert_array_equal(measured["pixels"], measured["reference"])


def test_folder_without_prompts_and_with_other_sizes(run, folder, measured):
  """Images take the size of the first; without prompts there is no CLIP score."""
  (folder / "prompts.txt").unlink()
  Image.new("RGB", (50, 50)).save(folder / "0003.png")
  document, outcome = _call(run, folder, "--reference", folder)
  assert measured["prompts"] is None and measured["metrics"] == {"clip_score": False}
  assert measured["pixels"].shape == measured["reference"].shape == (12, 20, 20, 3)
  warnings = [
    "1 images were resized to 20x20",
    "No prompts.txt or prompts.json: there is no CLIP",
    "1 real images were resized",
  ]
  assert len(document["warnings"]) == 3
  for warning, words in zip(document["warnings"], warnings, strict=True):
    assert words in warning and warning in outcome.stderr


@pytest.mark.slow
def test_bundle(run, drawing_bundle, folder, measured, tmp_path):
  """Draws the prompts of a file by any method, and saves them with their prompts."""
  (tmp_path / "p.txt").write_text("red apple\ncat on blue\ndog\n")
  options = ("--prompts", "p.txt", "--reference", folder, "--save-images", "drawn", "--method", "gsd", "--window", 3)
  document, outcome = _call(run, drawing_bundle, *options)
  settings = document["images"]["settings"]
  assert settings["method"] == "gsd" and settings["options"]["window"] == 3 and document["images"]["prompts"] == "p.txt"
  assert measured["pixels"].shape == (3, 16, 16, 3) and measured["prompts"] == ["red apple", "cat on blue", "dog"]
  assert "3 images against 12 real ones" in outcome.stdout and "gsd" in outcome.stdout
  assert read_folder(tmp_path / "drawn", None).prompts == measured["prompts"]
  _call(run, drawing_bundle, *options[:4], "--num", 2)
  assert measured["prompts"] == ["red apple", "cat on blue"]


@pytest.mark.parametrize(
  ("options", "words"),
  [
    ([], "--reference FOLDER"),
    (["--reference", "none"], "No folder at none"),
    (["--scenes"], "Must have one of --scenes (images of scenes) or --standard"),
    (["--reference", ".", "--split", "train"], "--split does not go with --standard"),
    (["--reference", ".", "--num", 4], "--num goes with a bundle"),
    (["--reference", ".", "--method", "gsd"], "--method goes with a bundle"),
    (["--reference", ".", "--window", 3], "--window goes with a bundle"),
    (["--reference", ".", "--dtype", "float32"], "--dtype goes with a bundle"),
    (["--reference", ".", "--save-images", "new"], "--save-images goes with a bundle"),
    (["--reference", "images", "--prompts", "none.txt"], "Cannot read prompts from none.txt"),
    (["--reference", ".", "--out", "eval.txt"], "ends in .json"),
    (["--reference", ".", "--out", "missing/eval.json"], "no folder missing"),
    (["--evaluators", "."], "No such option"),
  ],
)
def test_options(fails, folder, measured, tmp_path, options, words):
  assert words in fails("evaluate", folder, "--standard", *options)
  assert not (tmp_path / "eval.json").exists() and not measured


def test_how_to_measure_must_be_said(fails, folder, drawing_bundle):
  for path in (folder, drawing_bundle):
    line = fails("evaluate", path)
    assert "--scenes (images of scenes) or --standard (FID" in line and "we instead got neither" in line


def test_paths(fails, bundle, folder, tmp_path):
  assert "No folder at" in fails("evaluate", "--standard", tmp_path / "none")
  (tmp_path / "empty").mkdir()
  assert "PNG images" in fails("evaluate", "--standard", tmp_path / "empty", "--reference", folder)
  assert "PNG images" in fails("evaluate", "--standard", folder, "--reference", tmp_path / "empty")
  assert "single network" in fails("evaluate", "--standard", bundle / "target")
  assert "--prompts FILE for --standard" in fails("evaluate", "--standard", bundle, "--reference", folder)
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "old.png").write_text("old")
  assert "new or empty folder" in fails("evaluate", "--standard", bundle, "--save-images", "full")
  (tmp_path / "link").symlink_to(tmp_path / "empty")
  assert "is a link" in fails("evaluate", "--standard", bundle, "--save-images", "link")
  (tmp_path / "p.txt").write_text("one\n")
  line = fails("evaluate", "--standard", bundle, "--reference", folder, "--prompts", "p.txt", "--num", 33)
  assert "--num 33 images, p.txt has 1" in line


def test_too_few(fails, folder, drawing_bundle, tmp_path, monkeypatch):
  """The line comes before the drawing."""
  monkeypatch.setattr("jaxspec.cli.job.load", lambda *args, **kwargs: pytest.fail("was loaded"))
  (tmp_path / "p.txt").write_text("one\ntwo\n")
  few = ("--prompts", "p.txt", "--num", 1)
  line = fails("evaluate", "--standard", drawing_bundle, "--reference", folder, *few)
  assert "at least 2 images, we instead got 1" in line
  one = tmp_path / "one"
  write_folder(one, np.zeros((1, 8, 8, 3), np.uint8), ["cat"])
  assert "at least 2 real images, we instead got 1" in fails("evaluate", "--standard", folder, "--reference", one)
  assert "at least 2 images, we instead got 1" in fails("evaluate", "--standard", one, "--reference", folder)


def test_folder_of_drawn_images_is_whole_or_not_there(tmp_path):
  pixels = np.zeros((3, 4, 4, 3), np.uint8)
  (tmp_path / "empty").mkdir()
  write_folder(tmp_path / "empty", pixels, ["apple", "red cat", "dog"])
  assert read_folder(tmp_path / "empty", 4).prompts == ["apple", "red cat", "dog"]
  with pytest.raises((AttributeError, TypeError)):
    write_folder(tmp_path / "new", [*pixels, "no image"], ["apple"] * 4)
  assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
  ("name", "text", "words"),
  [
    ("p.txt", "one\ntwo\n", "2 for 12 images"),
    ("p.txt", "", "empty"),
    ("p.txt", "\n".join(["cat"] * 11 + ["?!"]), "prompt 12"),
    ("p.json", "{", "Cannot read prompts"),
    ("p.json", "3", "list of prompts"),
    ("p.json", '{"0000.png": "cat"}', "none for 0001.png"),
    ("p.json", "[1, 2]", "list of prompts"),
  ],
)
def test_prompt_files(fails, folder, tmp_path, name, text, words):
  (tmp_path / name).write_text(text)
  assert words in fails("evaluate", "--standard", folder, "--reference", folder, "--prompts", name)


def test_reading_folders(tmp_path):
  """Natural order, alpha on white, other sizes resized, prompts by name; bad images are named."""
  for number, size in ((10, 64), (2, 32)):
    Image.fromarray(np.full((size, size, 4), number, np.uint8)).save(tmp_path / f"{number}.png")
  (tmp_path / "prompts.json").write_text(json.dumps({"10.png": "ten", "2.png": "two"}))
  found = read_folder(tmp_path, 64)
  assert (found.names, found.prompts, found.num_resized) == (["2.png", "10.png"], ["two", "ten"], 1)
  expected = [round((n * n + 255 * (255 - n)) / 255) for n in (2, 10)]
  assert np.abs(found.pixels[:, 32, 32, 0].astype(int) - expected).max() <= 1
  assert read_folder(tmp_path, None).pixels.shape == (2, 32, 32, 3)  # that of the first
  Image.new("RGB", (8, 9)).save(tmp_path / "wide.png")
  with pytest.raises(Exception, match="square images, .*wide.png"):
    read_folder(tmp_path, 64)
  (tmp_path / "wide.png").write_bytes(b"no image")
  with pytest.raises(Exception, match="wide.png cannot be read"):
    read_folder(tmp_path, 64)
  Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000).save(tmp_path / "wide.png")
  with pytest.raises(Exception, match="8 bits a channel, .*wide.png has 16"):
    read_folder(tmp_path, 64)
  (tmp_path / "wide.png").rename(tmp_path / "²1.png")  # a digit that is no number
  Image.new("RGB", (64, 64)).save(tmp_path / "²1.png")
  assert len(read_folder(tmp_path, 64, captioned=False).names) == 3
  with pytest.raises(Exception, match="no images yet"):
    read_prompts(tmp_path / "prompts.json")


def test_standard_figures_without_the_extra(fails, folder, monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "torchmetrics", None)
  assert "jaxspec-decoding[eval]" in fails("evaluate", folder, "--standard", "--reference", folder)


@pytest.mark.slow
def test_standard_figures_with_metrics_that_record(monkeypatch):
  """Each image reaches each metric once, channels first, with its own prompt."""
  pytest.importorskip("torch")

  class Recorder:
    def __init__(self, value):
      self.calls, self.value = [], value

    def update(self, pixels, *args, **kwargs):
      self.calls.append((pixels.numpy(), args, kwargs))

    def compute(self):
      return self.value

  metrics = {"fid": Recorder(3.0), "inception_score": Recorder((2.0, 0.5)), "clip_score": Recorder(20.0)}
  pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), np.uint8)
  prompts = [f"prompt {i}" for i in range(5)]
  figures = standard.standard_metrics(metrics, pixels, pixels[:3], prompts, batch=2)
  assert figures == {"fid": 3.0, "inception_score": 2.0, "inception_score_deviation": 0.5, "clip_score": 20.0}
  real = np.concatenate([x for x, _, kwargs in metrics["fid"].calls if kwargs["real"]])
  fake = np.concatenate([x for x, _, kwargs in metrics["fid"].calls if not kwargs["real"]])
  np.testing.assert_array_equal(real, pixels[:3].transpose(0, 3, 1, 2))
  np.testing.assert_array_equal(fake, pixels.transpose(0, 3, 1, 2))
  assert sum((args[0] for _, args, _ in metrics["clip_score"].calls), []) == prompts
