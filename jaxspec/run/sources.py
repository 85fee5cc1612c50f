"""Where networks come from, as options of the commands name them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Sources(NamedTuple):
  """Folders of networks; None is nothing said.

  Attributes:
    model: a bundle or a converted network, by folder or shipped name.
    tokenizer: folder of the image tokenizer; ``text_encoder`` that of the network that reads prompts.
    draft_model: folder of a draft besides those of a bundle.
  """

  model: Path | None = None
  tokenizer: Path | None = None
  text_encoder: Path | None = None
  draft_model: Path | None = None

  @property
  def parts(self) -> dict[str, Path]:
    """What `jaxspec.load_pipeline` takes besides the first argument."""
    found = {"tokenizer": self.tokenizer, "text": self.text_encoder, "draft": self.draft_model}
    return {name: path for name, path in found.items() if path is not None}
