"""A bundle of tiny random networks: 16 tokens of 16 codes, images of 16 x 16 pixels."""

from __future__ import annotations

import string
from pathlib import Path

import jax
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from jaxspec.core.options import options_of
from jaxspec.families.token_images import VOCABULARY_FILE
from jaxspec.io import checkpoints
from jaxspec.io.bundle import write_bundle
from jaxspec.io.text import text_tokenizer
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.registry import FAMILIES, family_name
from jaxspec.models.text_encoders.text_encoder import TextEncoderConfig
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig
from jaxspec.sampling import SamplingConfig

TOKENIZER = PatchVQConfig(
  image_size=16, widths=(4, 8), encoder_blocks=(0, 0), decoder_blocks=(0, 0), num_codes=16, code_dim=4
)
# 36 tokens of images as large as scenes.
SCENE_TOKENIZER = PatchVQConfig(
  image_size=96, widths=(4, 4, 4, 8), encoder_blocks=(0,) * 4, decoder_blocks=(0,) * 4, num_codes=16, code_dim=4
)
TEXT = TextEncoderConfig(vocab_size=64, max_tokens=6, dim=8, num_layers=1, num_heads=1, caption_dim=8)
_SHARED = dict(vocab_size=16, num_tokens=16, num_heads=2, multiple_of=16)
# Every block is traced and compiled for each program, and commands do not know how many there are.
TARGET = LlamaGenConfig(model_type="t2i", prefix_len=6, caption_dim=8, num_layers=1, dim=16, **_SHARED)
DRAFT = LlamaGenConfig(model_type="t2i", prefix_len=6, caption_dim=8, num_layers=1, dim=8, **_SHARED)
CLASS_TARGET = LlamaGenConfig(num_classes=5, num_layers=1, dim=16, **_SHARED)
CLASS_DRAFT = LlamaGenConfig(num_classes=5, num_layers=1, dim=8, **_SHARED)
DRAFTS = {"small": "draft", "distilled": "distilled", "feature": "feature", "edge": "edge"}
DEFAULTS = dict(method="speculative", gamma=3, cfg_scale=1.0, top_k=8, temperature=1.0)


def save_random(path: Path, config, seed: int, scale: float = 0.5, **meta) -> Path:
  """Writes a checkpoint of random weights."""
  fns = FAMILIES[family_name(config)].make_fns(config)
  leaves, treedef = jax.tree.flatten(jax.eval_shape(fns.init, jax.random.key(0)))
  generator = np.random.default_rng(seed)
  draw = lambda leaf: scale * generator.normal(size=leaf.shape) if leaf.ndim > 1 else np.ones(leaf.shape)
  params = jax.tree.unflatten(treedef, [jax.device_put(np.float32(draw(leaf))) for leaf in leaves])
  checkpoints.save(path, config, params, meta=meta)
  return path


def make_fake_bundle(path: Path, *, target=TARGET, draft=DRAFT, tokenizer=TOKENIZER, text=TEXT, **defaults) -> Path:
  """Writes a bundle of random networks; returns its folder.

  Args:
    defaults: over `DEFAULTS`: ``method``, sampling settings, and options of methods.
  """
  save_random(path / "tokenizer", tokenizer, 0, licence="CC0-1.0", figures={"psnr": 12.3})
  save_random(path / "text", text, 1)
  save_random(path / "target", target, 2, licence="CC0-1.0", provenance="random numbers")
  save_random(path / "draft", draft, 3)
  save_random(path / "distilled", draft, 4, guided=False, distilled_at_cfg=4.0)
  save_random(path / "feature", EagleConfig.of(target), 5, scale=0.2)
  save_random(path / "edge", InterHeadConfig(draft), 6, guided=False)
  vocabulary = Tokenizer(models.BPE(unk_token=text_tokenizer.UNK, fuse_unk=True))
  vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
  special = [text_tokenizer.PAD, text_tokenizer.UNK]
  trainer = trainers.BpeTrainer(
    vocab_size=text.vocab_size,
    special_tokens=special,
    initial_alphabet=list(string.ascii_lowercase),
    show_progress=False,
  )
  vocabulary.train_from_iterator(["red apple sleeping cat on blue background"] * 8, trainer)
  text_tokenizer.save_text_tokenizer(vocabulary, path / VOCABULARY_FILE)
  chosen = DEFAULTS | defaults
  sampling = {name: value for name, value in chosen.items() if name in options_of(SamplingConfig)}
  write_bundle(
    path,
    target="target",
    drafts=DRAFTS,
    parts={"tokenizer": "tokenizer", "text": "text", "vocabulary": VOCABULARY_FILE},
    method=chosen["method"],
    draft="small",
    sampling=sampling,
    options={name: value for name, value in chosen.items() if name not in (*sampling, "method")},
  )
  return path
