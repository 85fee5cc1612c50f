"""Scores and distances of sets of images, with an oracle that knows the answers and with the shipped evaluators."""

import types

import numpy as np
import pytest
from PIL import Image, ImageFilter

from jaxspec.data import STYLES, canonical_prompt, normalize_prompt, parse_prompt
from jaxspec.data.tokens import BACKGROUND_NAMES, Painting, draw
from jaxspec.metrics import evaluation
from jaxspec.metrics.evaluators import default_evaluators, load_evaluators
from tests.metrics.emoji_subset import subset

shipped = pytest.mark.skipif(
  not (default_evaluators() / "concept").is_dir(), reason="no trained evaluators: python -m experiments.train.evaluators"
)


@pytest.fixture(scope="module")
def whole(emoji_set):
  return emoji_set


@pytest.fixture(scope="module")
def emoji(whole):
  """The first 60 concepts that are drawn in all styles."""
  complete = np.flatnonzero(np.bincount(whole.concept, minlength=len(whole.emoji)) == len(STYLES))[::20][:60]
  return subset(whole, complete)


class Oracle:
  """Evaluators that know the drawing at an image's centre: vectors are one-hot concepts, classes are the true ones."""

  def __init__(self, emoji):
    self.groups = tuple(sorted({entry.group for entry in emoji.emoji}))
    self.classifier = types.SimpleNamespace(config=types.SimpleNamespace(styles=STYLES, groups=self.groups))
    self.emoji, self.known = emoji, {}
    for small in (False, True):
      for background in range(len(BACKGROUND_NAMES)):
        num = len(emoji)
        painting = Painting(np.full(num, background), np.full(num, small), np.zeros((num, 2), int))
        self.known |= {image.tobytes(): i for i, image in enumerate(draw(emoji.rgba, painting))}
    self.labels = {normalize_prompt(entry.label): i for i, entry in enumerate(emoji.emoji)}

  def _one_hot(self, concepts):
    width = len(self.emoji.emoji) + 1  # the last entry is for unknown drawings
    return np.eye(width, dtype=np.float32)[concepts] * width**0.5

  def embed(self, name, pixels):
    return self._one_hot([self.emoji.concept[self.known[image.tobytes()]] for image in pixels])

  def embed_text(self, captions):
    return self._one_hot([self.labels.get(caption, -1) for caption in captions])

  def classify(self, pixels):
    found = [self.known[image.tobytes()] for image in pixels]
    groups = [self.groups.index(self.emoji.emoji[self.emoji.concept[i]].group) for i in found]
    return self.emoji.style[found], np.array(groups)


@pytest.fixture(scope="module")
def oracle(emoji):
  return Oracle(emoji)


@pytest.fixture(scope="module")
def gallery(oracle, emoji):
  return evaluation.make_gallery(oracle, emoji)


def _asked(emoji, rows, painting):
  return [
    parse_prompt(canonical_prompt(emoji.emoji[emoji.concept[r]], STYLES[emoji.style[r]], BACKGROUND_NAMES[b], bool(s)))
    for r, b, s in zip(rows, painting.background, painting.small)
  ]


def test_images_of_their_prompts_score_one(oracle, gallery, emoji):
  rows = np.arange(0, len(emoji), 7)
  painting = Painting(np.arange(len(rows)) % 10, np.arange(len(rows)) % 3 == 0, np.zeros((len(rows), 2), int))
  scores = evaluation.image_scores(oracle, gallery, draw(emoji.rgba[rows], painting), _asked(emoji, rows, painting))
  assert set(scores) == set(evaluation.SCORES)
  for name in ("concept_retrieval", "prompt_retrieval", "style_accuracy", "group_accuracy"):
    assert (scores[name] == 1).all(), name
  # Checks of attributes may fail on drawings that fill the corners or have the colour of the background.
  assert scores["background_accuracy"].mean() > 0.9 and scores["size_accuracy"].mean() > 0.9


