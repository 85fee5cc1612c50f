"""Folders of tiny random networks for `load_pipeline`: 4 discrete tokens of 8 codes, 4 continuous tokens, short texts."""

from __future__ import annotations

import functools
import string
from pathlib import Path

import jax
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxspec.core.network import Network
from jaxspec.families.token_images import VOCABULARY_FILE
from jaxspec.io import checkpoints
from jaxspec.io.bundle import write_bundle
from jaxspec.io.text import text_tokenizer
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.language.llama import LlamaConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.mar.causal_tokens import CausalTokensConfig
from jaxspec.models.mar.mar import MARConfig
from jaxspec.models.registry import FAMILIES, family_name
from jaxspec.models.text_encoders.text_encoder import TextEncoderConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig
from jaxspec.models.tokenizers.var_vae import VARVAEConfig
from jaxspec.models.var.var import VARConfig

VQ = PatchVQConfig(image_size=8, widths=(4, 8), encoder_blocks=(0, 0), decoder_blocks=(0, 0), num_codes=8, code_dim=4)
TEXT = TextEncoderConfig(vocab_size=64, max_tokens=6, dim=8, num_layers=1, num_heads=1, caption_dim=8)
_IDS = dict(vocab_size=8, num_tokens=4, num_layers=1, num_heads=2, multiple_of=16)
CAPTIONS = LlamaGenConfig(model_type="t2i", prefix_len=6, caption_dim=8, dim=16, **_IDS)
SMALL_CAPTIONS = LlamaGenConfig(model_type="t2i", prefix_len=6, caption_dim=8, dim=8, **_IDS)
CLASSES = LlamaGenConfig(num_classes=5, dim=16, **_IDS)
SMALL_CLASSES = LlamaGenConfig(num_classes=5, dim=8, **_IDS)

VAE = KLVAEConfig(
  base_channels=2, multipliers=(1, 1), num_res_blocks=1, attention_levels=(), z_channels=2, latent_channels=2, num_groups=1
)
NAMES = ("animal-mammal", "animal-bird", "food-fruit")
_VECTORS = dict(num_tokens=4, latent_channels=2, num_classes=3, diffloss_width=8, diffloss_depth=1)
MAR = MARConfig(
  **_VECTORS, buffer_size=2, encoder_dim=8, encoder_depth=1, encoder_heads=2, decoder_dim=8, decoder_depth=1,
  decoder_heads=2,
)  # fmt: skip
CAUSAL = CausalTokensConfig(**_VECTORS, dim=8, num_layers=1, num_heads=2)

SIDES = (1, 2, 3)
SCALES = VARConfig(depth=1, dim=8, num_heads=2, vocab_size=5, code_dim=4, num_classes=10, sides=SIDES)
SCALE_VAE = VARVAEConfig(4, (1, 2), 1, codebook_size=5, codebook_dim=4, num_phis=2, sides=SIDES, num_groups=2)

END = "<end>"
WORDS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "on", "ce", END]
NEO = GPTNeoConfig(
  vocab_size=len(WORDS), dim=16, num_layers=2, num_heads=2, max_positions=48, window_size=4, end_ids=(WORDS.index(END),)
)
LLAMA = LlamaConfig(
  vocab_size=len(WORDS), dim=16, num_layers=1, num_heads=2, ffn_hidden=16, max_positions=16, end_ids=NEO.end_ids
)


@functools.cache
def _template(config):
  return jax.eval_shape(FAMILIES[family_name(config)].make_fns(config).init, jax.random.key(0))


def weights(config, seed: int, scale: float = 0.5):
  """Random parameters; one-dimensional ones are 1."""
  generator = np.random.default_rng(seed)
  draw = lambda leaf: scale * generator.normal(size=leaf.shape) if leaf.ndim > 1 else np.ones(leaf.shape)
  return jax.tree.map(lambda leaf: jax.device_put(np.float32(draw(leaf))), _template(config))


