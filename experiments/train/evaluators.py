"""Trains the networks that judge images, and measures them on images they have never seen.

Command (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.train.evaluators --run-dir runs/evaluators --export checkpoints/evaluators \\
      --results experiments/results/evaluators.json

Three encoders of images (`jaxspec.metrics.evaluators`), trained one after the other on the training split only:

1. ``concept``: two drawings of a concept in different styles attract, those of other concepts repel;
2. ``classifier``: cross entropy of the style and of the group;
3. ``caption``: an image attracts its label or tags, and repels those of other concepts.

Images are drawn on random backgrounds, in random sizes and positions, each view by itself, so that the networks judge the
drawing. Near duplicates (one family) never repel each other. Expected figures: docs/evaluation.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.engine.tables import render
from experiments.train.command import Progress, epochs_of, one_line_errors, spent
from experiments.train.tokenizer import reconstruct
from experiments.train.tokenizer_images import LICENCE
from jaxspec import checkpoints
from jaxspec.checkpoints import Checkpoint
from jaxspec.data import text_tokenizer
from jaxspec.data.emoji import STYLES, EmojiSet, load_emoji
from jaxspec.data.paint import BACKGROUNDS, SCALES, composite, place
from jaxspec.data.prompts import PromptRates, make_prompt, normalize_prompt
from jaxspec.data.tokens import Painting, draw, random_paintings
from jaxspec.hosts.images import VOCABULARY_FILE
from jaxspec.metrics import evaluators
from jaxspec.metrics.retrieval import first_among, nearest_is_own
from jaxspec.models.caption_encoder import CaptionEncoderConfig
from jaxspec.models.image_classifier import ImageClassifierConfig
from jaxspec.models.image_encoder import ImageEncoderConfig
from jaxspec.models.registry import FAMILIES, family_of
from jaxspec.models.tokenizer_fns import from_uint8
from jaxspec.training import train_state
from jaxspec.training.contrastive import contrastive_loss
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.metrics import read_metrics
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.overrides import override
from jaxspec.training.step import make_train_step

PARTS = tuple(evaluators.PARTS)
HELD_OUT = ("val_concept", "val_style")
GROUPS = (
  "Activities", "Animals & Nature", "Food & Drink", "Objects", "People & Body", "Smileys & Emotion", "Symbols",
  "Travel & Places",
)  # fmt: skip
# A caption names the subject only: backgrounds and sizes are checked exactly, styles by the classifier.
_SUBJECT_ONLY = PromptRates(style=0.0, label=0.6, label_and_tags=0.2, tags=0.2, white_background=0.0)
_COLOURS = np.array(list(BACKGROUNDS.values()), np.uint8)


@dataclasses.dataclass(frozen=True)
class Augmentation:
  """How training images are drawn.

  Attributes:
    white_fraction: probability of a white background; the rest is uniform over the other colours.
    small_fraction: probability of the size "small".
    least_scale: other images are drawn at a size between this and 1.
    max_offset: they move by so many pixels, as far as the canvas goes.
  """

  white_fraction: float = 0.35
  small_fraction: float = 0.2
  least_scale: float = 0.8
  max_offset: int = 6


@dataclasses.dataclass(frozen=True)
class EvaluatorRun:
  """Everything a run depends on; ``batch_size`` counts concepts of part ``concept``, which are drawn twice."""

  part: str
  model: ImageEncoderConfig
  batch_size: int
  loop: LoopConfig
  seed: int = 0
  temperature: float = 0.1
  augmentation: Augmentation = Augmentation()
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-3, warmup_steps=40, weight_decay=0.1)
  ema_decay: float = 0.98
  matmul_precision: str | None = "bfloat16"
  bundle: str = "checkpoints/emoji64"


def get_config(arg: str = "concept") -> EvaluatorRun:
  """Config of one part: its name for the shipped weights, ``smoke-`` and its name for a run of seconds."""
  smoke, name = arg.startswith("smoke-"), arg.removeprefix("smoke-")
  if name not in PARTS:
    raise ValueError(f"Must have config {', '.join(PARTS)}, or one of them after 'smoke-', we instead got {arg!r}")
  shape = dict(widths=(8, 8, 8), blocks=(0, 0, 1), expansion=1, embed_dim=16) if smoke else {}
  if name == "concept":
    model, batch_size, num_steps = ImageEncoderConfig(**shape), 128, 520
  elif name == "classifier":
    model, batch_size, num_steps = ImageClassifierConfig(**shape, styles=STYLES, groups=GROUPS), 64, 900
  else:
    text = dict(text_dim=8, text_layers=1, text_heads=1) if smoke else {}
    model, batch_size, num_steps = CaptionEncoderConfig(**shape, **text), 192, 600
  if smoke:
    loop = LoopConfig(num_steps=4, log_every=1, eval_every=0, checkpoint_every=2)
    return EvaluatorRun(name, model, 8, loop)
  loop = LoopConfig(num_steps=num_steps, log_every=10, eval_every=150, checkpoint_every=100)
  return EvaluatorRun(name, model, batch_size, loop)


def draw_augmented(rgba: np.ndarray, generator: np.random.Generator, augmentation: Augmentation) -> np.ndarray:
  """``[M, H, W, 4]`` images on random backgrounds, in random sizes and positions: ``[M, H, W, 3]`` uint8."""
  num, side = rgba.shape[:2]
  painting = random_paintings(
    generator, num, white_fraction=augmentation.white_fraction, small_fraction=augmentation.small_fraction
  )
  scale = np.where(painting.small, SCALES["small"], generator.uniform(augmentation.least_scale, 1.0, num))
  shift = generator.uniform(-1, 1, (num, 2))
  placed = np.empty_like(rgba)
  for i in range(num):
    reach = min(augmentation.max_offset, (side - round(side * scale[i])) // 2)
    placed[i] = place(rgba[i], float(scale[i]), tuple(int(x) for x in np.rint(shift[i] * reach)))
  return composite(placed, _COLOURS[painting.background])


def make_batch_fn(run: EvaluatorRun, emoji: EmojiSet, vocabulary) -> Callable[[int], dict[str, np.ndarray]]:
  """Batches as a pure function of the step: a new permutation every epoch, new drawings every step.

  All parts: ``images [B, H, W, 3]`` uint8. ``concept``: ``other_images`` and ``family [B]``; ``classifier``: ``style [B]``
  and ``group [B]``; ``caption``: ``ids [B, P]``, ``mask [B, P]`` and ``family [B]``.
  """
  train = emoji.indices("train")
  families = np.unique([entry.family for entry in emoji.emoji], return_inverse=True)[1].astype(np.int32)
  groups = np.array([GROUPS.index(entry.group) for entry in emoji.emoji], np.int32)
  drawings = {concept: train[emoji.concept[train] == concept] for concept in np.unique(emoji.concept[train])}
  items = np.array(sorted(drawings)) if run.part == "concept" else train
  in_turn = epochs_of(items, run.batch_size, (run.seed, 0))

  def batch_fn(step: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng((run.seed, 1, step))
    chosen = in_turn(step)
    view = lambda images: draw_augmented(emoji.rgba[images], generator, run.augmentation)
    if run.part == "concept":
      # Two drawings in different styles; a concept with one drawing is shown twice in its own.
      pairs = np.array([np.resize(generator.permutation(drawings[concept]), 2) for concept in chosen])
      return {"images": view(pairs[:, 0]), "other_images": view(pairs[:, 1]), "family": families[chosen]}
    concepts = emoji.concept[chosen]
    if run.part == "classifier":
      return {"images": view(chosen), "style": emoji.style[chosen], "group": groups[concepts]}
    texts = [make_prompt(generator, emoji.emoji[concept], STYLES[0], rates=_SUBJECT_ONLY) for concept in concepts]
    ids, mask, _ = text_tokenizer.encode(vocabulary, texts, max_tokens=run.model.max_tokens)
    return {"images": view(chosen), "ids": ids, "mask": mask, "family": families[concepts]}

  return batch_fn


def make_loss_fn(run: EvaluatorRun):
  """The objective of a part; see the module docstring."""
  fns = FAMILIES[family_of(run.model)].make_fns(run.model)

  def contrast(a, b, family):
    return contrastive_loss(a, b, temperature=run.temperature, same=family[:, None] == family[None])

  def loss_fn(params, extra, batch, key):
    del key
    images = from_uint8(batch["images"])
    if run.part == "concept":
      both = fns.embed(params, jnp.concatenate([images, from_uint8(batch["other_images"])]))
      loss, accuracy = contrast(*jnp.split(both, 2), batch["family"])
      return loss, ({"accuracy": accuracy}, extra)
    if run.part == "caption":
      captions = fns.embed_text(params, batch["ids"], batch["mask"])
      loss, accuracy = contrast(fns.embed(params, images), captions, batch["family"])
      return loss, ({"accuracy": accuracy}, extra)
    logits = fns.classify(params, images)
    metrics, loss = {}, 0.0
    for name, part in logits._asdict().items():
      loss += jnp.mean(optax.softmax_cross_entropy_with_integer_labels(part, batch[name]))
      metrics[f"{name}_accuracy"] = jnp.mean(jnp.argmax(part, axis=-1) == batch[name])
    return loss, (metrics, extra)

  return loss_fn


def held_out_images(run: EvaluatorRun, emoji: EmojiSet, *, conditions: tuple[str, ...]) -> dict[str, np.ndarray]:
  """All images of the set that no training saw, by condition, ``[N, H, W, 3]`` uint8 with rows of the whole set.

  ``white``: plain; ``painted``: random backgrounds and sizes; ``reconstructed``: plain, through the tokenizer of the
  bundle, since that is how generated images come.
  """
  rows = np.flatnonzero(emoji.split != 0)
  plain = draw(emoji.rgba[rows], Painting.plain(len(rows)))
  images = {}
  for condition in conditions:
    pixels = plain
    if condition == "painted":
      pixels = draw(emoji.rgba[rows], random_paintings(np.random.default_rng(2), len(rows), white_fraction=0.0))
    elif condition == "reconstructed":
      tokenizer = checkpoints.load(Path(run.bundle) / "tokenizer")
      _, pixels = reconstruct(tokenizer.fns, tokenizer.params, plain)
    images[condition] = np.zeros((len(emoji), *plain.shape[1:]), np.uint8)
    images[condition][rows] = pixels
  return images


def raw_pixels(pixels: np.ndarray, side: int = 16) -> np.ndarray:
  """The baseline of the concept encoder: ``[N, side * side * 3]`` means of patches, in [0, 1]."""
  factor = pixels.shape[1] // side
  x = pixels.reshape(len(pixels), side, factor, side, factor, 3).astype(np.float32) / 255
  return x.mean(axis=(2, 4)).reshape(len(pixels), -1)


def cross_style_retrieval(emoji: EmojiSet, split: str, queries: np.ndarray, gallery: np.ndarray) -> dict[str, float]:
  """How often a drawing's nearest drawing in another style shows its concept.

  Every drawing of the split asks in every other style, among the drawings of all concepts of the split in that style. Near
  duplicates of one family stay among the candidates.

  Args:
    queries: ``[N, D]`` vectors of all images of the set; those outside the split are not read.
    gallery: ``[N, D]`` vectors of the plain images.
  Returns:
    ``top1`` over all pairs of styles, ``noto_to_twemoji``, and the mean number of ``candidates``.
  """
  concepts = np.unique(emoji.concept[emoji.indices(split)])
  hits, sizes, by_pair = [], [], {}
  for target in range(len(STYLES)):
    shown = np.flatnonzero((emoji.style == target) & np.isin(emoji.concept, concepts))
    position_of = {concept: i for i, concept in enumerate(emoji.concept[shown])}
    for source in range(len(STYLES)):
      asking = [q for q in emoji.indices(split, STYLES[source]) if emoji.concept[q] in position_of]
      if source == target or not asking:
        continue
      own = np.array([position_of[emoji.concept[q]] for q in asking])
      hit = nearest_is_own(_similarity(queries[asking], gallery[shown]), own)
      hits.append(hit)
      sizes.append(len(shown))
      by_pair[source, target] = float(hit.mean())
  figures = {"top1": float(np.concatenate(hits).mean()), "candidates": float(np.mean(sizes))}
  pair = (STYLES.index("noto"), STYLES.index("twemoji"))
  return figures | ({"noto_to_twemoji": by_pair[pair]} if pair in by_pair else {})


def _similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Minus the squared distances; of vectors of one length that is the order of the cosines."""
  return 2 * a @ b.T - np.sum(b * b, axis=1)[None] - np.sum(a * a, axis=1)[:, None]


