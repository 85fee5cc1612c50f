"""The compiled steps of the draft side of a row; all but `start` donate it."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jaxspec.core.rounds import commit_reply, draft_round, read_round, start_draft
from jaxspec.core.state import DraftSide, Waiting
from jaxspec.core.types import Draft, Drafter, PyTree, Verdict

start = jax.jit(start_draft, static_argnames=("drafter", "max_len", "target_prefix"))
draft = jax.jit(draft_round, static_argnames=("drafter",), donate_argnames=("side",))
read = jax.jit(read_round, static_argnames=("drafter",), donate_argnames=("side",))


@jax.jit
def copied(tree: PyTree) -> PyTree:
  """A copy, which a donation of the tree leaves alone."""
  return jax.tree.map(jnp.copy, tree)


def with_cache(side: DraftSide, cache: PyTree) -> DraftSide:
  """The side with another cache of its drafter; ``()`` for none."""
  return dataclasses.replace(side, drafter=side.drafter._replace(cache=cache))


@functools.partial(jax.jit, static_argnames=("drafter",), donate_argnames=("side",))
def commit(params: PyTree, side: DraftSide, draft: Draft, trace: PyTree, verdict: Verdict, *, drafter: Drafter) -> DraftSide:
  """`commit_reply`, which donates the side alone."""
  return commit_reply(params, Waiting(side, draft, trace), verdict, drafter=drafter)
