"""Evaluators of tiny random networks for images of 64 x 64 pixels, and a bundle that draws such images."""

from __future__ import annotations

import shutil
from pathlib import Path

from jaxspec.data.emoji import STYLES
from jaxspec.hosts.images import VOCABULARY_FILE
from jaxspec.models.caption_encoder import CaptionEncoderConfig
from jaxspec.models.image_classifier import ImageClassifierConfig
from jaxspec.models.image_encoder import ImageEncoderConfig
from jaxspec.models.patch_vq import PatchVQConfig
from tests.cli.fake_bundle import make_fake_bundle, save_random

SHAPE = dict(widths=(4, 4, 8), blocks=(0, 0, 0), embed_dim=8)
GROUPS = ("Activities", "Food & Drink", "Objects")
# 16 tokens, each of 16 x 16 pixels.
TOKENIZER = PatchVQConfig(
  image_size=64, widths=(4, 4, 4, 8), encoder_blocks=(0,) * 4, decoder_blocks=(0,) * 4, num_codes=16, code_dim=4
)


def make_fake_evaluators(path: Path) -> Path:
  """Writes evaluators of random weights; returns their folder."""
  save_random(path / "concept", ImageEncoderConfig(**SHAPE), 0, held_out={"white": {"val_concept": {"top1": 0.5}}})
  save_random(path / "classifier", ImageClassifierConfig(**SHAPE, styles=STYLES, groups=GROUPS), 1)
  text = dict(vocab_size=64, max_tokens=6, text_dim=8, text_layers=1, text_heads=1)
  save_random(path / "caption", CaptionEncoderConfig(**SHAPE, **text), 2)
  vocabulary = make_fake_bundle(path.with_name("vocabulary"), tokenizer=TOKENIZER) / VOCABULARY_FILE
  shutil.copyfile(vocabulary, path / VOCABULARY_FILE)
  return path
