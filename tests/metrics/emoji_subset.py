"""Parts of the packed emoji set, where a test needs few drawings."""

from __future__ import annotations

import numpy as np

from jaxspec.data import EmojiSet


def subset(emoji: EmojiSet, concepts: np.ndarray) -> EmojiSet:
  """All drawings of some concepts, which are numbered anew in the given, rising order."""
  keep = np.flatnonzero(np.isin(emoji.concept, concepts))
  concept = np.searchsorted(concepts, emoji.concept[keep]).astype(np.int32)
  return EmojiSet(emoji.rgba[keep], emoji.style[keep], concept, emoji.split[keep], tuple(emoji.emoji[i] for i in concepts))
