"""Pairs of a CIAR edge and a cloud: Markov tables with known distributions, and random transformers with an Inter-Head."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from jaxspec.drafters.ciar_drafter import CiarDrafter, GatedParams
from jaxspec.intervals.gate import constant_gate
from jaxspec.intervals.scores import IntervalScore, MaxProb
from jaxspec.models import guidance
from jaxspec.models.heads.inter_head import with_inter_head
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.verifiers.ciar_target import CiarVerifier
from tests.helpers import DRAFT, TARGET, markov_fns, random_params, side

INFINITY = float("inf")


def log(x):
  return jnp.log(jnp.asarray(x, jnp.float32))


def markov_gated(p, q, *, window, max_run=4, tau=-1.0, prefix=0, rule=jaxspec.lossless, widths=None, **options):
  """``(SpecParams, kwargs)`` of Markov tables ``p`` (cloud) and ``q`` (edge); the score is 1 - the largest probability."""
  fns = markov_fns(p.shape[1])
  params = jaxspec.SpecParams(gated_params(side(log(q)), tau), side(log(p)))
  options = dict(score_fn=MaxProb(), gate=constant_gate) | options
  score_fn, gate = options.pop("score_fn"), options.pop("gate")
  drafter = CiarDrafter(fns, score_fn, gate, most_drafts=window, max_run=max_run, **options)
  widths = widths or (window + 1, window + 4)
  verifier = CiarVerifier(fns, rule, warp=jaxspec.Warp(), window=window, widths=widths)
  return params, dict(drafter=drafter, verifier=verifier) | ({"target_prefix": prefix} if prefix else {})


def gated_params(model: jaxspec.ModelParams, tau) -> GatedParams:
  gate = tau if isinstance(tau, tuple) else jnp.asarray(tau, jnp.float32)
  return GatedParams(model, gate)


@functools.cache
def networks(cloud_layers=TARGET.num_layers):
  """A random cloud and a random edge with an Inter-Head of varying radii, and their parameters."""
  cloud = llamagen_fns(dataclasses.replace(TARGET, num_layers=cloud_layers))
  edge = with_inter_head(llamagen_fns(DRAFT), TARGET.vocab_size)
  weights = random_params(edge, 1)
  bias = np.random.default_rng(5).normal(size=(1, TARGET.vocab_size))
  weights["head"] = weights["head"] | dict(radius_bias=jnp.asarray(bias, jnp.float32))
  return cloud, random_params(cloud, 2), edge, weights


def transformer_gated(
  *, window=3, max_run=5, tau=0.15, prefix=0, rule=jaxspec.lossless, guided=False, widths=(4, 8), gate=None,
  cloud_layers=TARGET.num_layers, **options
):  # fmt: skip
  """``(SpecParams, kwargs)`` of the `networks`, with CIAR's own score."""
  cloud, cloud_params, edge, edge_params = networks(cloud_layers)
  scale = 2.0 if guided else None
  params = jaxspec.SpecParams(gated_params(side(edge_params, scale=scale), tau), side(cloud_params, scale=scale))
  if guided:
    cloud, edge = guidance.guided(cloud), guidance.guided(edge)
  gate = gate or constant_gate
  drafter = CiarDrafter(edge, IntervalScore(), gate, most_drafts=window, max_run=max_run, **options)
  verifier = CiarVerifier(cloud, rule, warp=jaxspec.Warp(), window=window, widths=widths)
  return params, dict(drafter=drafter, verifier=verifier) | ({"target_prefix": prefix} if prefix else {})


def keys_of(rows, seed=0):
  return jax.vmap(jax.random.key)(jnp.arange(rows) + seed)
