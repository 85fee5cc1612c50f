"""Scenes: a small world of images with captions, its painter, and a reader that scores images exactly."""

from jaxspec.evaluation.scenes.captions import caption_of, parse, unknown_words, vocabulary
from jaxspec.evaluation.scenes.painter import paint, paint_batch
from jaxspec.evaluation.scenes.reader import Reading, read
from jaxspec.evaluation.scenes.requests import TASKS, Phrase, Request
from jaxspec.evaluation.scenes.sampling import SPLITS, draw, draw_scene, freedom_nats, sample_request, sample_scene
from jaxspec.evaluation.scenes.score import (
  DEMANDS,
  Scores,
  compare_right,
  holds,
  parse_captions,
  score_images,
  score_readings,
  summarise,
)
from jaxspec.evaluation.scenes.unconstrained import (
  ASPECTS,
  AttributeDistance,
  Distance,
  closer,
  compare_sets,
  compare_with_painter,
  distance_between,
)
from jaxspec.evaluation.scenes.world import FLAT_WORLD, IMAGE_SIZE, MATERIALS, NOUNS, TEXTURED_WORLD, Object, Scene

__all__ = [
  "ASPECTS",
  "DEMANDS",
  "FLAT_WORLD",
  "IMAGE_SIZE",
  "MATERIALS",
  "NOUNS",
  "SPLITS",
  "TASKS",
  "TEXTURED_WORLD",
  "Distance",
  "AttributeDistance",
  "Object",
  "Phrase",
  "Reading",
  "Request",
  "Scene",
  "Scores",
  "caption_of",
  "closer",
  "compare_right",
  "compare_sets",
  "compare_with_painter",
  "distance_between",
  "draw",
  "draw_scene",
  "freedom_nats",
  "holds",
  "paint",
  "paint_batch",
  "parse",
  "parse_captions",
  "read",
  "sample_request",
  "sample_scene",
  "score_images",
  "score_readings",
  "summarise",
  "unknown_words",
  "vocabulary",
]
