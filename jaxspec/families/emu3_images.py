"""The family of Emu3 networks for text to image, with prompts as the official processor builds them in its mode ``G``.

Source: baaivision/Emu3, ``processing_emu3.py`` and ``image_generation.py``.
"""

from __future__ import annotations

from typing import Any

from jaxspec.core.network import Network
from jaxspec.families.family import FamilyParts
from jaxspec.families.prompted_images import parts_of
from jaxspec.families.vocabulary_images import VocabularyImages
from jaxspec.io.text import emu3_vocabulary


def make_family(target: Network, parts: FamilyParts) -> Emu3Family:
  """The family of a loaded checkpoint ``emu3``; see `jaxspec.families.prompted_images.parts_of`.

  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  return Emu3Family(target, *parts_of(target, parts))


class Emu3Family(VocabularyImages):
  """Images from texts."""

  fit_fields = (
    "vocab_size", "rows", "columns", "num_codes", "first_code", "begin_text", "end_text", "begin_image", "begin_codes",
    "end_row", "end_frame", "end_image", "numerals", "null_text",
  )  # fmt: skip

  def vocabulary_fields(self) -> dict[str, Any]:
    """See `VocabularyImages.vocabulary_fields`."""
    return emu3_vocabulary.read_ids(self.text, self.target.folder)

  def published_sampling(self) -> dict[str, Any]:
    """See `Family.published_sampling`."""
    return {"cfg_scale": 3.0, "top_k": 2048}

  @property
  def fewest_slots(self) -> int:
    """See `Family.fewest_slots`; a prompt shares its slots with the negative one."""
    return len(self.target.config.prompt_ids(self.target.config.null_text))

  def row_of(self, prompt: str) -> list[int]:
    """See `PromptedImages.row_of`."""
    config = self.target.config
    return config.prompt_ids(self.text_ids(prompt + config.suffix))
