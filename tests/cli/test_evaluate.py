"""`jaxspec evaluate`: folders of images, images a bundle draws, and everything a user can do wrong."""

import json

import numpy as np
import pytest
from PIL import Image

from jaxspec.cli.evaluate import _below_here
from jaxspec.cli.image_folder import read_folder, read_prompts, write_folder
from jaxspec.data import STYLES, EmojiSet, canonical_prompt
from jaxspec.data.tokens import Painting, draw
from jaxspec.metrics import evaluation, standard
from tests.cli.fake_bundle import make_fake_bundle
from tests.cli.fake_evaluators import TOKENIZER, make_fake_evaluators


@pytest.fixture(scope="module")
def emoji(emoji_set):
  """The drawings of every 30th concept; the labels stay."""
  whole = emoji_set
  rows = np.flatnonzero(whole.concept % 30 == 0)
  return EmojiSet(whole.rgba[rows], whole.style[rows], whole.concept[rows], whole.split[rows], whole.emoji)


@pytest.fixture(autouse=True)
def small_set(emoji, monkeypatch):
  monkeypatch.setattr("jaxspec.data.emoji.load_emoji", lambda: emoji)


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
  return make_fake_evaluators(tmp_path_factory.mktemp("judges") / "tiny")


@pytest.fixture(scope="module")
def drawing_bundle(tmp_path_factory):
  return make_fake_bundle(tmp_path_factory.mktemp("drawing") / "tiny", tokenizer=TOKENIZER, method="ar")


@pytest.fixture
def folder(emoji, tmp_path):
  """Twelve real images with their own prompts."""
  path = tmp_path / "images"
  path.mkdir()
  rows = np.arange(12)
  for i, image in enumerate(draw(emoji.rgba[rows], Painting.plain(12))):
    Image.fromarray(image).save(path / f"{i}.png")
  prompts = [canonical_prompt(emoji.emoji[emoji.concept[row]], STYLES[emoji.style[row]]) for row in rows]
  (path / "prompts.txt").write_text("\n".join(prompts) + "\n")
  return path


def _call(run, judges, *args):
  outcome = run("evaluate", *args, "--evaluators", judges)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  with open("eval.json", encoding="utf-8") as file:
    return json.load(file), outcome


def test_folder(run, judges, folder):
  document, outcome = _call(run, judges, folder)
  figures, real = document["metrics"], document["real_images"]
  assert set(figures) == {f"{name}_concept" for name in evaluation.DISTANCES} | set(evaluation.SCORES)
  for name in figures:
    assert name in outcome.stdout
    assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]
  # The images are the real ones of their prompts: equal figures, and exact checks that are right.
  for name in ("style_accuracy", "background_accuracy", "prompt_retrieval", "kid_concept"):
    assert figures[name]["value"] == pytest.approx(real[name]["value"], abs=1e-5)
  assert figures["background_accuracy"]["value"] > 0.9
  assert figures["precision_concept"]["count"] == document["images"]["count"] == 12
  assert document["set_size"] == 6  # half of the images
  assert document["evaluators"]["held_out"]["concept"] == {"white": {"val_concept": {"top1": 0.5}}}
  assert outcome.stderr == ""


def test_folder_against_itself_and_without_prompts(run, judges, folder):
  (folder / "prompts.txt").unlink()
  document, outcome = _call(run, judges, folder, "--reference", folder, "--encoder", "caption")
  figures = document["metrics"]
  assert set(figures) == {f"{name}_caption" for name in ("kid", "frechet", "precision", "recall", "f1")}
  assert figures["kid_caption"]["value"] <= 0 and abs(figures["frechet_caption"]["value"]) < 1e-3
  assert figures["f1_caption"]["value"] > 0.7 and document["set_size"] == 6
  assert "only distances" in outcome.stderr and document["reference"]["count"] == 12


def test_images_of_one_prompt_are_one_unit(run, judges, folder):
  """Intervals widen, and the real images count each prompt once; of few prompts, a line says what the intervals hold for."""
  alone, _ = _call(run, judges, folder)
  prompts = (folder / "prompts.txt").read_text().splitlines()
  for number in range(12, 24):
    (folder / f"{number}.png").write_bytes((folder / f"{number - 12}.png").read_bytes())
  (folder / "prompts.txt").write_text("\n".join(prompts * 2) + "\n")
  twice, _ = _call(run, judges, folder)
  width = lambda figure: figure["high"] - figure["low"]
  assert twice["metrics"]["style_accuracy"]["count"] == 24 and twice["set_size"] == 6
  for name in ("kid_concept", "background_accuracy"):
    assert width(twice["metrics"][name]) > 0.95 * width(alone["metrics"][name])
  assert twice["real_images"]["kid_concept"]["count"] == 12
  (folder / "prompts.txt").write_text("\n".join(prompts[:3] * 8) + "\n")
  few, _ = _call(run, judges, folder)
  assert few["real_images"] == {} and "these 3 prompts only" in few["warnings"][-1]