def test_images_of_other_prompts_score_zero(oracle, gallery, emoji):
  """The same images with the prompts of another concept, style, background and size."""
  rows = emoji.indices(style="noto")[:40:2]
  other = emoji.indices(style="fluent")[1:41:2]
  painting = Painting(np.full(20, 1), np.zeros(20, bool), np.zeros((20, 2), int))
  wanted = Painting(np.full(20, 4), np.ones(20, bool), np.zeros((20, 2), int))
  different = [emoji.emoji[a].group != emoji.emoji[b].group for a, b in zip(emoji.concept[rows], emoji.concept[other])]
  scores = evaluation.image_scores(oracle, gallery, draw(emoji.rgba[rows], painting), _asked(emoji, other, wanted))
  for name in ("concept_retrieval", "prompt_retrieval", "style_accuracy", "attribute_accuracy"):
    assert scores[name].max() < 0.1, name
  np.testing.assert_array_equal(scores["group_accuracy"], ~np.array(different))


def test_prompts_with_missing_parts_are_not_scored_on_them(oracle, gallery, emoji):
  """Without a style there is no score for style; for an unknown subject there is none for concept and group."""
  rows = np.arange(3)
  pixels = draw(emoji.rgba[rows], Painting.plain(3))
  prompts = [parse_prompt(text) for text in (emoji.emoji[emoji.concept[0]].label, "noto nothing of the set", "blue thing")]
  scores = evaluation.image_scores(oracle, gallery, pixels, prompts)
  np.testing.assert_array_equal(np.isnan(scores["style_accuracy"]), [True, False, True])
  np.testing.assert_array_equal(np.isnan(scores["concept_retrieval"]), [False, True, True])
  np.testing.assert_array_equal(np.isnan(scores["group_accuracy"]), [False, True, True])
  assert not np.isnan(scores["prompt_retrieval"]).any()
  figures = evaluation.summarize_scores(scores)
  assert figures["style_accuracy"].count == 1 and figures["concept_retrieval"].count == 1
  only_open = evaluation.summarize_scores({name: values[2:] for name, values in scores.items()})
  assert "style_accuracy" not in only_open and "prompt_retrieval" in only_open


def test_a_real_image_does_not_find_itself(gallery, emoji, oracle):
  """A drawing's own style is left out, so a drawing whose vector equals only itself is not found."""
  unique = evaluation.Gallery(emoji, np.eye(len(emoji), dtype=np.float32), gallery.labels, gallery.concepts)
  judge = Oracle(emoji)
  judge.embed = lambda name, pixels: (
    np.stack([np.eye(len(emoji), dtype=np.float32)[judge.known[image.tobytes()]] for image in pixels])
    if name == "concept"
    else oracle.embed(name, pixels)
  )
  rows = np.arange(6)
  pixels = draw(emoji.rgba[rows], Painting.plain(6))
  prompts = [parse_prompt(emoji.emoji[emoji.concept[row]].label) for row in rows]
  found = evaluation.image_scores(judge, unique, pixels, prompts)["concept_retrieval"]
  styles = [STYLES[emoji.style[row]] for row in rows]
  left_out = evaluation.image_scores(judge, unique, pixels, prompts, styles=styles)["concept_retrieval"]
  assert (found == 1).all() and (left_out == 0).all()


def test_real_images_of_prompts(gallery, emoji):
  texts = [f"twemoji {emoji.emoji[3].label} on blue background small", "a thing of no set", emoji.emoji[5].label]
  named = evaluation.real_images(gallery, [parse_prompt(text) for text in texts])
  assert named.rows.tolist() == [0, 2]
  assert STYLES[emoji.style[named.image[0]]] == "twemoji" and emoji.concept[named.image].tolist() == [3, 5]
  expected = draw(emoji.rgba[named.image], Painting(np.array([1, 0]), np.array([True, False]), np.zeros((2, 2), int)))
  np.testing.assert_array_equal(named.pixels, expected)


