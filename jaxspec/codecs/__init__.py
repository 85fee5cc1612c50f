"""Sparse integer distributions for a link: their supports, weights and prices in bits. Pure, traced functions."""

from jaxspec.codecs.bits import CODINGS
from jaxspec.codecs.codec import SparseCodec, conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import Conformal, ConformalParams
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.codecs.sparsify import TopK, TopKParams

__all__ = [
  "CODINGS", "Conformal", "ConformalParams", "SparseCodec", "SparseDistribution", "TopK", "TopKParams", "conformal_lattice",
  "topk_lattice",
]  # fmt: skip
