"""Decodes of a language pair under many settings of the link at once; shared by ``experiments/sqs_*.py``.

Rows of one compiled program differ in their prompt, their seed and the traced settings of their sparsifier, so a sweep
over K or the first threshold costs one compilation. A prompt and a seed have the same random numbers under every setting.
No token ends a row, so that all continuations have the same length: a dictionary line that is over is followed by another.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from jaxspec import checkpoints
from jaxspec.checkpoints import Checkpoint
from jaxspec.codecs.codec import SparseCodec
from jaxspec.data import language_tokenizer
from jaxspec.drafters.compressed import CompressedParams, compressed
from jaxspec.link.driver import Traffic, decode_over_link
from jaxspec.metrics.bootstrap import bootstrap
from jaxspec.models.conditions import Prompt
from jaxspec.models.sampling import ModelParams, Warp, sampling_params
from jaxspec.types import Drafter, PyTree, Verifier
from jaxspec.verifiers.sparse import lossless_sparse
from jaxspec.verifiers.target import target_laws, target_model

# Beginnings of dictionary lines, which the shipped pair has learnt to continue.
PROMPTS = (
  "river:", "copper:", "to walk:", "apple tree:", "music: a", "kindness: the quality of", "castle: a large", "winter:",
)  # fmt: skip


class Pair(NamedTuple):
  """Two networks of one vocabulary, and the rows to continue."""

  target: Checkpoint
  draft: Checkpoint
  prompt: Prompt  # [P * S, T], prompts times seeds
  keys: jax.Array  # [P * S]

  @property
  def rows(self) -> int:
    return self.keys.shape[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """The options that every experiment has."""
  parser.add_argument("--model", type=Path, default=Path("checkpoints/wordnet/target"))
  parser.add_argument("--draft-model", type=Path, default=Path("checkpoints/wordnet/draft"))
  parser.add_argument("--text", action="append", help="beginning to continue; may be repeated (built-in ones)")
  parser.add_argument("--seeds", type=int, default=3)
  parser.add_argument("--tokens", type=int, default=40, help="tokens of a continuation")
  parser.add_argument("--budget", type=float, default=3000.0, help="bits of a round")
  parser.add_argument("--max-drafts", type=int, default=16)
  parser.add_argument("--ell", type=int, default=100)
  parser.add_argument("--edge-ms", type=float, default=1.0, help="one pass of the draft network")
  parser.add_argument("--cloud-ms", type=float, default=6.0, help="one pass of the target, besides what it reads")
  parser.add_argument("--cloud-token-ms", type=float, default=0.3, help="each token that the target reads")


def load_pair(args: argparse.Namespace) -> Pair:
  """Networks, prompts and keys of the options.

  Raises:
    ValueError: if the two networks have different vocabularies.
  """
  target, draft = checkpoints.load(args.model), checkpoints.load(args.draft_model)
  if target.config.vocab_size != draft.config.vocab_size:
    raise ValueError(
      f"Must have a draft over {target.config.vocab_size} tokens, we instead got {draft.config.vocab_size}"
    )
  tokenizer = language_tokenizer.load_tokenizer(args.model)
  texts = args.text or list(PROMPTS)
  prompt = language_tokenizer.pad_left(language_tokenizer.encode(tokenizer, texts))
  prompt = jax.tree.map(lambda leaf: np.repeat(leaf, args.seeds, axis=0), prompt)
  number = np.arange(len(texts) * args.seeds)
  one_key = lambda text, seed: jax.random.fold_in(jax.random.fold_in(jax.random.key(0), seed), text)
  return Pair(target, draft, prompt, jax.vmap(one_key)(number // args.seeds, number % args.seeds))


def make_sides(
  pair: Pair, codec: SparseCodec, sparsifier: PyTree, *, budget: float, max_drafts: int, temperature: float
) -> tuple[jaxspec.SpecParams, Drafter, Verifier]:
  """Both ends; ``sparsifier`` leaves are ``[]`` or ``[rows]``."""
  sampling, warp = sampling_params(temperature), Warp()
  drafting = CompressedParams(ModelParams(pair.draft.params, sampling), sparsifier, jnp.float32(budget))
  params = jaxspec.SpecParams(drafting, ModelParams(pair.target.params, sampling))
  feedback = {"feedback_fn": target_laws} if codec.coding == "lazy" else {}
  verifier = target_model(pair.target.fns, lossless_sparse, warp=warp, **feedback)
  return params, compressed(pair.draft.fns, codec, window=max_drafts, warp=warp), verifier


def decode_settings(
  pair: Pair, codec: SparseCodec, settings: Sequence[PyTree], *, num_tokens: int, **options
) -> jaxspec.DecodeResult:
  """Decodes every row of the pair under every setting, in one batch.

  Args:
    settings: traced parameters of the codec's sparsifier, leaves ``[]``.
    options: of `make_sides`.
  Returns:
    The result with numpy leaves ``[settings, rows, ...]``.
  """
  number, rows = len(settings), pair.rows
  stacked = jax.tree.map(lambda *leaves: jnp.repeat(jnp.stack(leaves), rows), *settings)
  params, drafter, verifier = make_sides(pair, codec, stacked, **options)
  prompt = jax.tree.map(lambda leaf: np.tile(leaf, (number, 1)), pair.prompt)
  keys = jax.random.wrap_key_data(jnp.tile(jax.random.key_data(pair.keys), (number, 1)))
  out = jaxspec.speculate(params, keys, prompt, drafter=drafter, verifier=verifier, max_len=num_tokens)
  return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(number, rows, *leaf.shape[1:]), out)


def decode_by_messages(
  pair: Pair, codec: SparseCodec, sparsifier: PyTree, *, num_tokens: int, **options
) -> tuple[jaxspec.DecodeResult, Traffic]:
  """Decodes every row of the pair by two ends that exchange bytes; numpy leaves ``[rows, ...]``."""
  params, drafter, verifier = make_sides(pair, codec, sparsifier, **options)
  kwargs = dict(drafter=drafter, verifier=verifier, codec=codec, max_len=num_tokens)
  out, traffic = decode_over_link(params, pair.keys, pair.prompt, **kwargs)
  return jax.tree.map(np.asarray, out), traffic


def ratio(above: np.ndarray, below: np.ndarray) -> list[float | None]:
  """``sum(above) / sum(below)`` over rows, and the ends of its 95 % interval by a bootstrap over rows.

  A row is a prompt and a seed. None three times where nothing is below.
  """
  if not below.any():
    return [None] * 3
  return list(bootstrap(lambda rows: rows[:, 0].sum() / max(rows[:, 1].sum(), 1), np.stack([above, below], axis=1)))


def commit() -> str:
  """The commit that runs, for the record beside its numbers."""
  found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
  return found.stdout.strip() or "unknown"
