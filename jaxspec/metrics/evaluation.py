"""What a set of images is worth: distances to real images, and whether each image shows what its prompt says.

Scores of an image, each only where the prompt says something about it:

- ``concept_retrieval``: probability that the image is nearer to a real drawing of its own concept than to those of 31
  other concepts, drawn at random; only drawings in other styles than the prompt's count;
- ``prompt_retrieval``: the same with captions in the place of drawings;
- ``style_accuracy``, ``group_accuracy``: whether the classifier sees the style and the group of the prompt;
- ``background_accuracy``, ``size_accuracy``: exact checks of painted attributes; ``attribute_accuracy``: both are right.

Distances of the whole set, in the space of one encoder: ``kid_*``, ``frechet_*``, ``precision_*``, ``recall_*``, ``f1_*``.
None of them is FID, and none of the scores is a CLIP score: those names belong to other networks. Precision, recall and F1
are those of sets of `SET_SIZE` images (`jaxspec.metrics.distances.precision_recall_interval`), however many there are.

Every figure has a 95 % interval over prompts (`jaxspec.metrics.statistics`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.data.emoji import STYLES, EmojiSet
from jaxspec.data.prompts import PromptParts, normalize_prompt
from jaxspec.data.tokens import BACKGROUND_NAMES, Painting, draw, random_paintings
from jaxspec.metrics.attributes import check_attributes
from jaxspec.metrics.distances import SET_SIZE, frechet_interval, kernel_distance_interval, precision_recall_interval
from jaxspec.metrics.evaluators import Evaluators
from jaxspec.metrics.retrieval import first_among
from jaxspec.metrics.statistics import Interval, cluster_index, share

CANDIDATES = 32
NEIGHBOURS = 3
FEWEST = 2 * (NEIGHBOURS + 1)  # prompts, or images, of a set that has distances with intervals
DISTANCES = ("kid", "frechet", "precision", "recall", "f1")
SCORES = (
  "concept_retrieval",
  "prompt_retrieval",
  "style_accuracy",
  "group_accuracy",
  "background_accuracy",
  "size_accuracy",
  "attribute_accuracy",
)


class Figure(NamedTuple):
  """A figure with its interval and the number of images it rests on."""

  interval: Interval
  count: int


@dataclasses.dataclass(frozen=True, eq=False)
class Gallery:
  """What images are compared with: every real drawing, plain, and every label.

  Attributes:
    drawings: ``[N, D]`` vectors of the real drawings by the part ``concept``.
    labels: ``[C, D]`` vectors of the labels by the part ``caption``.
    concepts: concept number of each normalized label.
  """

  emoji: EmojiSet
  drawings: np.ndarray
  labels: np.ndarray
  concepts: dict[str, int]

  def concept_of(self, prompt: PromptParts) -> int | None:
    """Number of the concept whose label the prompt names, None for any other text."""
    return self.concepts.get(prompt.subject)

  def other_families(self, concepts: np.ndarray) -> np.ndarray:
    """``[N, C]`` bool: concepts of another family; near duplicates are no fair distractors."""
    families = np.unique([emoji.family for emoji in self.emoji.emoji], return_inverse=True)[1]
    return families[concepts][:, None] != families[None]


def make_gallery(evaluators: Evaluators, emoji: EmojiSet) -> Gallery:
  """Embeds all drawings and labels (seconds)."""
  labels = [normalize_prompt(entry.label) for entry in emoji.emoji]
  plain = draw(emoji.rgba, Painting.plain(len(emoji)))
  concepts = {label: number for number, label in reversed(list(enumerate(labels)))}
  return Gallery(emoji, evaluators.embed("concept", plain), evaluators.embed_text(labels), concepts)


def image_scores(
  evaluators: Evaluators,
  gallery: Gallery,
  pixels: np.ndarray,
  prompts: Sequence[PromptParts],
  *,
  styles: Sequence[str | None] | None = None,
) -> dict[str, np.ndarray]:
  """The scores of the module docstring, ``[N]`` float64 each; nan where a prompt says nothing about it.

  Args:
    pixels: ``[N, H, W, 3]`` uint8 images of the evaluators' size.
    prompts: of each image.
    styles: the styles whose drawings ``concept_retrieval`` leaves out, instead of the prompts': a real image must not
      find itself.
  """
  styles = [prompt.style for prompt in prompts] if styles is None else styles
  known = [gallery.concept_of(prompt) for prompt in prompts]
  rows = np.flatnonzero([concept is not None for concept in known])
  concepts = np.array([known[row] for row in rows], int)
  style, group = evaluators.classify(pixels)
  seen_style = np.array(evaluators.classifier.config.styles)[style]
  seen_group = np.array(evaluators.classifier.config.groups)[group]
  attributes = check_attributes(pixels, prompts)
  both = attributes.background & attributes.size
  nothing = np.full(len(pixels), np.nan)
  scores = {
    "concept_retrieval": nothing.copy(),
    "prompt_retrieval": _prompt_retrieval(evaluators, gallery, pixels, prompts, known),
    "style_accuracy": np.array([np.nan if p.style is None else seen == p.style for p, seen in zip(prompts, seen_style)]),
    "group_accuracy": nothing.copy(),
    "background_accuracy": attributes.background,
    "size_accuracy": attributes.size,
    "attribute_accuracy": both,
  }
  if len(rows):
    left_out = [styles[row] for row in rows]
    scores["concept_retrieval"][rows] = _concept_retrieval(evaluators, gallery, pixels[rows], concepts, left_out)
    groups = np.array([gallery.emoji.emoji[concept].group for concept in concepts])
    scores["group_accuracy"][rows] = seen_group[rows] == groups
  return {name: scores[name].astype(np.float64) for name in SCORES}


def _concept_retrieval(evaluators, gallery: Gallery, pixels, concepts, left_out: list[str | None]) -> np.ndarray:
  """``[N]``; nan for a concept that has no drawing but in the style left out."""
  cosine = _cosine(evaluators.embed("concept", pixels), gallery.drawings)  # [N, drawings]
  nearest = np.full((len(pixels), len(gallery.emoji.emoji)), -np.inf)
  for style in {*left_out}:
    rows = np.flatnonzero([name == style for name in left_out])
    drawings = np.flatnonzero(gallery.emoji.style != (STYLES.index(style) if style in STYLES else -1))
    part = np.full((len(gallery.emoji.emoji), len(rows)), -np.inf)
    np.maximum.at(part, gallery.emoji.concept[drawings], cosine[rows][:, drawings].T)
    nearest[rows] = part.T
  eligible = gallery.other_families(concepts) & np.isfinite(nearest)
  found = first_among(nearest, concepts, eligible, candidates=CANDIDATES)
  return np.where(np.isfinite(nearest[np.arange(len(concepts)), concepts]), found, np.nan)


def _prompt_retrieval(evaluators, gallery: Gallery, pixels, prompts, known: list[int | None]) -> np.ndarray:
  """``[N]``; a subject that is no label of the set competes with all labels."""
  images = evaluators.embed("caption", pixels)
  others = _cosine(images, gallery.labels)  # [N, C]
  own = np.sum(images * evaluators.embed_text([prompt.subject for prompt in prompts]), axis=1, keepdims=True)
  similarity = np.concatenate([others, own / images.shape[1]], axis=1)  # [N, C + 1], the last is the own subject
  eligible = np.ones(similarity.shape, bool)
  for row, concept in enumerate(known):
    if concept is not None:
      eligible[row, :-1] = gallery.other_families(np.array([concept]))[0]
  return first_among(similarity, np.full(len(pixels), similarity.shape[1] - 1), eligible, candidates=CANDIDATES)


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  return a @ b.T / a.shape[1]


def summarize_scores(scores: dict[str, np.ndarray], *, clusters: np.ndarray | None = None) -> dict[str, Figure]:
  """Means with Wilson's intervals (`jaxspec.metrics.statistics.share`); scores that no prompt asks for are left out.

  A retrieval score is the probability of a hit, so it counts as a share of one trial.

  Args:
    scores: ``[N]`` each, in [0, 1] or nan.
    clusters: ``[N]`` prompt of each image; None makes every image a prompt of its own.
  """
  figures = {}
  for name, values in scores.items():
    asked = ~np.isnan(values)
    if asked.any():
      found = share(values[asked], clusters=None if clusters is None else np.asarray(clusters)[asked])
      figures[name] = Figure(Interval(found.value, found.low, found.high), int(asked.sum()))
  return figures


def set_distances(
  features: np.ndarray,
  reference: np.ndarray,
  encoder: str,
  *,
  clusters: np.ndarray | None = None,
  set_size: int | None = None,
  seed: int = 0,
) -> dict[str, Figure]:
  """`DISTANCES` between ``features [n, D]`` and those of real images ``reference [m, D]``, named after the encoder.

  Args:
    clusters: ``[n]`` prompt of each image; None makes every image a prompt of its own.
    set_size: of precision, recall and F1; `largest_set` by default. Figures compare only where it is the same.
  Raises:
    ValueError: for fewer than `FEWEST` prompts or real images.
  """
  fewest = min(cluster_index(clusters, len(features))[1], len(reference))
  if fewest < FEWEST:
    raise ValueError(f"Must have at least {FEWEST} prompts and real images, we instead got {fewest}")
  own = dict(clusters=clusters)
  kid = kernel_distance_interval(features, reference, **own)
  inside = precision_recall_interval(
    features, reference, neighbours=NEIGHBOURS, set_size=set_size or largest_set(fewest), seed=seed, **own
  )
  figures = {
    "kid": Interval(kid.value, kid.low, kid.high),
    "frechet": frechet_interval(features, reference, seed=seed, **own),
    "precision": inside.precision,
    "recall": inside.recall,
    "f1": inside.f1,
  }
  return {f"{name}_{encoder}": Figure(figures[name], len(features)) for name in DISTANCES}


def largest_set(*counts: int) -> int:
  """The ``set_size`` for sets of so many prompts or images: `SET_SIZE`, or half of the smallest set if that is less."""
  return min(SET_SIZE, *(count // 2 for count in counts))


class Prompted(NamedTuple):
  """Real images chosen for prompts."""

  rows: np.ndarray  # [K] int, the prompts that have one
  image: np.ndarray  # [K] int, number in the `EmojiSet`
  pixels: np.ndarray  # [K, H, W, 3] uint8, painted as the prompt says


def real_images(gallery: Gallery, prompts: Sequence[PromptParts]) -> Prompted:
  """The drawing each prompt names, in its style (any, where it names none); prompts that name no known drawing have none."""
  emoji, rows, images = gallery.emoji, [], []
  for row, prompt in enumerate(prompts):
    concept = gallery.concept_of(prompt)
    if concept is None:
      continue
    drawings = np.flatnonzero(emoji.concept == concept)
    named = [d for d in drawings if prompt.style in (None, STYLES[emoji.style[d]])]
    if named:
      rows.append(row)
      images.append(named[0])
  rows, images = np.array(rows, int), np.array(images, int)
  return Prompted(rows, images, draw(emoji.rgba[images], painting_of([prompts[row] for row in rows])))


def painting_of(prompts: Sequence[PromptParts]) -> Painting:
  """Attributes that prompts ask for."""
  background = np.array([BACKGROUND_NAMES.index(prompt.background) for prompt in prompts], int)
  return Painting(background, np.array([prompt.small for prompt in prompts], bool), np.zeros((len(prompts), 2), int))


class Draws(NamedTuple):
  """A sample of the set: which images are asked for, and how they are painted."""

  image: np.ndarray  # [N] int
  painting: Painting


def choose_images(emoji: EmojiSet, split: str, num: int, *, groups: Sequence[str] = (), seed: int = 0) -> Draws:
  """Draws ``num`` images of a split without replacement, with random attributes.

  Args:
    groups: only these groups of concepts; all by default.
  Raises:
    ValueError: if the split has fewer.
  """
  pool = in_groups(emoji, emoji.indices(split), groups)
  if num > len(pool):
    raise ValueError(f"Must have at most the {len(pool)} images there are, we instead got {num}")
  generator = np.random.default_rng(seed)
  image = generator.permutation(pool)[:num]
  return Draws(image, random_paintings(generator, num, max_offset=0))


def reference_images(
  emoji: EmojiSet, splits: Sequence[str], prompts: Sequence[PromptParts], *, exclude: np.ndarray = (),
  groups: Sequence[str] = (), num: int = 512, seed: int = 0,
) -> np.ndarray:  # fmt: skip
  """Real images to measure distances from: other images of the same splits, painted as the prompts are.

  Args:
    prompts: their attributes are dealt out at random; without prompts the images are plain.
    exclude: numbers of images that were asked for. A set that holds the very images that were asked for would be too
      near: the kernel distance takes both sets for independent.
    num: at most so many.
  Returns:
    ``[M, H, W, 3]`` uint8.
  """
  pool = np.setdiff1d(np.concatenate([emoji.indices(split) for split in splits]), np.asarray(exclude, int))
  generator = np.random.default_rng((seed, 1))
  image = generator.permutation(in_groups(emoji, pool, groups))[:num]
  if prompts:
    painting = painting_of([prompts[i] for i in generator.integers(len(prompts), size=len(image))])
  else:
    painting = Painting.plain(len(image))
  return draw(emoji.rgba[image], painting)


def in_groups(emoji: EmojiSet, images: np.ndarray, groups: Sequence[str]) -> np.ndarray:
  """Those of the images whose concept is in one of the groups; all, if none is given.

  Raises:
    ValueError: for an unknown group.
  """
  known = sorted({entry.group for entry in emoji.emoji})
  if unknown := [group for group in groups if group not in known]:
    raise ValueError(f"Must have a group in {', '.join(known)}, we instead got {unknown[0]!r}")
  if not groups:
    return images
  return images[[emoji.emoji[concept].group in groups for concept in emoji.concept[images]]]
