"""Images whose rows of codes end with a token of their own, as in Lumina-mGPT (arXiv 2408.02657) and Emu3 (2409.18869).

An image of ``R`` rows and ``C`` columns is ``R`` times C codes and a row end, then one or more tokens that end the image.
Where all ends stand is known before anything is drawn: nothing else is legal there, and nothing but codes elsewhere. Ids are
local: the codes, then the row end, then the ends of the image in their order.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core.types import Array


@dataclasses.dataclass(frozen=True)
class ImageRows:
  """Which ids are legal at each index of an image; a `jaxspec.core.token_space.LegalFn`.

  Attributes:
    num_codes: codes, the ids from 0.
    rows: rows of codes ``R``.
    columns: codes of a row ``C``.
    num_ends: tokens that end an image.
  """

  num_codes: int
  rows: int
  columns: int
  num_ends: int = 1

  @property
  def row_end(self) -> int:
    """The id that ends a row."""
    return self.num_codes

  @property
  def image_end(self) -> int:
    """The first id that ends an image; the others follow."""
    return self.num_codes + 1

  @property
  def vocab_size(self) -> int:
    """Codes and all ends."""
    return self.num_codes + 1 + self.num_ends

  @property
  def num_tokens(self) -> int:
    """Tokens of an image, row ends included and the ends of the image left out: nothing depends on them."""
    return self.rows * (self.columns + 1)

  def __call__(self, index: Array) -> Array:
    """``[..., V]`` bool, the ids that the token at ``index [...]`` may be."""
    place = index[..., None]
    ids = jnp.arange(self.vocab_size).reshape((1,) * index.ndim + (-1,))
    after = place - self.num_tokens
    ends_row = (place + 1) % (self.columns + 1) == 0
    ends_image = (after >= 0) & (after < self.num_ends)
    forced = jnp.where(ends_image, self.image_end + after, self.row_end)
    return jnp.where(ends_row | ends_image, ids == forced, ids < self.num_codes)

  def codes(self, tokens: Array) -> Array:
    """The codes ``[B, R C]`` of whole images ``[B, R (C + 1)]`` in raster order."""
    return tokens.reshape(-1, self.rows, self.columns + 1)[:, :, : self.columns].reshape(-1, self.rows * self.columns)
