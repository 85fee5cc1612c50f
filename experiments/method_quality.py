"""What methods buy and cost on the shipped pictures: the shared driver of the ``gsd_*`` and ``lantern_*`` tables.

1. `choose_prompts`: pictures of one group of concepts, most of them training drawings, the others held out.
2. `Workbench.decode`: every setting draws the same prompts with the same keys; what comes out is kept under
   ``runs/method_quality`` after every batch, so that a killed run goes on and tables share settings.
3. `Workbench.time`: wall clock of one picture at a time, in turn with plain decoding in one process.
4. `experiments.quality_figures`: target calls, offline metrics with intervals and wall clock, as JSON and Markdown.

`experiments.quality_table` is the command line of all tables.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.cli import decoding, sources
from jaxspec.cli.settings import Settings
from jaxspec.data.emoji import STYLES, load_emoji
from jaxspec.data.prompts import canonical_prompt
from jaxspec.data.tokens import BACKGROUND_NAMES
from jaxspec.decode import measure
from jaxspec.decode.methods import METHODS, MethodOptions
from jaxspec.decode.state import DecodeResult
from jaxspec.drafters.interval import GatedReport
from jaxspec.metrics import evaluation

SPLITS = ("train", "val_style", "val_concept")
_COUNTERS = ("rounds", "drafted", "accepted", "settled", "target_calls", "draft_calls")


@dataclasses.dataclass(frozen=True)
class Setting:
  """One row of a table: a method, what differs from the bundle's defaults (pairs), and the seed of the decode."""

  method: str
  options: tuple[tuple[str, Any], ...] = ()
  seed: int = 0

  @classmethod
  def of(cls, method: str, *, seed: int = 0, **options: Any) -> Setting:
    return cls(method, tuple(options.items()), seed)

  @property
  def label(self) -> str:
    words = [f"{name.replace('_', ' ')} {value}" for name, value in self.options]
    return ", ".join([self.method, *words] + [f"seed {self.seed}"] * bool(self.seed))


# Plain decoding twice: what chance alone does to the figures.
PLAIN, PLAIN_AGAIN = Setting.of("ar"), Setting.of("ar", seed=1)
SJD_FRESH, SJD = Setting.of("sjd", recycle="fresh"), Setting.of("sjd")


@dataclasses.dataclass(frozen=True)
class QualityRun:
  """A table.

  Attributes:
    name: of the files in ``experiments/results``; ``title`` says what is walked.
    settings: the rows besides `PLAIN` and `PLAIN_AGAIN`, which every table has.
    num_train: prompts that name training pictures of ``group``; ``num_held_out`` of each held-out split.
    batch: pictures decoded together.
    timings: pairs of wall times, of one picture by plain decoding and by the setting.
  """

  name: str
  title: str
  settings: tuple[Setting, ...]
  num_train: int = 48
  num_held_out: int = 8
  group: str = "Food & Drink"
  batch: int = 8
  timings: int = 5
  checkpoint: str = "checkpoints/emoji64"

  @property
  def rows(self) -> tuple[Setting, ...]:
    return (PLAIN, PLAIN_AGAIN, *self.settings)


class Prompts(NamedTuple):
  """What is drawn."""

  texts: list[str]
  picture: np.ndarray  # [P] int, the real pictures that were asked for


def choose_prompts(run: QualityRun) -> Prompts:
  """The same prompts for all settings and all tables."""
  emoji, texts, pictures = load_emoji(), [], []
  for split in SPLITS:
    num = run.num_train if split == "train" else run.num_held_out
    picture, painting = evaluation.choose_pictures(emoji, split, num, groups=(run.group,), seed=0)
    for index, background, small in zip(picture, painting.background, painting.small):
      label = emoji.emoji[emoji.concept[index]]
      texts.append(canonical_prompt(label, STYLES[emoji.style[index]], BACKGROUND_NAMES[background], bool(small)))
    pictures.append(picture)
  return Prompts(texts, np.concatenate(pictures))


class Decoded(NamedTuple):
  """What a setting drew."""

  tokens: np.ndarray  # [P, N] int16
  counters: dict[str, np.ndarray]  # [P] int32 each
  origin: np.ndarray  # [P, N] int8, where each token came from (`jaxspec.decode.state.Origin`)
  scores: np.ndarray | None  # [P, N] float32, uncertainty of a gated device; None for other methods


