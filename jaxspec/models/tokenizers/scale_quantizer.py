"""Residual quantisation over scales: an image as maps of codes from coarse to fine (VAR, arXiv 2404.02905, section 3.2).

Codes of scale k are looked up, enlarged to the last scale and smoothed by a convolution that neighbouring scales share. The
sum over scales approaches the latent image::

  rest = latent; sum = 0
  for every scale k:
    indices_k = nearest(area(rest, side_k))                 # the last scale is not resized
    value_k   = phi_k(bicubic(codes(indices_k)))            # phi(h) = h / 2 + conv(h) / 2
    sum += value_k; rest -= value_k

What a network that draws scale k + 1 reads is ``area(sum after scale k, side_{k+1})``. Codes are compared as they are, and
everything is float32 with full precision: products in fewer digits would choose other codes.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn import scales
from jaxspec.models.nn.conv import Conv
from jaxspec.models.nn.linear import Embedding
from jaxspec.models.nn.quantizer import nearest_rows


def scale_inputs(total: Array, side: int) -> Array:
  """What a network reads to draw a scale: the sum ``[B, H, H, C]`` over earlier scales, as ``[B, side^2, C]`` float32."""
  return _area(total, side).reshape(total.shape[0], side**2, total.shape[-1])


def _area(x: Array, side: int) -> Array:
  return x if side == x.shape[1] else scales.resize(x, scales.area_matrix(x.shape[1], side))


class SharedConvs(nn.Module):
  """The convolutions ``phi``; each belongs to some neighbouring scales."""

  num: int
  width: int

  def setup(self):
    self.qresi_ls = [Conv(self.width, exact=True) for _ in range(self.num)]

  def __call__(self, h: Array, index: int) -> Array:
    return 0.5 * h + 0.5 * self.qresi_ls[index](h)


class ScaleQuantizer(nn.Module):
  """Codebook and convolutions under their official names.

  Attributes:
    codebook_size: codes ``V``.
    width: channels ``C`` of a code and of the latent image.
    sides: side of the map of every scale; the last one is that of the latent image.
    num_phis: convolutions that the scales share.
  """

  codebook_size: int
  width: int
  sides: tuple[int, ...]
  num_phis: int

  def setup(self):
    self.embedding = Embedding(self.codebook_size, self.width, std=1.0)
    self.quant_resi = SharedConvs(self.num_phis, self.width)

  def value(self, indices: Array, scale: int) -> Array:
    """What a map ``[B, side^2]`` int32 of a scale adds to the sum: ``[B, H, H, C]`` float32."""
    side, size = self.sides[scale], self.sides[-1]
    codes = self.embedding(indices).astype(jnp.float32).reshape(-1, side, side, self.width)
    codes = codes if side == size else scales.resize(codes, scales.bicubic_matrix(side, size))
    return self.quant_resi(codes, scales.phi_of_scale(len(self.sides), self.num_phis)[scale])

  def encode(self, latent: Array) -> Array:
    """Indices ``[B, L]`` int32 of latent images ``[B, H, H, C]``."""
    rest, maps = latent.astype(jnp.float32), []
    for scale, side in enumerate(self.sides):
      indices = nearest_rows(_area(rest, side), self.embedding.weight).reshape(rest.shape[0], -1)
      rest = rest - self.value(indices, scale)
      maps.append(indices)
    return jnp.concatenate(maps, axis=1)

  def totals(self, indices: Array) -> list[Array]:
    """The sums after every scale, each ``[B, H, H, C]`` float32, of the maps ``[B, L]`` int32 of all scales."""
    total, out, starts = jnp.float32(0.0), [], scales.starts(self.sides)
    for scale in range(len(self.sides)):
      total = total + self.value(indices[:, starts[scale] : starts[scale + 1]], scale)
      out.append(total)
    return out

  def __call__(self, latent: Array) -> Array:
    """The latent images as their codes give them."""
    return self.totals(self.encode(latent))[-1]
