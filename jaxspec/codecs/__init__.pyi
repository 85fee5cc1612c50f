# What a type checker sees of `jaxspec/codecs/__init__.py`, which imports these names when they are first used.
from jaxspec.codecs.bit_costs import CODINGS as CODINGS
from jaxspec.codecs.codec import SparseCodec as SparseCodec
from jaxspec.codecs.codec import conformal_lattice as conformal_lattice
from jaxspec.codecs.codec import topk_lattice as topk_lattice
from jaxspec.codecs.conformal import Conformal as Conformal
from jaxspec.codecs.conformal import ConformalParams as ConformalParams
from jaxspec.codecs.sparse_distribution import SparseDistribution as SparseDistribution
from jaxspec.codecs.sparsify import TopK as TopK
from jaxspec.codecs.sparsify import TopKParams as TopKParams