def held_out(run: EvaluatorRun, params, emoji: EmojiSet, vocabulary, *, conditions=("white", "painted", "reconstructed")):
  """The scores of a part on both held-out splits, by condition and split; plain numbers.

  Returns:
    ``{condition: {split: {name: value}}}``, and for ``concept`` the baseline of raw pixels under ``raw_pixels``.
  """
  family = family_of(run.model)
  part = Checkpoint(run.model, params, FAMILIES[family].make_fns(run.model), family, {}, Path())
  score = {"concept": _score_concept, "classifier": _score_classifier, "caption": _score_caption}[run.part]
  return score(part, emoji, held_out_images(run, emoji, conditions=conditions), vocabulary)


def _score_concept(part: Checkpoint, emoji: EmojiSet, images: dict[str, np.ndarray], vocabulary) -> dict:
  del vocabulary
  plain = draw(emoji.rgba, Painting.plain(len(emoji)))
  figures: dict = {}
  for name, embed in (("", functools.partial(evaluators.embed_images, part)), ("raw_pixels", raw_pixels)):
    # Of a style that is held out, the other styles are training images: they belong to the gallery as well.
    wanted = np.flatnonzero(np.isin(emoji.concept, emoji.concept[emoji.split != 0]))
    gallery = _scatter(embed(plain[wanted]), wanted, len(emoji))
    for condition, pixels in images.items():
      rows = np.flatnonzero(emoji.split != 0)
      queries = _scatter(embed(pixels[rows]), rows, len(emoji))
      scores = {split: cross_style_retrieval(emoji, split, queries, gallery) for split in HELD_OUT}
      (figures.setdefault(name, {}) if name else figures)[condition] = scores
  return figures


