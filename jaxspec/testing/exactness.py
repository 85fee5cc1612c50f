"""Test of a method against the exact distribution of small targets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.token_kinds import DISCRETE
from jaxspec.core.types import AcceptFn, Drafter, PyTree
from jaxspec.drafters.small_model import SmallModelDrafter
from jaxspec.methods.common import target_side
from jaxspec.methods.method import BuildContext, Method, Parts
from jaxspec.rules.audited import TokenAudit
from jaxspec.rules.lossless import lossless
from jaxspec.run.decoder import run_parts
from jaxspec.testing.compare import on_host, require, short
from jaxspec.testing.distributions import assert_same_distribution
from jaxspec.testing.tape import fast_keys
from jaxspec.testing.toys import TOYS, Toy

BuildFn = Callable[[Network, Network, BuildContext], Parts]  # as `Method.build`


def check_exact(
  method: Method | BuildFn | None = None,
  *,
  drafter: Drafter | None = None,
  rule: AcceptFn | None = None,
  tables: PyTree = (),
  targets: Sequence[str] = tuple(TOYS),
  rows: int = 8000,
  seed: int = 0,
) -> float:
  """Checks that a method draws rows of discrete tokens from the target's distribution, whatever it drafts.

  Rows of six tokens with three ids are decoded in one program per target. Chi-square tests compare the first token, the
  first two, and so on up to whole rows with the enumerated distribution. There are two targets: images of 2 x 3 tokens of a
  class (``grid``), and texts after prompts of two lengths (``prompt``). Only the tokens are tested; `check_contract` checks
  the drafts.

  Args:
    method: a method with its options, or a function with the arguments of `Method.build`: ``(target, draft, context) ->
      Parts``. Its draft network is replaced with a toy's. Windows may be longer than the rows.
    drafter: instead of a method: a drafter of 3 ids (``[B, K, 3]`` logits) without parameters and feedback; by default a
      small network that drafts chains of two.
    rule: instead of a method: the acceptance rule, by default `lossless`, and ``tables`` its arrays.
    targets: names of the targets; ``("grid",)`` for methods that need a grid.
    rows: rows of a decode. A few thousand detect a total variation of some per cent.
    seed: of the random numbers; a test with a fixed seed is deterministic.
  Returns:
    The smallest p-value of all tests. An exact method fails for one seed in five hundred.
  Raises:
    AssertionError: one line with the measured total variation, and with the rule's own bias if it can be audited.
    ValueError: for a method of other tokens, one that needs more than the target has, a method beside a drafter or a rule,
      and arguments of other types or out of range.

  Example:
    >>> from jaxspec import methods, testing
    >>> testing.check_exact(methods.Speculative(gamma=2)) > 1e-4
    True
  """
  _check_arguments(method, drafter, rule, tables, targets, rows)
  build: BuildFn
  if method is None:
    build = functools.partial(_build, drafter=drafter, rule=lossless if rule is None else rule, tables=tables)
  elif not isinstance(method, Method):
    build = method
  else:
    if not method.fits(DISCRETE):
      raise ValueError(f"Must have a method that draws discrete tokens, we instead got {method.name} for {method.tokens}")
    build = method.build
  draft_family = method.draft_family if isinstance(method, Method) else None
  return min(_check_target(build, TOYS[name](), draft_family, rows, seed) for name in targets)


def _check_arguments(
  method: Method | BuildFn | None,
  drafter: Drafter | None,
  rule: AcceptFn | None,
  tables: PyTree,
  targets: Sequence[str],
  rows: int,
) -> None:
  if isinstance(method, type):
    raise ValueError(f"Must have a method with its options, {method.__name__}(...), we instead got the class")
  for name, is_given in {
    "drafter": drafter is not None,
    "rule": rule is not None,
    "tables": jax.tree.leaves(tables),
  }.items():
    if method is not None and is_given:
      raise ValueError(f"Must have a method, or a drafter, a rule and its tables, we instead got a method and {name}")
  if not isinstance(drafter, Drafter | None):
    raise ValueError(f"Must have a Drafter as drafter, we instead got an object of type {type(drafter).__name__}")
  if isinstance(targets, str) or not targets or not set(targets) <= set(TOYS):
    raise ValueError(f"Must have targets, one or more of {', '.join(TOYS)}, we instead got {targets!r}")
  if rows < 1:
    raise ValueError(f"Must have rows from 1, we instead got {rows}")


def _build(
  target: Network, draft: Network, context: BuildContext, *, drafter: Drafter | None, rule: AcceptFn, tables: PyTree
) -> Parts:
  drafting = ()
  if drafter is None:
    fns, drafting = context.sampling.side(draft)
    drafter = SmallModelDrafter(fns, window=2, warp=context.warp())
  side, verifier = target_side(target, rule, context, tables=tables)
  return Parts(SpecParams(drafting, side), drafter, verifier)


def _check_target(build: BuildFn, toy: Toy, draft_family: str | None, rows: int, seed: int) -> float:
  condition, length, vocab = toy.condition(rows), toy.joint.ndim - 1, toy.joint.shape[-1]
  draft = toy.heads.get(draft_family or "", toy.draft)

  def decode(context: BuildContext) -> DecodeResult:
    parts = build(toy.target, draft, context)
    return on_host(run_parts(parts, parts.params, fast_keys(seed, rows), condition, max_len=length))

  out = decode(toy.context)
  outside = (out.tokens < 0) | (out.tokens >= vocab)
  require(not outside.any(), "exact", f"ids from 0 to {vocab - 1}", short(out.tokens[outside]))
  turn = np.arange(rows) % toy.conditions.batch_size
  p_values = []
  for end in range(1, length + 1):
    samples = np.concatenate([turn[:, None], out.tokens[:, :end]], axis=1)
    probs = toy.joint.sum(axis=tuple(range(end + 1, length + 1)))
    try:
      p_values.append(assert_same_distribution(samples, probs, min_p=0.001 / length))
    except AssertionError as error:
      wanted = f"the target's distribution of the first {end} tokens of a row (target {toy.name!r})"
      got = f"{_distance(samples, probs)}{_own_bias(decode, toy.context)}"
      raise AssertionError(f"exact: Must have {wanted}, we instead got {got}") from error
  return min(p_values)


def _distance(samples: np.ndarray, probs: np.ndarray) -> str:
  """The total variation between samples and a distribution, with the mean of exact samples."""
  counts = np.zeros(probs.shape)
  np.add.at(counts, tuple(samples.T), 1.0 / len(samples))
  measured = 0.5 * np.abs(counts - probs).sum()
  alone = 0.5 * np.sqrt(2 * probs * (1 - probs) / (np.pi * len(samples))).sum()
  return f"a total variation of {measured:.3f} ({alone:.3f} is of the {len(samples)} samples alone)"


def _own_bias(decode: Callable[[BuildContext], DecodeResult], context: BuildContext) -> str:
  """The exact bias of the rule, to separate faults of the rule from those of the drafter."""
  try:
    audit = decode(dataclasses.replace(context, audit=True)).metrics
  except ValueError:  # not every rule can be audited
    return ""
  if not isinstance(audit, TokenAudit):
    return ""
  bias = float(audit.tv.mean())
  if bias < 1e-4:
    return "; the rule is exact: are the drafts drawn from their proposals, and is the state rolled back?"
  return f"; the rule alone changes the distribution of a token by {bias:.3f}"