class Workbench:
  """Networks and encoded prompts, loaded once for all settings that draft with the same network."""

  def __init__(self, run: QualityRun, folder: Path):
    self.run, self.folder, self.prompts = run, folder, choose_prompts(run)
    self._sources: dict[tuple[str | None, str | None], sources.Source] = {}
    self._weights: dict[tuple[str | None, str | None], str] = {}
    self._programs: dict[Hashable, Callable] = {}

  def source(self, method: str, draft: str | None = None) -> sources.Source:
    """Networks of a method, by default with the draft that the bundle names for it."""
    networks = (METHODS[method].draft_family, draft)
    if networks not in self._sources:
      chosen = {"method": method, "draft": draft}
      self._sources[networks] = sources.from_bundle(
        Path(self.run.checkpoint), self.prompts.texts, chosen, compare=False
      )
    return self._sources[networks]

  def source_of(self, setting: Setting) -> sources.Source:
    """Networks of a setting."""
    return self.source(setting.method, dict(setting.options).get("draft"))

  def settings(self, setting: Setting) -> Settings:
    """Everything that decides the tokens."""
    base = self.source_of(setting).settings
    return dataclasses.replace(base, method=setting.method, seed=setting.seed, **dict(setting.options))

  def decode(self, setting: Setting) -> Decoded:
    """What all prompts became, read back if it is there; every batch is kept as soon as it is decoded."""
    source = self.source_of(setting)
    batches = decoding.make_batches(source.condition, samples=1, seed=setting.seed, rows=self.run.batch)
    files = [self.kept_at(setting, f".{index}.npz") for index in range(len(batches.key_data))]
    if not all(path.exists() for path in files):
      logging.info("decoding %d pictures: %s", len(batches.prompt), setting.label)
      decoder = self._decoder(setting, batches)
      files[0].parent.mkdir(parents=True, exist_ok=True)
      for path, key_data, condition in zip(files, batches.key_data, batches.condition):
        if not path.exists():
          _save(path, jax.device_get(decoder(key_data, condition)))
    parts = [_load(path) for path in files]
    whole = {name: np.concatenate([part[name] for part in parts])[: len(batches.prompt)] for name in parts[0]}
    counters = {name: whole[name] for name in _COUNTERS}
    return Decoded(whole["tokens"], counters, whole["origin"], whole.get("scores"))

  def time(self, setting: Setting, *, again: bool) -> dict[str, list[float]]:
    """Wall seconds of single pictures, ``plain`` and ``own`` in turn; read back if they are there, unless ``again``."""
    path = self.kept_at(setting, ".wall.json")
    if again or not path.exists():
      logging.info("timing: %s", setting.label)
      seconds: dict[str, list[float]] = {"plain": [], "own": []}
      calls = {"plain": self._one_picture(PLAIN), "own": self._one_picture(setting)}
      for index in range(self.run.timings):
        turn = {name: (lambda call=call, index=index: call(index)) for name, call in calls.items()}
        # The first turn of all compiles, or reads the program back: that call is not counted.
        once = measure.alternate(turn, 1) if index == 0 else {k: [measure.seconds_of(c)] for k, c in turn.items()}
        for name in seconds:
          seconds[name] += once[name]
      path.write_text(json.dumps(seconds) + "\n")
    return json.loads(path.read_text())

  def is_decoded(self, setting: Setting) -> bool:
    """Whether `decode` only reads."""
    number = -(-len(self.prompts.texts) // self.run.batch)
    return all(self.kept_at(setting, f".{index}.npz").exists() for index in range(number))

  def _decoder(self, setting: Setting, batches: decoding.Batches) -> Callable[[Any, Any], DecodeResult]:
    """The compiled decode of a batch; settings that differ in traced numbers only (thresholds) share one program."""
    source, settings = self.source_of(setting), self.settings(setting)
    params, drafter, verifier = source.assemble(settings)
    program = (drafter, verifier, batches.rows, settings.method, settings.matmul_precision)
    if program not in self._programs:
      run = decoding.decode_fn(source, settings.method, drafter, verifier)
      with jax.default_matmul_precision(settings.matmul_precision):
        self._programs[program] = jax.jit(run).lower(params, batches.key_data[0], batches.condition[0]).compile()
    compiled = self._programs[program]
    return lambda key_data, condition: compiled(params, key_data, condition)

  def _one_picture(self, setting: Setting) -> Callable[[int], Any]:
    batches = decoding.make_batches(self.source_of(setting).condition, samples=1, seed=setting.seed, rows=1)
    decoder = self._decoder(setting, batches)
    # Pictures far apart, so that timings are not of near copies of one prompt.
    step = max(len(batches.key_data) // self.run.timings, 1)
    return lambda index: decoder(batches.key_data[index * step], batches.condition[index * step])

  def kept_at(self, setting: Setting, suffix: str) -> Path:
    """Where a setting is kept; other settings, prompts or weights have other names."""
    settings = self.settings(setting)
    read = {name: value for name, value in dataclasses.asdict(settings).items() if _decides(settings, name)}
    text = json.dumps([read, self.prompts.texts, self.run.batch, self._digest(setting)], sort_keys=True)
    return self.folder / f"{settings.method}-{hashlib.sha256(text.encode()).hexdigest()[:16]}{suffix}"

  def _digest(self, setting: Setting) -> str:
    """Hash of the weights of target and draft."""
    source = self.source_of(setting)
    networks = (METHODS[setting.method].draft_family, None if source.draft is None else source.draft.path.name)
    if networks not in self._weights:
      weights = hashlib.sha256()
      for part in (source.target, source.draft):
        for path in [] if part is None else sorted(part.path.glob("*.safetensors")):
          weights.update(path.read_bytes())
      self._weights[networks] = weights.hexdigest()
    return self._weights[networks]


def _save(path: Path, result: DecodeResult) -> None:
  """Writes a batch, whole or not at all."""
  leaves = decoding.per_row(result.counters) | {"tokens": result.tokens.astype(np.int16), "origin": result.origin}
  if isinstance(result.report, GatedReport):
    leaves["scores"] = result.report.scores
  part = path.with_name(f"{path.stem}.part.npz")
  np.savez_compressed(part, **leaves)
  part.rename(path)


def _load(path: Path) -> dict[str, np.ndarray]:
  with np.load(path) as archive:
    return dict(archive)


def _decides(settings: Settings, name: str) -> bool:
  """Whether a field has a say in what the method draws."""
  return name not in MethodOptions.names() or name in settings.parts.options
