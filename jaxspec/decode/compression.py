"""Settings of drafting under a bit budget by name (K-SQS, C-SQS), and the parts they stand for."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp

from jaxspec.codecs.bits import CODINGS
from jaxspec.codecs.codec import SparseCodec, conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import Conformal, ConformalParams
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.drafters.compressed import ON_EMPTY, CompressedParams, compressed
from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.types import Drafter, ModelFns

SPARSIFIERS = ("conformal", "topk")
# Where nothing is said: K of K-SQS, and the most tokens that a threshold keeps.
_SUPPORT = {"topk": 32, "conformal": 256}


@dataclasses.dataclass(frozen=True)
class CompressionOptions:
  """What decides how the laws of drafts are sent.

  Attributes:
    sparsifier: ``topk`` keeps ``support`` tokens of a law (K-SQS), ``conformal`` those above a threshold (C-SQS).
    support: K of ``topk``, the most tokens that ``conformal`` keeps; None: 32 and 256, or the whole vocabulary where that
      is smaller or the coding is ``dense``.
    ell: denominator of the integer laws.
    budget: bits that the laws of one round may cost.
    max_drafts: most drafts of a round, whatever the budget.
    beta1: first threshold, ``eta`` its step size (0 keeps it), ``alpha`` the dropped mass it is steered to.
    policy: which updates of the threshold stay after a rejection, ``empty_error`` what an empty support counts as.
    on_empty: what happens where not even one law fits into the budget.
    coding: how a law becomes bits, see `jaxspec.codecs.bits`.
  """

  sparsifier: str = "conformal"
  support: int | None = None
  ell: int = 100
  budget: float = 5000.0
  max_drafts: int = 16
  beta1: float = 0.01
  eta: float = 0.001
  alpha: float = 0.0005
  policy: str = "text"
  empty_error: str = "one"
  on_empty: str = "cloud_token"
  coding: str = "paper"

  def __post_init__(self):
    known = {"sparsifier": SPARSIFIERS, "policy": Conformal.POLICIES, "empty_error": Conformal.EMPTY_ERRORS}
    for name, choices in (known | {"on_empty": ON_EMPTY, "coding": CODINGS}).items():
      if getattr(self, name) not in choices:
        raise ValueError(f"Must have {name} in {', '.join(choices)}, we instead got {getattr(self, name)!r}")
    for name in ("support", "max_drafts"):
      if getattr(self, name) is not None and getattr(self, name) < 1:
        raise ValueError(f"Must have {name} of at least 1, we instead got {getattr(self, name)}")
    if not 1 <= self.ell < 1 << 16:
      raise ValueError(f"Must have ell from 1 to 65535, we instead got {self.ell}")
    if not self.budget >= 0:  # infinity is a budget
      raise ValueError(f"Must have a budget of at least 0 bits, we instead got {self.budget}")
    if not (math.isfinite(self.eta) and self.eta >= 0):
      raise ValueError(f"Must have a finite eta of at least 0, we instead got {self.eta}")
    if not 0 <= self.alpha < 1:
      raise ValueError(f"Must have alpha of at least 0 and below 1, we instead got {self.alpha}")
    # The bound on the dropped mass starts from here (`jaxspec.codecs.conformal`).
    if not (math.isfinite(self.beta1) and self.beta1 >= -self.eta * (1 - self.alpha)):
      raise ValueError(f"Must have a finite beta1 of at least -eta (1 - alpha), we instead got {self.beta1}")

  @classmethod
  def names(cls) -> tuple[str, ...]:
    """The names of the options."""
    return tuple(field.name for field in dataclasses.fields(cls))


def make_codec(options: CompressionOptions, vocab_size: int) -> SparseCodec:
  """The codec of the options for ``vocab_size`` tokens.

  Raises:
    ValueError: for a support that the vocabulary or the coding does not allow.
  """
  support = options.support
  if support is None:
    support = vocab_size if options.coding == "dense" else min(_SUPPORT[options.sparsifier], vocab_size)
  kwargs = dict(ell=options.ell, coding=options.coding)
  if options.sparsifier == "topk":
    return topk_lattice(vocab_size, support, **kwargs)
  return conformal_lattice(vocab_size, support, policy=options.policy, empty_error=options.empty_error, **kwargs)


def make_compressed(
  options: CompressionOptions, fns: ModelFns, side: ModelParams, *, vocab_size: int, warp: Warp
) -> tuple[CompressedParams, Drafter]:
  """Parameters and drafter of the drafting side.

  Args:
    side: weights and sampling of the draft network.
  """
  codec = make_codec(options, vocab_size)
  if options.sparsifier == "topk":
    rule = TopKParams(jnp.int32(codec.max_support))
  else:
    rule = ConformalParams(jnp.float32(options.beta1), jnp.float32(options.eta), jnp.float32(options.alpha))
  drafter = compressed(fns, codec, window=options.max_drafts, warp=warp, on_empty=options.on_empty)
  return CompressedParams(side, rule, jnp.float32(options.budget)), drafter
