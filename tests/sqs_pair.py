"""Markov pairs under sparse quantize-and-sample decoding, whose distributions are known exactly."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import jaxspec
from jaxspec.codecs.codec import conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import ConformalParams
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.drafters.sqs_drafter import SqsDrafter, SqsParams
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.verifiers.target import target_logits
from tests.helpers import markov_fns, side


def tables(vocab, seed, concentration=0.7):
  """Transition tables ``(p, q)``, each ``[V + 1, V]``, last row for token 0."""
  generator = np.random.default_rng(seed)
  p = generator.dirichlet(np.full(vocab, concentration), vocab + 1)
  q = 0.6 * p + 0.4 * generator.dirichlet(np.full(vocab, concentration), vocab + 1)
  return p, q


def log(x):
  return jnp.log(jnp.asarray(x, jnp.float32))


def settings(kind, support, *, first=0.2, eta=0.1, alpha=0.1):
  """Traced settings of a sparsifier."""
  if kind == "top":
    return TopKParams(jnp.int32(support))
  return ConformalParams(*(jnp.float32(x) for x in (first, eta, alpha)))


def codec_of(kind, vocab, support, **options):
  return (topk_lattice if kind == "top" else conformal_lattice)(vocab, support, **options)


def verifier_of(fns, *, lazy=False, warp=jaxspec.Warp()):
  extra = dict(feedback_fn=target_logits) if lazy else {}
  return jaxspec.TargetVerifier(fns, lossless_sparse, warp=warp, **extra)


def markov_pair(p, q, codec, sparsifier, *, window, budget, temperature=1.0, on_empty="cloud_token"):
  """``(SpecParams, drafter, verifier)``."""
  fns = markov_fns(p.shape[1])
  drafting = SqsParams(side(log(q), temperature=temperature), sparsifier, jnp.asarray(budget, jnp.float32))
  params = jaxspec.SpecParams(drafting, side(log(p), temperature=temperature))
  drafter = SqsDrafter(fns, codec, window=window, on_empty=on_empty)
  return params, drafter, verifier_of(fns, lazy=codec.coding == "lazy")