def test_choice_of_images(whole):
  chosen = evaluation.choose_images(whole, "val_concept", 50, groups=["Food & Drink", "Objects"], seed=3)
  again = evaluation.choose_images(whole, "val_concept", 50, groups=["Food & Drink", "Objects"], seed=3)
  np.testing.assert_array_equal(chosen.image, again.image)
  assert len(set(chosen.image)) == 50 and (whole.split[chosen.image] == 1).all()
  assert {whole.emoji[c].group for c in whole.concept[chosen.image]} == {"Food & Drink", "Objects"}
  with pytest.raises(ValueError, match="at most the"):
    evaluation.choose_images(whole, "val_style", 500)
  with pytest.raises(ValueError, match="group in Activities"):
    evaluation.choose_images(whole, "train", 5, groups=["Fruit"])


def test_reference_leaves_out_what_was_asked_for(emoji):
  asked = emoji.indices("train")[:30]
  prompts = [parse_prompt("x on blue background"), parse_prompt("x on red background small")]
  reference = evaluation.reference_images(emoji, ["train"], prompts, exclude=asked, num=1000)
  assert len(reference) == len(emoji.indices("train")) - 30
  plain = {p.tobytes() for p in draw(emoji.rgba[asked], Painting.plain(30))}
  found = {p.tobytes() for p in evaluation.reference_images(emoji, ["train"], [], exclude=asked, num=1000)}
  assert not plain & found
  checks = evaluation.check_attributes(reference, [prompts[0]] * len(reference))
  assert 0.3 < checks.background.mean() < 0.7


@pytest.fixture(scope="module")
def judges():
  return load_evaluators()


def _distance(judges, pixels, features):
  return evaluation.set_distances(judges.embed("concept", pixels), features, "concept")


@pytest.mark.slow
@shipped
def test_degradation_increases_every_distance(judges, whole):
  """Real images of the other half are close; blur and noise increase the distance, and more of them increase it further."""
  rows = np.random.default_rng(0).permutation(whole.indices("train"))[:256]
  images = draw(whole.rgba[rows], Painting.plain(256))
  own, reference = images[:128], judges.embed("concept", images[128:])
  blur = lambda radius: np.stack([Image.fromarray(p).filter(ImageFilter.GaussianBlur(radius)) for p in own])
  noise = np.random.default_rng(1).normal(size=own.shape)
  noisy = lambda size: np.clip(own + size * noise, 0, 255).astype(np.uint8)
  plain = _distance(judges, own, reference)
  for chain in ((blur(1.5), blur(4)), (noisy(30), noisy(90))):
    figures = [plain, *(_distance(judges, pixels, reference) for pixels in chain)]
    for name in ("kid_concept", "frechet_concept"):
      values = [figure[name].interval.value for figure in figures]
      assert values == sorted(values), (name, values)
    assert figures[0]["kid_concept"].interval.low < 0.02 < figures[2]["kid_concept"].interval.value
    assert figures[0]["f1_concept"].interval.value > figures[2]["f1_concept"].interval.value


@shipped
def test_a_set_has_no_distance_from_itself(judges, whole):
  pixels = draw(whole.rgba[:64], Painting.plain(64))
  figures = _distance(judges, pixels, judges.embed("concept", pixels))
  assert figures["kid_concept"].interval.value <= 0
  assert abs(figures["frechet_concept"].interval.value) < 1e-3
  f1 = figures["f1_concept"].interval
  assert 0.7 < f1.value <= f1.high <= 1  # parts of 16 do not hold all of the others


@shipped
def test_shipped_figures_are_those_of_the_weights(judges, whole):
  """The held-out scores in ``meta`` are better than the baselines and are reproduced on a part of the images."""
  scores = judges.concept.meta["held_out"]
  assert scores["white"]["val_concept"]["top1"] > scores["raw_pixels"]["white"]["val_concept"]["top1"]
  rows = whole.indices("val_concept")
  style, _ = judges.classify(draw(whole.rgba[rows], Painting.plain(len(rows))))
  stored = judges.classifier.meta["held_out"]["white"]["val_concept"]
  assert np.mean(style == whole.style[rows]) == pytest.approx(stored["style_accuracy"], abs=0.01)