@pytest.mark.slow
def test_bundle(run, judges, drawing_bundle, tmp_path):
  """Draws canonical prompts, saves them, and a folder of what was saved scores the same."""
  drawn, outcome = _call(run, judges, drawing_bundle, "--num", 8, "--seed", 3, "--save-images", "drawn")
  assert drawn["images"]["settings"]["method"] == "ar" and drawn["images"]["counters"]["target_calls"] == 8 * 16
  assert "8 images" in outcome.stdout and drawn["real_images"]["kid_concept"]["count"] == 8
  assert len(list((tmp_path / "drawn").glob("*.png"))) == 8
  read, _ = _call(run, judges, tmp_path / "drawn", "--seed", 3)
  for name in ("prompt_retrieval", "style_accuracy", "attribute_accuracy"):
    assert read["metrics"][name] == drawn["metrics"][name]


@pytest.mark.slow
def test_bundle_by_another_method_with_prompts(run, judges, drawing_bundle, tmp_path):
  subjects = ["red apple", "cat on blue background", "noto cat", "small thing", "dog", "house", "tree", "car"]
  (tmp_path / "p.txt").write_text("\n".join(subjects) + "\n")
  document, _ = _call(run, judges, drawing_bundle, "--prompts", "p.txt", "--method", "gsd", "--window", 3)
  assert document["images"]["count"] == 8 and document["images"]["settings"]["options"]["window"] == 3
  assert document["metrics"]["style_accuracy"]["count"] == 1


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--num", 4], "--num goes with a bundle"),
    (["--method", "gsd"], "--method goes with a bundle"),
    (["--window", 3], "--window goes with a bundle"),
    (["--dtype", "float32"], "--dtype goes with a bundle"),
    (["--save-images", "new"], "--save-images goes with a bundle"),
    (["--group", "Fruit"], "group in Activities"),
    (["--encoder", "inception"], "'concept'"),
    (["--repeats", 20], "No such option"),
    (["--split", "test"], "--split"),
    (["--prompts", "none.txt"], "Cannot read prompts from none.txt"),
    (["--reference", "none"], "No folder at none"),
    (["--evaluators", "none"], "No folder of evaluators at none"),
    (["--out", "eval.txt"], "ends in .json"),
    (["--out", "missing/eval.json"], "no folder missing"),
  ],
)
def test_options(fails, judges, folder, tmp_path, options, words):
  judged = [] if "--evaluators" in options else ["--evaluators", judges]
  assert words in fails("evaluate", folder, *judged, *options)
  assert not (tmp_path / "eval.json").exists()


def test_paths(fails, judges, bundle, tmp_path):
  assert "No folder at" in fails("evaluate", tmp_path / "none")
  assert "PNG images" in fails("evaluate", tmp_path, "--evaluators", judges)
  assert "single network" in fails("evaluate", bundle / "target", "--evaluators", judges)
  assert "64 pixels" in fails("evaluate", bundle, "--evaluators", judges, "--num", 8, "--method", "ar")
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "old.png").write_text("old")
  assert "new or empty folder" in fails("evaluate", bundle, "--evaluators", judges, "--save-images", "full")


def test_too_few(fails, judges, folder):
  for i in range(3, 12):
    (folder / f"{i}.png").unlink()
  (folder / "prompts.txt").unlink()
  assert "at least 8 images, we instead got 3" in fails("evaluate", folder, "--evaluators", judges)


def test_too_few_to_draw(fails, judges, drawing_bundle, monkeypatch):
  """The line comes before the drawing."""
  monkeypatch.setattr("jaxspec.cli.job.load", lambda *args, **kwargs: pytest.fail("was loaded"))
  assert "at least 8 images" in fails("evaluate", drawing_bundle, "--evaluators", judges, "--num", 7)


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
    ("p.json", '{"0.png": "cat"}', "none for 1.png"),
    ("p.json", "[1, 2]", "list of prompts"),
  ],
)
def test_prompt_files(fails, judges, folder, tmp_path, name, text, words):
  (tmp_path / name).write_text(text)
  assert words in fails("evaluate", folder, "--evaluators", judges, "--prompts", name)


def test_reading_folders(tmp_path):
  """Natural order, alpha on white, other sizes resized, prompts by name; bad images are named."""
  for number, size in ((10, 64), (2, 32)):
    Image.fromarray(np.full((size, size, 4), number, np.uint8)).save(tmp_path / f"{number}.png")
  (tmp_path / "prompts.json").write_text(json.dumps({"10.png": "ten", "2.png": "two"}))
  found = read_folder(tmp_path, 64)
  assert (found.names, found.prompts, found.num_resized) == (["2.png", "10.png"], ["two", "ten"], 1)
  expected = [round((n * n + 255 * (255 - n)) / 255) for n in (2, 10)]
  assert np.abs(found.pixels[:, 32, 32, 0].astype(int) - expected).max() <= 1
  Image.new("RGB", (8, 9)).save(tmp_path / "wide.png")
  with pytest.raises(Exception, match="square images, .*wide.png"):
    read_folder(tmp_path, 64)
  (tmp_path / "wide.png").write_bytes(b"no image")
  with pytest.raises(Exception, match="wide.png cannot be read"):
    read_folder(tmp_path, 64)
  with pytest.raises(Exception, match="no images yet"):
    read_prompts(tmp_path / "prompts.json")


def test_standard_figures_without_the_extra(fails, judges, folder, monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "torchmetrics", None)
  assert "jaxspec-decoding[eval]" in fails("evaluate", folder, "--evaluators", judges, "--standard")


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


def test_results_name_no_folder_above_the_working_directory(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert _below_here(tmp_path / "a" / "b") == "a/b" and _below_here(tmp_path.parent) == str(tmp_path.parent.resolve())