def _scatter(values: np.ndarray, rows: np.ndarray, total: int) -> np.ndarray:
  whole = np.zeros((total, values.shape[1]), values.dtype)
  whole[rows] = values
  return whole


def _score_classifier(part: Checkpoint, emoji: EmojiSet, images: dict[str, np.ndarray], vocabulary) -> dict:
  del vocabulary
  groups = np.array([GROUPS.index(entry.group) for entry in emoji.emoji])[emoji.concept]
  figures: dict = {}
  for condition, pixels in images.items():
    for split in HELD_OUT:
      rows = emoji.indices(split)
      style, group = evaluators.classify_images(part, pixels[rows])
      scores = {"style_accuracy": np.mean(style == emoji.style[rows]), "group_accuracy": np.mean(group == groups[rows])}
      scores["largest_group"] = np.bincount(groups[rows]).max() / len(rows)  # what a constant answer scores
      figures.setdefault(condition, {})[split] = {name: float(value) for name, value in scores.items()}
  return figures


def _score_caption(part: Checkpoint, emoji: EmojiSet, images: dict[str, np.ndarray], vocabulary) -> dict:
  labels = evaluators.embed_captions(part, vocabulary, [normalize_prompt(entry.label) for entry in emoji.emoji])
  families = np.unique([entry.family for entry in emoji.emoji], return_inverse=True)[1]
  figures: dict = {}
  for condition, pixels in images.items():
    for split in HELD_OUT:
      rows = emoji.indices(split)
      own = emoji.concept[rows]
      similarity = _similarity(evaluators.embed_images(part, pixels[rows]), labels)
      eligible = families[own][:, None] != families[None]
      concepts = np.unique(own)
      among_split = nearest_is_own(similarity[:, concepts], np.searchsorted(concepts, own))
      scores = {
        "first_of_32": first_among(similarity, own, eligible, candidates=32).mean(),
        "top1_of_split": among_split.mean(),
        "labels_of_split": len(concepts),
      }
      figures.setdefault(condition, {})[split] = {name: float(value) for name, value in scores.items()}
  return figures


