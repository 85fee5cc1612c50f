"""Emu3: one Llama over tokens of text and of images (arXiv 2409.18869; baaivision/Emu3, ``modeling_emu3.py``).

1. token embeddings, one table for text, image codes and what divides them;
2. the blocks of `jaxspec.models.language.llama`: grouped-query attention with rotary positions, SwiGLU;
3. final RMSNorm, output matrix, float32 logits.

A prompt is ``<begin of text> text <begin of image> ROWS*COLUMNS <begin of codes>``. Every row of codes ends with a token of
its own; the ends of the frame, of the image and of the text follow the last row. Guidance compares a prompt with a negative
one (``null_text``) for an image of the same size.

`emu3_fns` reads and returns ids of the vocabulary; `TRUNK` draws images (`jaxspec.models.language.image_language`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import ModelFns
from jaxspec.models.conditions import Prompt
from jaxspec.models.language.image_language import ImageLanguage, ImageLanguageConfig, image_language_trunk
from jaxspec.models.language.language import language_fns
from jaxspec.models.language.llama import Block
from jaxspec.models.trunk import declare


@dataclasses.dataclass(frozen=True)
class Emu3Config(ImageLanguageConfig):
  """Architecture of one network, and how images stand in its vocabulary. The defaults are BAAI/Emu3-Gen.

  Attributes:
    num_kv_heads: number of key/value heads; None is one for every query head.
    max_positions: longest sequence the network is meant for.
    rows: rows of codes of an image, and ``columns`` codes of a row.
    num_codes: image codes; ``first_code`` is the id of code 0, and the others follow.
    begin_text: id that begins every sequence.
    end_text: id behind an image.
    begin_image: id before the size of an image; ``begin_codes`` is the one behind the size.
    end_image: id after ``end_frame``, which follows the last row; ``end_row`` ends every row.
    numerals: ids of 0 to 9 and of the sign between the sides of an image, ``*``.
    null_text: ids of the text of the negative prompt.
    suffix: text behind every prompt.
    tensor_parallel: whether heads and hidden units are divided over a mesh (`jaxspec.core.mesh`).
  """

  vocab_size: int = 184622
  dim: int = 4096
  num_layers: int = 32
  num_heads: int = 32
  num_kv_heads: int | None = 8
  ffn_hidden: int = 14336
  norm_eps: float = 1e-5
  rope_theta: float = 1000000.0
  max_positions: int = 9216
  rows: int = 90
  columns: int = 90
  num_codes: int = 32768
  first_code: int = 151854
  begin_text: int = 151849
  end_text: int = 151850
  begin_image: int = 151852
  begin_codes: int = 151851
  end_row: int = 151846
  end_frame: int = 151847
  end_image: int = 151853
  numerals: tuple[int, ...] = (*range(15, 25), 9)
  null_text: tuple[int, ...] = ()
  suffix: str = ""
  dtype: str = "float32"
  tensor_parallel: bool = False

  # Of the blocks.
  attention_bias: ClassVar[bool] = False
  mlp_bias: ClassVar[bool] = False

  def __post_init__(self):
    self.check_images()
    if len(self.numerals) != 11:
      raise ValueError(f"Must have 11 ids as numerals, we instead got {len(self.numerals)}")

  @property
  def end_ids(self) -> tuple[int, ...]:
    """See `ImageLanguageConfig.end_ids`."""
    return self.end_row, self.end_frame, self.end_image, self.end_text

  def prompt_ids(self, text: Iterable[int]) -> list[int]:
    """Ids of a prompt up to the first code of its image, from those of its text."""
    sides = f"{self.rows}*{self.columns}"
    size = [self.numerals["0123456789*".index(character)] for character in sides]
    return [self.begin_text, *text, self.begin_image, *size, self.begin_codes]


class Emu3(ImageLanguage):
  """The transformer; see the module docstring. Call it through `emu3_fns` or `TRUNK`."""

  config: Emu3Config
  block_type: ClassVar = Block


@functools.cache
def emu3_fns(config: Emu3Config) -> ModelFns:
  """Pure functions over the whole vocabulary; the same object for equal configs, so that jit caches hit."""
  return language_fns(Emu3(config))


def null_prompt(config: Emu3Config, prompt: Prompt) -> Prompt:
  """The unconditional partner of prompts ``[B, P]``: the negative prompt, padded on the left.

  Raises:
    ValueError: for prompts with fewer slots than it has tokens.
  """
  ids = np.asarray(config.prompt_ids(config.null_text), np.int32)
  batch, slots = prompt.tokens.shape
  if slots < len(ids):
    raise ValueError(f"Must have prompts of at least {len(ids)} slots for the negative prompt, we instead got {slots}")
  padded = np.pad(ids, (slots - len(ids), 0))
  mask = np.arange(slots) >= slots - len(ids)
  return Prompt(*(jnp.broadcast_to(jnp.asarray(row)[None], (batch, slots)) for row in (padded, mask)))


TRUNK = image_language_trunk(Emu3, null_prompt)
declare("emu3", Emu3Config, TRUNK)