def save(path: Path, config, seed: int, *, scale: float = 0.5, **meta) -> Path:
  """Writes a checkpoint of random weights; returns its folder."""
  checkpoints.save(path, config, weights(config, seed, scale), meta=meta)
  return path


def checkpoint(config, name: str, params=None, **meta) -> Network:
  """A network as loaded, without a checkpoint file; by default without weights."""
  family = family_name(config)
  return Network(FAMILIES[family].make_fns(config), params or {}, config, meta, Path(name).name, family, Path(name))


def save_vocabulary(file: Path) -> None:
  """Word pieces of a few prompts."""
  vocabulary = Tokenizer(models.BPE(unk_token=text_tokenizer.UNK, fuse_unk=True))
  vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
  trainer = trainers.BpeTrainer(
    vocab_size=TEXT.vocab_size, special_tokens=[text_tokenizer.PAD, text_tokenizer.UNK],
    initial_alphabet=list(string.ascii_lowercase), show_progress=False,
  )  # fmt: skip
  vocabulary.train_from_iterator(["red apple sleeping cat on blue background"] * 8, trainer)
  text_tokenizer.save_text_tokenizer(vocabulary, file)


def captions(path: Path) -> Path:
  """A bundle for captions with drafts of three families."""
  save(path / "tokenizer", VQ, 0)
  save(path / "text", TEXT, 1)
  save(path / "target", CAPTIONS, 2)
  save(path / "draft", SMALL_CAPTIONS, 3)
  save(path / "distilled", SMALL_CAPTIONS, 4, guided=False, distilled_at_cfg=4.0)
  save(path / "feature", EagleConfig.of(CAPTIONS), 5, scale=0.2)
  save(path / "edge", InterHeadConfig(SMALL_CAPTIONS), 6, guided=False)
  save_vocabulary(path / VOCABULARY_FILE)
  drafts = {"small": "draft", "distilled": "distilled", "feature": "feature", "edge": "edge"}
  write_bundle(
    path, target="target", drafts=drafts, parts={"tokenizer": "tokenizer", "text": "text", "vocabulary": VOCABULARY_FILE},
    method="speculative", draft="small", sampling={"top_k": 6}, options={"gamma": 2, "tree_size": 3, "early_close": True},
  )  # fmt: skip
  return path


def classes(path: Path) -> Path:
  """Three converted folders: a class-conditional target, its draft, and an image tokenizer."""
  save(path / "target", CLASSES, 0)
  save(path / "draft", SMALL_CLASSES, 1)
  save(path / "vq", VQ, 2)
  return path


def vectors(path: Path, network) -> Path:
  """A bundle of continuous tokens, target and draft of one config."""
  save(path / "vae", VAE, 0)
  save(path / "target", network, 1, scale=0.2)
  save(path / "draft", network, 2, scale=0.2)
  write_bundle(
    path, target="target", drafts={"small": "draft"}, parts={"vae": "vae", "classes": NAMES, "latent_scale": 0.5},
    method="cspd", sampling={"steps": 5}, options={"gamma": 2, "num_iter": 2},
  )  # fmt: skip
  return path


def scales(path: Path) -> Path:
  """A bundle of three scales, target and draft of one config."""
  for seed, (name, config) in enumerate({"tokenizer": SCALE_VAE, "target": SCALES, "draft": SCALES}.items()):
    save(path / name, config, seed, scale=0.2)
  write_bundle(path, target="target", drafts={"small": "draft"}, parts={"tokenizer": "tokenizer"})
  return path


def byte_tokenizer(words: list[str] = WORDS) -> Tokenizer:
  """A byte-level tokenizer with two merges and an end token."""
  made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [("o", "n"), ("c", "e")]))
  made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
  made.add_special_tokens([END])
  return made


def texts(path: Path) -> Path:
  """Two language models of different families, ``target`` and ``draft``, without a bundle file."""
  for seed, (name, config) in enumerate({"target": NEO, "draft": LLAMA}.items()):
    save(path / name, config, seed, scale=0.2)
    byte_tokenizer().save(str(path / name / TOKENIZER_FILE))
  return path
