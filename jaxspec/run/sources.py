"""Sources of networks, from options of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Sources(NamedTuple):
  """Folders of networks; None for missing ones.

  Attributes:
    model: a bundle or a converted network, by folder or shipped name.
    tokenizer: folder of the image tokenizer; ``text_encoder`` of the text encoder.
    draft_model: folder of an additional draft.
  """

  model: Path | None = None
  tokenizer: Path | None = None
  text_encoder: Path | None = None
  draft_model: Path | None = None

  @property
  def parts(self) -> dict[str, Path]:
    """Other arguments of `jaxspec.load_pipeline`."""
    found = {"tokenizer": self.tokenizer, "text": self.text_encoder, "draft": self.draft_model}
    return {name: path for name, path in found.items() if path is not None}
