"""Documents of tables of scenes without networks: a painter draws for plain decoding and for harmful methods."""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.engine import claims
from experiments.engine.outlook import Outlook, Pilot
from experiments.engine.rows import PLAIN, PLAIN_AGAIN, Row, row
from experiments.engine.scene_images import SceneJudge, Scenes
from jaxspec.evaluation import scenes
from jaxspec.statistics import paired_share_difference

NUM, NUM_TOKENS = 96, 144
scorer = functools.cache(lambda: Scenes(NUM, seed=5))
HARMLESS, WRONG, WHITE = (
  row("sjd", "harmless", window=15),
  row("gsd", "wrong", group_size=50, variant="static"),
  row("scaled", "white", factor=5.0),
)


def _plain(turn: int, text: str, scene: scenes.Scene) -> scenes.Scene:
  """Every sixth image is incorrect: plain decoding also errs, in other images for another seed."""
  return _spoilt(scene) if turn % 6 == 0 else scene


def _wrong(turn: int, text: str, scene: scenes.Scene) -> scenes.Scene:
  return _spoilt(scene) if turn % 2 == 0 else scene


def _white(turn: int, text: str, scene: scenes.Scene) -> scenes.Scene:
  """The same share of correct images, with white for every unconstrained background."""
  can_be_white = "white" in scenes.parse(text).backgrounds
  return _plain(turn, text, dataclasses.replace(scene, background="white") if can_be_white else scene)


def _spoilt(scene: scenes.Scene) -> scenes.Scene:
  """One of its objects becomes a car or a house, which are visible on every background."""
  first, *rest = scene.objects
  noun = "house" if first.noun == "car" else "car"
  return dataclasses.replace(scene, objects=(dataclasses.replace(first, noun=noun, style="noto", colour=None), *rest))


CHANGES = {"plain": _plain, "harmless": _plain, "wrong": _wrong, "white": _white}


def drawn(seed: int, change: str) -> list[scenes.Scene]:
  """A scene of every caption."""
  generator = np.random.default_rng(seed)
  painted = ((text, scenes.sample_scene(generator, text)) for text in scorer().texts())
  return [CHANGES[change](number + 3 * seed, text, scene) for number, (text, scene) in enumerate(painted)]


class PaintingBench:
  """Stand-in for a `Bench`: the token of an image is the number of its scene."""

  batch, samples = 8, 1

  def __init__(self):
    self.prompts, self._scenes, self._numbers, self._kept = scorer().texts(), [], {}, {}
    family = SimpleNamespace(decode=self._paint, tokenizer=SimpleNamespace(params={}))
    self.pipeline = SimpleNamespace(family=family)

  def decode(self, entry: Row, first: int | None = None) -> SimpleNamespace:
    """Tokens of the first images of a row."""
    is_plain = entry.but(label="", seed=0) == PLAIN
    of = entry.seed if is_plain else 2, "plain" if is_plain else entry.label
    if of not in self._numbers:
      self._numbers[of] = np.arange(NUM)[:, None] + len(self._scenes)
      self._scenes += drawn(*of)
    return SimpleNamespace(tokens=self._numbers[of][:first])

  def kept(self, name: str, make) -> Any:
    if name not in self._kept:
      self._kept[name] = make()
    return self._kept[name]

  def _paint(self, tokens) -> np.ndarray:
    return scenes.paint_batch([self._scenes[int(number)] for number in np.asarray(tokens)[:, 0]])


bench = functools.cache(PaintingBench)


def counted(entry: Row, calls: float, options: dict[str, Any], audit: dict[str, Any] | None = None) -> dict[str, Any]:
  """Counters of a decode with this number of calls per image."""
  each = np.full(NUM, calls) + np.arange(NUM) % 3 - 1
  return {
    "label": entry.name, "method": entry.method, "options": options, "sampling": {}, "draft": entry.draft, "alone": False,
    "seed": entry.seed, "wanted_rate": entry.rate, "images": NUM, "calls_per_image": calls, "wall": None, "audit": audit,
    "step_reduction": {"value": NUM_TOKENS / calls, "low": NUM_TOKENS / calls - 0.1, "high": NUM_TOKENS / calls + 0.1},
    "cloud": {"call_rate": calls / NUM_TOKENS, "interval": [0.2, 0.4], "local": 0.5, "accepted": 0.2, "by_cloud": 0.3},
    "per_image": {"target_calls": each.tolist()},
  }  # fmt: skip


@functools.cache
def document(subject: str = "", margin: float = 0.0) -> dict[str, Any]:
  """A table of plain decoding, a harmless method, a harmful one, and one that prefers white backgrounds."""
  painting, rows = bench(), []
  judge = SceneJudge(scorer(), painting)
  entries = {
    PLAIN.but(label=claims.PLAIN): (144, {}),
    PLAIN_AGAIN.but(label=f"{claims.PLAIN}, another seed"): (144, {}),
    HARMLESS: (72, {"window": 15}),
    WRONG: (36, {"variant": "static", "group_size": 50}),
    WHITE: (48, {"factor": 5.0}),
  }
  for entry, (calls, options) in entries.items():
    judged = judge.figures(entry, painting.decode(entry))
    counts = counted(entry, calls, options)
    rows.append(counts | judged | {"per_image": counts["per_image"] | judged["per_image"]})
  judge.compare(rows, subject or claims.PLAIN)
  hits = [judge.hits(painting.decode(entry)) for entry in (PLAIN, PLAIN_AGAIN)]
  pilot = Pilot(float(np.mean(hits[0] != hits[1])), paired_share_difference(*hits))
  outlook = Outlook(NUM, (), pilot, 8, 3 if margin else 0, 0.05, margin)
  return {
    "kind": "scenes", "name": "scenes_lossy", "title": "Lossy methods on scenes", "command": "c", "notes": ["A note."],
    "layout": "calls", "subject": subject, "batch": 8, "num_tokens": NUM_TOKENS, "margin": margin,
    "outlook": outlook.document(), **judge.about(), "rows": rows, "left_out": [],
  }  # fmt: skip