def train(run: EvaluatorRun, run_dir: str | Path, resume: bool = True):
  """Trains one part in ``run_dir``; returns the final state."""
  run_dir = Path(run_dir)
  run_dir.mkdir(parents=True, exist_ok=True)
  (run_dir / "config.json").write_text(json.dumps(dataclasses.asdict(run), indent=2) + "\n")
  emoji = load_emoji()
  vocabulary = text_tokenizer.load_text_tokenizer(Path(run.bundle) / VOCABULARY_FILE)
  fns = FAMILIES[family_of(run.model)].make_fns(run.model)
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  state = train_state.create(fns.init(jax.random.key(run.seed)), optimizer)
  step = make_train_step(
    make_loss_fn(run), optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision
  )

  def eval_fn(state) -> dict[str, float]:
    scores = held_out(run, state.ema, emoji, vocabulary, conditions=("white",))["white"]
    return {f"{split}_{name}": value for split, part in scores.items() for name, value in part.items()}

  wall, cpu = time.perf_counter(), time.process_time()
  state = fit(
    run.loop, state, step, make_batch_fn(run, emoji, vocabulary), run_dir=run_dir,
    eval_fn=eval_fn if run.loop.eval_every else None, report_fn=Progress(run.part, run.batch_size), resume=resume,
  )  # fmt: skip
  spent(run_dir, time.perf_counter() - wall, time.process_time() - cpu)
  return state


