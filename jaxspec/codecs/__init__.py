"""What is sent of a law and what it costs: pure, traced functions."""

from jaxspec.codecs.bits import CODINGS
from jaxspec.codecs.codec import SparseCodec, conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import Conformal, ConformalParams
from jaxspec.codecs.sparse_law import SparseLaw
from jaxspec.codecs.sparsify import TopK, TopKParams

__all__ = [
  "CODINGS", "Conformal", "ConformalParams", "SparseCodec", "SparseLaw", "TopK", "TopKParams", "conformal_lattice",
  "topk_lattice",
]  # fmt: skip
