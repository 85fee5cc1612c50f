"""Time of a round by part, each part timed separately in a compiled loop.

1. A decode runs to its middle. From there one program repeatedly drafts at that position, with other keys and another newest
   token, and another program drafts and judges. The first gives the time of the draft side, the difference that of the
   target side.
2. A pass of each network alone is repeated in one program. Its time, multiplied by the passes of a round, is the network's
   share of its side; the rest is sampling, acceptance, scores and bookkeeping.
3. The sides are compared with a round of the whole decode: the rest is the commit and the overhead of the loop. If rounds
   differ along an image (CIAR, with its uncertain regions), this rest varies too.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from experiments.engine.classes import every_class
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.race import CAPTIONS
from experiments.engine.rows import Row, row
from jaxspec.core import commits, rounds
from jaxspec.core.network import Network
from jaxspec.core.state import DecodeState
from jaxspec.core.types import ModelFns, PyTree
from jaxspec.io.shipped import named
from jaxspec.models.conditions import Pairs
from jaxspec.models.heads.feature_head import attach, borrowed
from jaxspec.run import measure
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import head_fns

_PASSES = 32  # of a network in one timed program
_FEW, _MANY = 8, 40  # rounds of two runs; their difference excludes the time before the loop
EAGLE = "eagle"


class Of(NamedTuple):
  """A method and its bundle."""

  bundle: str
  row: Row


METHODS = (
  Of("scenes", row("speculative", "speculative", draft="draft-1")),
  Of("scenes", row("sjd", "sjd")),
  Of("scenes", row("eagle-chain", "eagle-chain")),
  Of("scenes", row("ciar", "ciar", draft="inter-2", gamma=1, cloud_rate=0.3)),
  Of("runs/classes64-causal", row("cspd", "cspd")),  # not shipped; docs/mar.md, section 5, trains it
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundParts(Experiment):
  """Milliseconds of every part, one image at a time, another one in every turn.

  Methods without their networks are left out, with a note below the table.

  Attributes:
    max_len: tokens of an image; 0 takes all.
  """

  methods: tuple[Of, ...] = METHODS
  turns: int = 6
  max_len: int = 0
  kind: ClassVar[str] = "round parts"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    rows, left_out = [], []
    for bundle, entry in self.methods:
      if not named(bundle).is_dir():
        left_out.append(f"Left out {entry.name}: there is no {bundle}.")
        logging.warning(left_out[-1])
        continue
      logging.info("%s on %s", entry.name, bundle)
      pipeline = lab.pipeline(bundle)
      decoder = pipeline.decoder(entry.value(pipeline), **dict(entry.sampling))
      classes = getattr(pipeline.target.config, "num_classes", None)
      prompts = every_class(classes, self.turns + 1) if decoder.draws_continuous else CAPTIONS
      condition = pipeline.encode(list(prompts)).condition
      with pipeline.context():
        found = parts_of(decoder, condition, self.max_len or pipeline.family.space.num_tokens, self.turns)
      rows.append({"label": entry.name, "bundle": bundle, "options": decoder.method.options(), **found})
    return {"turns": self.turns, "rows": rows, "left_out": left_out}


def parts_of(decoder: Decoder, conditions: PyTree, length: int, turns: int) -> dict[str, Any]:
  """``parts`` (name: `measure.Timing` in milliseconds of a round), and the passes of both networks in a round."""
  pinned, taken = Pinned(decoder, length), {}
  alone = {name: pass_of(*found) for name, found in networks(decoder, conditions, length).items()}
  for turn in range(turns + 1):
    condition = jax.tree.map(lambda leaf: leaf[turn % conditions.batch_size][None], conditions)  # noqa: B023, called at once
    found = pinned(condition, jax.random.key(turn))
    for name, call in alone.items():
      found[f"{name} network"] = found[f"{name} passes"] * measure.seconds_of(call) / _PASSES
    if turn:  # the first one compiles
      for name, value in found.items():
        taken.setdefault(name, []).append(value)
  counts = {name: measure.Timing.of(taken.pop(name)).median for name in ("draft passes", "target passes")}
  parts = {name: measure.Timing.of([1e3 * value for value in values])._asdict() for name, values in taken.items()}
  return {"parts": parts, "counts": counts}


class Pinned:
  """Rounds in the middle of a decode.

  Args:
    decoder: of a method with rounds.
    length: tokens of a row.
  """

  def __init__(self, decoder: Decoder, length: int):
    self._decoder, self._length, self._parts = decoder, length, decoder.parts
    both = dict(drafter=self._parts.drafter, verifier=self._parts.verifier)
    prefix = rounds.prefix_rounds(self._parts.target_prefix, length)

    @jax.jit
    def to_middle(params, key, condition) -> DecodeState:
      state = rounds.start(params, key, condition, max_len=length, target_prefix=self._parts.target_prefix, **both)
      state = jax.lax.fori_loop(0, prefix, lambda _, state: rounds.prefix_round(params, state, **both), state)
      is_before = lambda state: jnp.any(state.draft_side.cursor.length < length // 2)
      return jax.lax.while_loop(is_before, functools.partial(rounds.decode_round, params, **both), state)

    @functools.partial(jax.jit, static_argnames="judges")
    def some_rounds(params, state, number, *, judges: bool):
      """The passes ``[2]`` of the draft network and of the target in ``number`` rounds, and the last newest token."""

      def body(index, carry):
        side, verifier, last, passes = carry
        cursor = side.cursor._replace(last=last, round=state.draft_side.cursor.round + index)
        waiting = rounds.draft_round(params.draft, side.replace(cursor=cursor), drafter=self._parts.drafter)
        draft = waiting.draft
        last = draft.tokens[:, 0]
        if judges:
          verdict, verifier = rounds.judge_round(params.target, waiting.side, verifier, draft, **both)
          last = commits.newest_token(cursor, draft, verdict)
        calls = jnp.max(draft.num_calls)
        passes = passes + jnp.stack([jnp.int32(calls), rounds.needs_exchange(cursor, draft).astype(jnp.int32)])
        return waiting.side.replace(cursor=cursor), verifier, last, passes

      carry = state.draft_side, state.verifier, state.draft_side.cursor.last, jnp.zeros((2,), jnp.int32)
      return jax.lax.fori_loop(0, number, body, carry)[2:]

    self._to_middle, self._rounds = to_middle, some_rounds

  def __call__(self, condition: PyTree, key: jax.Array) -> dict[str, float]:
    """Seconds of a round by part, and the passes of both networks in a round."""
    params, length = self._parts.params, self._length
    state = jax.block_until_ready(self._to_middle(params, key, condition))
    seconds, passes = {}, {}
    for judges in (False, True):
      run = lambda number: self._rounds(params, state, jnp.int32(number), judges=judges)  # noqa: B023, called at once
      few, many = (measure.timed(functools.partial(run, number)) for number in (_FEW, _MANY))
      seconds[judges], passes[judges] = (many[1] - few[1]) / (_MANY - _FEW), (many[0][1] - few[0][1]) / (_MANY - _FEW)
    kwargs = dict(drafter=self._parts.drafter, verifier=self._parts.verifier, max_len=length)
    outcome, whole = measure.timed(lambda: self._decoder(condition, key=key, max_len=length))
    begin = measure.seconds_of(lambda: measure.prefill(params, key, condition, **kwargs))
    found = {"draft": seconds[False], "target": seconds[True] - seconds[False]}
    found["round"] = (whole - begin) / float(outcome.counters.rounds.max())
    found["rest"] = found["round"] - seconds[True]
    return found | {"draft passes": float(passes[False][0]), "target passes": float(passes[True][1])}


def networks(decoder: Decoder, conditions: PyTree, length: int) -> dict[str, tuple[ModelFns, PyTree, PyTree, PyTree, int]]:
  """Functions, parameters, condition, inputs and length of a pass of each network: the target's over a window."""
  condition = jax.tree.map(lambda leaf: leaf[:1], conditions)
  block, network = decoder.method.drafts_per_round() + 1, decoder.target
  found = {"target": (*functions(decoder, network), condition, inputs(decoder, block), length)}
  if (draft := decoder.drafting) is not None and decoder.method.draft_family == EAGLE:
    tables = borrowed(network.config, network.params)
    fns, params = functions(decoder, dataclasses.replace(draft, params=attach(draft.params, tables)))
    halves = 2 if decoder.sampling.is_guided and draft.is_guided else 1
    pairs = Pairs(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1, halves * network.config.dim)))
    found["draft"] = (fns, params, condition, pairs, length)
  elif draft is not None:
    found["draft"] = (*functions(decoder, draft), condition, inputs(decoder, 1), length)
  return found