def check_concept(figures: dict) -> None:
  """Refuses a concept encoder that is no better than the pixels themselves.

  Raises:
    ValueError: with both figures.
  """
  ours, pixels = (part["white"]["val_concept"]["top1"] for part in (figures, figures["raw_pixels"]))
  if not ours > pixels:
    raise ValueError(f"Must have a concept encoder that beats raw pixels ({pixels:.1%}), we instead got {ours:.1%}")


def export(run: EvaluatorRun, state, folder: Path, run_dir: Path, command: str, *, check: bool = True) -> dict:
  """Writes one part in bfloat16 with the held-out scores of these very weights; returns the scores.

  Args:
    check: see `check_concept`.
  """
  emoji = load_emoji()
  vocabulary = text_tokenizer.load_text_tokenizer(Path(run.bundle) / VOCABULARY_FILE)
  params = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(x.dtype), jax.device_get(state.ema))
  figures = held_out(run, params, emoji, vocabulary)
  if run.part == "concept" and check:
    check_concept(figures)
  rounded = json.loads(json.dumps(figures), parse_float=lambda text: round(float(text), 4))
  meta = {
    "licence": LICENCE,
    "command": command,
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
    "images": {split: len(emoji.indices(split)) for split in ("train", *HELD_OUT)},
    "held_out": rounded,
    "time": json.loads((run_dir / "time.json").read_text()),
    "jax": jax.__version__,
  }
  checkpoints.save(folder / run.part, run.model, jax.tree.map(jnp.asarray, params), meta=meta, dtype=jnp.bfloat16)
  shutil.copyfile(Path(run.bundle) / VOCABULARY_FILE, folder / evaluators.VOCABULARY_FILE)
  return rounded


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--part", choices=PARTS, action="append", help="only this one; may be repeated")
  parser.add_argument("--smoke", action="store_true", help="tiny networks, four steps")
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="e.g. loop.num_steps=500")
  parser.add_argument("--run-dir", type=Path, default=Path("runs/evaluators"))
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", type=Path, help="folder of the evaluators")
  parser.add_argument("--results", type=Path, help="JSON with curves and held-out scores; a table beside it")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  command = shlex.join(["python", "-m", "experiments.train.evaluators", *sys.argv[1:]])
  parts = {}
  with one_line_errors():
    for part in args.part or PARTS:
      run = override(get_config(("smoke-" if args.smoke else "") + part), args.set)
      run_dir = args.run_dir / part
      state = train(run, run_dir, args.resume)
      if args.export is None:
        continue
      args.export.mkdir(parents=True, exist_ok=True)
      figures = export(run, state, args.export, run_dir, command, check=not args.smoke)
      parts[part] = {"held_out": figures, "time": json.loads((run_dir / "time.json").read_text())}
      for name in ("metrics", "eval"):
        file = run_dir / f"{name}.jsonl"
        parts[part][name] = read_metrics(file) if file.exists() else []
  if args.results is not None and parts:
    emoji = load_emoji()
    document = {
      "kind": "evaluators", "name": "evaluators", "title": "Judges of images, on what they have never seen",
      "command": command, "versions": {"jax": jax.__version__}, "parts": parts,
      "images": {split: len(emoji.indices(split)) for split in HELD_OUT},
    }  # fmt: skip
    args.results.parent.mkdir(parents=True, exist_ok=True)
    args.results.write_text(json.dumps(document) + "\n")
    args.results.with_suffix(".md").write_text(render(document))


if __name__ == "__main__":
  main()
