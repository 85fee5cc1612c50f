"""Images whose rows of codes end with a token of their own, as in Lumina-mGPT (arXiv 2408.02657).

An image of ``R`` rows and ``C`` columns is ``R`` times C codes and a row end, then an image end. Where both ends stand is
known before anything is drawn: nothing else is legal there, and nothing but codes elsewhere. Ids are local: the codes, then
the row end, then the image end.
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
  """

  num_codes: int
  rows: int
  columns: int

  @property
  def row_end(self) -> int:
    """The id that ends a row."""
    return self.num_codes

  @property
  def image_end(self) -> int:
    """The id that ends an image."""
    return self.num_codes + 1

  @property
  def num_tokens(self) -> int:
    """Tokens of an image, row ends included and the image end left out: nothing depends on it."""
    return self.rows * (self.columns + 1)

  def __call__(self, index: Array) -> Array:
    """``[..., V]`` bool, the ids that the token at ``index [...]`` may be."""
    place = index[..., None] + 1
    ids = jnp.arange(self.num_codes + 2).reshape((1,) * index.ndim + (-1,))
    ends_row = place % (self.columns + 1) == 0
    ends_image = place % (self.num_tokens + 1) == 0
    forced = jnp.where(ends_image, self.image_end, self.row_end)
    return jnp.where(ends_row | ends_image, ids == forced, ids < self.num_codes)

  def codes(self, tokens: Array) -> Array:
    """The codes ``[B, R C]`` of whole images ``[B, R (C + 1)]`` in raster order."""
    return tokens.reshape(-1, self.rows, self.columns + 1)[:, :, : self.columns].reshape(-1, self.rows * self.columns)
