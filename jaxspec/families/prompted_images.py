"""Images of networks that read the text of a prompt themselves, in a vocabulary of their own, and then draw image codes.

What Anole, Lumina-mGPT, Emu3 and Janus-Pro share: the prompt is a `Prompt` without a text encoder, guidance applies to all
tokens, and the folder of a converted network has its ``tokenizer.json`` and its image tokenizer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from jaxspec.core.network import Network
from jaxspec.core.types import Array, HostArray
from jaxspec.families.family import Encoded, Family, FamilyParts, check_captions, check_texts, check_whole
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, load_tokenizer, pad_left
from jaxspec.models.conditions import Prompt
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, truncate_to_uint8

# The default image tokenizer, in the folder of a converted network.
VQ_FOLDER = "vq"
# Two files of one image tokenizer may be rounded to bfloat16 apart.
_ROUNDING = 2.0**-7


def parts_of(target: Network, parts: FamilyParts) -> tuple[Network, Tokenizer]:
  """The image tokenizer and the vocabulary of a target.

  Args:
    target: a loaded checkpoint with its ``tokenizer.json`` beside its weights.
    parts: ``tokenizer``, the image tokenizer; by default the folder ``vq`` in the target's.
  Raises:
    ValueError: if a part is missing.
  """
  text = load_tokenizer(target.folder)
  if parts.value("tokenizer") is None and (target.folder / VQ_FOLDER).is_dir():
    parts = FamilyParts(parts.owner, {"tokenizer": (target.folder / VQ_FOLDER).absolute()})
  return parts.network("tokenizer"), text


class PromptedImages(Family):
  """Base of families of images from texts.

  Attributes:
    target: the network. Its config has ``grid``, rows and columns of tokens, and ``rows`` and ``columns`` of codes.
    tokenizer: the image tokenizer, a `jaxspec.models.tokenizers.tokenizer_fns.TokenizerFns`.
    text: the vocabulary, of the ``tokenizers`` library.
  """

  condition_type = Prompt
  sends_text = True  # ids of prompts are not drawn ids, and a stream has only those

  target: Network
  tokenizer: Network
  text: Tokenizer

  def row_of(self, prompt: str) -> list[int]:
    """Ids of a prompt up to the first code of its image."""
    raise NotImplementedError

  def codes_of(self, tokens: Array) -> Array:
    """Codes ``[B, rows * columns]`` of whole images ``[B, N]``."""
    return tokens

  def check_parts(self, num_codes: int, num_texts: int, ids: Mapping[str, Any]) -> None:
    """Checks that image tokenizer and vocabulary are the network's.

    Args:
      num_codes: codes that the network draws; ``num_texts`` rows of its table of prompts.
      ids: fields of its config that the vocabulary determines.
    Raises:
      ValueError: naming the folder and the mismatch.
    """
    tokenizer, path = self.tokenizer, self.target.folder
    if not isinstance(tokenizer.fns, TokenizerFns):
      raise ValueError(f"Must have an image tokenizer, {tokenizer.path} holds a {tokenizer.family_name}")
    codes = jax.eval_shape(tokenizer.fns.codebook, tokenizer.params).shape[0]
    if codes < num_codes:
      raise ValueError(f"{path} draws from {num_codes} codes but {tokenizer.path} has only {codes}")
    if self.text.get_vocab_size() > num_texts:
      raise ValueError(f"Corrupt {path}: its tokenizer has more tokens than the network")
    for name, id in ids.items():
      if id != (ours := getattr(self.target.config, name)):
        raise ValueError(f"Corrupt {path}: its tokenizer has {name} {id}, its network {ours}")

  def resolve_sampling(self, trained: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """See `Family.resolve_sampling`.

    Raises:
      ValueError: for ``cfg_interval``: prompts differ in length, and guidance applies to all tokens.
    """
    fields = super().resolve_sampling(trained, given)
    if (interval := fields.get("cfg_interval", -1)) != -1:
      raise ValueError(f"Must have cfg_interval -1 for {self.target.path}, we instead got {interval}")
    return fields

  def encode(self, prompts: str | Sequence[str], captions: Sequence[str] | None = None) -> Encoded:
    """`Prompt` of texts, padded on the left, in the network's training format."""
    prompts = check_texts(prompts, "prompt")
    rows = [self.row_of(prompt) for prompt in prompts]
    return Encoded(pad_left(rows, self.fewest_slots), check_captions(captions, prompts, "prompts"))

  def decode(self, tokens: HostArray, *, lengths=None, condition=None, sampling=None) -> np.ndarray:
    """Images ``[B, H, W, 3]`` uint8 of ``tokens [B, N]``.

    Raises:
      ValueError: if an image does not have all of its tokens.
    """
    del condition, sampling
    config = self.target.config
    check_whole(tokens, lengths, math.prod(config.grid))
    grid, decode_fn = (config.rows, config.columns), self.tokenizer.fns.decode
    return np.asarray(_pixels(self.tokenizer.params, self.codes_of(jnp.asarray(tokens)), grid=grid, decode_fn=decode_fn))

  def check_fit(self, draft: Network, draft_family: str | None) -> None:
    super().check_fit(draft, draft_family)
    folder = draft.path
    if folder is None or draft.family_name != self.target.family_name:  # a head has neither
      return
    if (folder / TOKENIZER_FILE).is_file() and load_tokenizer(folder).get_vocab() != self.text.get_vocab():
      raise ValueError(f"The draft {folder} does not fit the target: its tokenizer has other tokens")
    if (folder / VQ_FOLDER).is_dir():
      self._check_codes(folder / VQ_FOLDER)

  def _check_codes(self, folder: Path) -> None:
    """Raises a ValueError if code n of a draft's image tokenizer is another code of the target's."""
    draft = checkpoints.load(folder)
    theirs, ours = (np.asarray(network.fns.codebook(network.params)) for network in (draft, self.tokenizer))
    if theirs.shape != ours.shape:
      raise ValueError(f"The draft's {folder} does not fit the target: codes {list(theirs.shape)}, not {list(ours.shape)}")
    if (gap := float(np.max(np.abs(theirs - ours)))) > _ROUNDING * float(np.max(np.abs(ours))):
      raise ValueError(f"The draft's {folder} does not fit the target: its codes differ by up to {gap:.2g}")

  def check_length(self, network: Network, condition: Prompt, max_len: int) -> list[str]:
    """A warning about sequences longer than those of training."""
    found = super().check_length(network, condition, max_len)
    prompt_len, longest = condition.longest, getattr(network.config, "max_positions", None)
    if longest is None or prompt_len + max_len <= longest:  # a head that continues features counts positions of images
      return found
    who = "target" if network.name == "target" else f"draft {network.name}"
    size = f"{prompt_len} tokens of text and {max_len} of an image"
    return [*found, f"The {who} was trained on sequences of up to {longest} tokens, this one gets {size}"]


@functools.partial(jax.jit, static_argnames=("grid", "decode_fn"))
def _pixels(params, codes: Array, *, grid: tuple[int, int], decode_fn: Callable) -> Array:
  return truncate_to_uint8(decode_fn(params, codes, grid))
