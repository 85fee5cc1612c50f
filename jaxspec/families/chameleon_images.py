"""Families of Chameleon networks for text to image: Anole, and Lumina-mGPT with its rows and sizes."""

from __future__ import annotations

from typing import Any

from jaxspec.core.network import Network
from jaxspec.families.family import FamilyParts
from jaxspec.families.prompted_images import parts_of
from jaxspec.families.vocabulary_images import VocabularyImages
from jaxspec.io.text import image_vocabulary

# Lumina-mGPT's unit of image sizes, in codes.
_CELL = 2

# The settings of the released code: Anole's decoder, and Lumina-mGPT's defaults for images.
_PUBLISHED_SAMPLING = {
  "anole": {"cfg_scale": 3.0, "temperature": 0.7, "top_p": 0.9},
  "lumina": {"cfg_scale": 3.0, "top_k": 2000},
}


def make_family(target: Network, parts: FamilyParts) -> ChameleonFamily:
  """The family of a loaded checkpoint ``chameleon``; see `jaxspec.families.prompted_images.parts_of`.

  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  return ChameleonFamily(target, *parts_of(target, parts))


class ChameleonFamily(VocabularyImages):
  """Images from texts."""

  fit_fields = (
    "vocab_size", "layout", "rows", "columns", "num_codes", "first_code", "begin_text", "end_image", "begin_image",
    "end_prompt", "end_row", "first_size",
  )  # fmt: skip

  def vocabulary_fields(self) -> dict[str, Any]:
    """See `VocabularyImages.vocabulary_fields`."""
    return image_vocabulary.read_ids(self.text, self.target.folder)

  def published_sampling(self) -> dict[str, Any]:
    """See `Family.published_sampling`."""
    return dict(_PUBLISHED_SAMPLING[self.target.config.layout])

  def row_of(self, prompt: str) -> list[int]:
    """See `PromptedImages.row_of`."""
    config, pixels = self.target.config, self.tokenizer.config.factor
    if not config.has_row_ends:
      return [config.begin_text, *self.text_ids(prompt), config.end_prompt, config.begin_image]
    size = f"{config.columns * pixels}x{config.rows * pixels}"
    text = f"Generate an image of {size} according to the following prompt:\n{prompt}"
    sides = [config.first_size + side // _CELL for side in (config.rows, config.columns)]  # the height comes first
    return [config.begin_text, *self.text_ids(text), config.end_prompt, config.begin_image, *sides]
