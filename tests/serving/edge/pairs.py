"""Pairs of networks for the two ends, the same in every process that builds them: random transformers, and Markov tables.

A case is named by its networks, its method and its variant: ``transformer:`` or ``markov:``, then ``sqs-CODING`` for every
coding, ``ciar-exact``, ``ciar-greedy``, ``ciar-features``, or ``plain`` (the last two with transformers only).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from jaxspec.codecs import topk_lattice
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.core.loop import NO_DRAFTER
from jaxspec.core.state import Origin
from jaxspec.core.types import Drafter, Verifier
from jaxspec.drafters.ciar_draws import SparseDraw
from jaxspec.drafters.sqs_drafter import SqsDrafter, SqsParams
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads.interval_features import IntervalFeaturesConfig, interval_features_fns
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.rules.block_rule import block_sparse
from jaxspec.rules.greedy import greedy
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.wire.ciar_codec import CiarCodec
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, REPLY_BYTES
from jaxspec.serving.wire.round_codec import RoundCodec
from jaxspec.serving.wire.sqs_codec import PlainCodec, SqsCodec
from jaxspec.serving.wire.traffic import Traffic
from tests.ciar_pair import markov_gated, transformer_gated
from tests.helpers import DRAFT, TARGET, random_params, side
from tests.sqs_pair import codec_of, markov_pair, settings, tables, verifier_of

CLASSES, MAX_LEN = TARGET.num_classes, 16


class Case(NamedTuple):
  """What both ends are made of."""

  params: jaxspec.SpecParams
  drafter: Drafter
  verifier: Verifier
  codec: RoundCodec

  def edge(self, **options) -> Edge:
    """The draft side over a cloud."""
    return Edge(self.params.draft, self.drafter, self.codec, **(dict(max_len=MAX_LEN) | options))

  def parts(self):
    """Keyword arguments of `jaxspec.speculate`."""
    return dict(drafter=self.drafter, verifier=self.verifier)


def rows_of(number: int, first: int = 0) -> tuple[jax.Array, ClassLabels]:
  """Row keys and conditions of ``number`` rows from row ``first``; row r has seed r."""
  rows = np.arange(first, first + number, dtype=np.int32)
  return jax.vmap(jax.random.key)(rows), ClassLabels(jax.device_put(rows % CLASSES))


@functools.cache
def case_named(name: str) -> Case:
  """The case of a whole name."""
  networks, _, case = name.partition(":")
  return {"transformer": transformer_case, "markov": markov_case}[networks](case)


def transformer_case(name: str) -> Case:
  """Random transformers with caches, V = 13."""
  method, _, variant = name.partition("-")
  if method == "sqs":
    return _sqs(variant)
  if method == "plain":
    target, weights = target_network()
    params = jaxspec.SpecParams((), side(weights))
    verifier = jaxspec.TargetVerifier(target, jaxspec.lossless, warp=jaxspec.Warp())
    return Case(params, NO_DRAFTER, verifier, PlainCodec(TARGET.vocab_size))
  return _ciar(variant)


@functools.cache
def target_network():
  """The target of all transformer cases, with its weights."""
  target = llamagen_fns(TARGET)
  return target, random_params(target, 2)


@functools.cache
def draft_network():
  """The draft of compressed drafts, with its weights."""
  draft = llamagen_fns(DRAFT)
  return draft, random_params(draft, 1)


def _sqs(coding: str) -> Case:
  (target, target_weights), (draft, weights), vocab = target_network(), draft_network(), TARGET.vocab_size
  kind = "conformal" if coding == "half" else "top"
  codec = codec_of(kind, vocab, vocab if coding in ("dense", "half") else 6, ell=30, coding=coding)
  drafting = SqsParams(side(weights), settings(kind, 6), jnp.float32(140.0 if coding == "half" else 70.0))
  params = jaxspec.SpecParams(drafting, side(target_weights))
  drafter, verifier = SqsDrafter(draft, codec, window=4), verifier_of(target, lazy=coding == "lazy")
  return Case(params, drafter, verifier, SqsCodec(codec, 4))


CIAR_CODEC = topk_lattice(TARGET.vocab_size, 5, ell=20)


def _ciar(variant: str) -> Case:
  options = dict(window=3, tau=0.25, rule=greedy, widths=(8,))
  codec, width, draw, features = None, 0, (), ()
  if variant == "exact":
    codec, draw = CIAR_CODEC, TopKParams(jnp.int32(5))
    options |= dict(rule=lossless_sparse, draw=SparseDraw(codec))
  if variant == "features":
    phi = interval_features_fns(IntervalFeaturesConfig(TARGET.dim, DRAFT.dim, TARGET.vocab_size, hidden=8))
    width, features = phi.width, random_params(phi, 7)
    options |= dict(features=phi, inject="both")
  params, parts = transformer_gated(**options)
  params = params._replace(draft=params.draft._replace(draw=draw, features=features))
  return Case(params, **parts, codec=CiarCodec(TARGET.vocab_size, 3, codec, width))


def markov_case(name: str, *, window: int = 3, vocab: int = 5, seed: int = 3) -> Case:
  """Markov tables, whose programs compile quickly: ``sqs-CODING``, ``sqs-block``, and ``ciar-exact`` or ``ciar-greedy``.

  With ``, no bonus`` after a name of ``sqs``, the target draws no token after full acceptance.
  """
  method, _, variant = name.partition("-")
  p, q = tables(vocab, seed)
  if method == "sqs":
    variant, _, ending = variant.partition(", ")
    is_block, bonus = variant == "block", ending != "no bonus"
    coding = "trimmed" if is_block else variant
    codec = codec_of("top", vocab, vocab if coding == "dense" else 3, ell=7, coding=coding)
    params, drafter, verifier = markov_pair(p, q, codec, settings("top", 3), window=window, budget=40.0)
    if is_block:
      verifier = dataclasses.replace(verifier, accept_fn=block_sparse)
    verifier = dataclasses.replace(verifier, bonus=bonus)
    return Case(params, drafter, verifier, SqsCodec(codec, window, is_block, bonus))
  codec = topk_lattice(vocab, 3, ell=7) if variant == "exact" else None
  options = dict(rule=lossless_sparse, draw=SparseDraw(codec)) if codec else dict(rule=greedy)
  params, parts = markov_gated(p, q, window=window, tau=0.45, **options)
  if codec:
    params = params._replace(draft=params.draft._replace(draw=TopKParams(jnp.int32(3))))
  return Case(params, **parts, codec=CiarCodec(vocab, window, codec))


def assert_gated_traffic(out: jaxspec.DecodeResult, traffic: Traffic) -> None:
  """Bytes and exchanges of a gated edge are those of the rows' own calls."""
  first = np.asarray(out.origin)[:, 0] == Origin.FIRST
  # Every token of a prefix but the first is an exchange of its own.
  np.testing.assert_array_equal(traffic.exchanges, np.asarray(out.counters.target_calls) - first)
  np.testing.assert_array_equal(traffic.downlink_bytes, REPLY_BYTES * (traffic.exchanges + first))
  framed = traffic.uplink_bytes - OVERHEAD_BYTES * traffic.exchanges
  assert (framed * 8 >= traffic.coded_bits).all() and (framed * 8 <= traffic.coded_bits + 7 * traffic.exchanges).all()
  assert np.asarray(out.counters.local).any() and traffic.exchanges.any()


def assert_same(out: jaxspec.DecodeResult, other: jaxspec.DecodeResult) -> None:
  """Everything discrete is equal; sums of floats may be rounded differently by another program."""
  discrete = lambda result: jax.tree.map(np.asarray, result._replace(report=()))
  jax.tree.map(np.testing.assert_array_equal, discrete(out), discrete(other))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), out.report, other.report)