def functions(decoder: Decoder, network: Network) -> tuple[ModelFns, PyTree]:
  """A network as its side of the decode calls it.

  Raises:
    ValueError: for guided continuous tokens.
  """
  if not decoder.draws_continuous:
    fns, side = decoder.sampling.side(network)
    return fns, side.model
  if decoder.sampling.is_guided:
    raise ValueError("Must have continuous tokens without guidance to time their network alone, we instead got guided ones")
  return head_fns(network).network, network.params


def inputs(decoder: Decoder, block: int) -> jax.Array:
  """Tokens ``[1, block]``, or continuous ones."""
  if not decoder.draws_continuous:
    return jnp.zeros((1, block), jnp.int32)
  return jnp.zeros((1, block, head_fns(decoder.target).token_dim))


def pass_of(fns: ModelFns, params: PyTree, condition: PyTree, tokens: PyTree, length: int) -> Callable[[], jax.Array]:
  """A call of one program of many passes in the middle of a row. The inputs of a pass depend on the one before it."""
  block = jax.tree.leaves(tokens)[0].shape[1]
  prefix = fns.prefix_len(condition)
  positions = (prefix + length // 2 + jnp.arange(block))[None]

  @jax.jit
  def run(params, tokens):
    def body(_, carry):
      cache, tokens = carry
      output, cache = fns.apply(params, tokens, cache, positions=positions)
      floats = [leaf for leaf in jax.tree.leaves(output) if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)]
      flag = sum(jnp.max(leaf) for leaf in floats) > 0
      disturb = lambda leaf: leaf ^ flag.astype(leaf.dtype) if leaf.dtype == jnp.int32 else leaf + 1e-3 * flag
      return cache, jax.tree.map(disturb, tokens)

    cache = fns.init_cache(1, prefix + length + block)
    return jax.lax.fori_loop(0, _PASSES, body, (cache, tokens))[1]

  return lambda: run(params, tokens)
