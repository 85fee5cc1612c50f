"""Where the time of a round goes: the parts of one round, each timed by itself in a real decode.

1. The three functions of a round (`jaxspec.decode.loop`) run one by one from Python, compiled apart, their states donated.
   What a call costs before it computes is measured with the same arguments, and taken off.
2. A pass of each network alone runs many times in one compiled loop. Times the passes of a round, it is the network's share
   of its side; the rest is sampling, acceptance, scores and bookkeeping.
3. A round of the whole compiled decode is what the parts are compared with.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from experiments.engine.classes import every_class
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.race import PROMPTS
from experiments.engine.rows import Row, row
from jaxspec.decode import loop, measure
from jaxspec.decode.state import TargetSide
from jaxspec.decoder import Decoder
from jaxspec.models.conditions import Pairs
from jaxspec.models.eagle import attach, borrowed
from jaxspec.network import Network
from jaxspec.sampling import head_fns
from jaxspec.types import ModelFns, PyTree

# Passes of a network in one timed program, and calls whose cost before computing is measured.
_PASSES, _CALLS = 32, 20
EAGLE = "eagle"


class Of(NamedTuple):
  """A method and the bundle whose networks decode."""

  bundle: str
  row: Row


METHODS = (
  Of("emoji64", row("speculative", "speculative", draft="draft-1")),
  Of("emoji64", row("sjd", "sjd")),
  Of("emoji64", row("eagle-chain", "eagle-chain")),
  Of("emoji64", row("ciar", "ciar", draft="inter-1")),
  Of("classes64-causal", row("cspd", "cspd")),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundParts(Experiment):
  """Milliseconds of every part, one image at a time; every turn is another image.

  Attributes:
    max_len: tokens of an image; 0 takes all.
  """

  methods: tuple[Of, ...] = METHODS
  turns: int = 6
  max_len: int = 0
  kind: ClassVar[str] = "round parts"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    rows = []
    for bundle, entry in self.methods:
      logging.info("%s on %s", entry.name, bundle)
      pipeline = lab.pipeline(bundle)
      decoder = pipeline.decoder(entry.value(pipeline), **dict(entry.sampling))
      classes = getattr(pipeline.target.config, "num_classes", None)
      prompts = every_class(classes, self.turns + 1) if decoder.draws_vectors else PROMPTS
      condition = pipeline.encode(list(prompts)).condition
      with pipeline.context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers")  # small arrays that become others
        found = parts_of(decoder, condition, self.max_len or pipeline.host.num_tokens, self.turns)
      rows.append({"label": entry.name, "bundle": bundle, "options": decoder.method.options(), **found})
    return {"turns": self.turns, "rows": rows}


def parts_of(decoder: Decoder, conditions: PyTree, length: int, turns: int) -> dict[str, Any]:
  """``parts`` (name: `measure.Timing` in milliseconds of a round), and the passes of both networks in a round."""
  stepped, taken = Stepped(decoder, length), {}
  alone = {name: pass_of(*found) for name, found in networks(decoder, conditions, length).items()}
  for turn in range(turns + 1):
    condition = jax.tree.map(lambda leaf: leaf[turn % conditions.batch_size][None], conditions)  # noqa: B023, called at once
    key = jax.random.key(turn)
    found = stepped(condition, key)
    found["round"] = stepped.compiled_round(condition, key, found["rounds"])
    for name, call in alone.items():
      found[f"{name} network"] = found[f"{name} passes"] * measure.seconds_of(call) / _PASSES
    if turn:  # the first one compiles
      for name, value in found.items():
        taken.setdefault(name, []).append(value)
  counts = {name: measure.Timing.of(taken.pop(name)).median for name in ("rounds", "draft passes", "target passes")}
  parts = {name: measure.Timing.of([1e3 * value for value in values])._asdict() for name, values in taken.items()}
  return {"parts": parts, "counts": counts}


class Stepped:
  """A decode whose rounds run from Python, part by part.

  Args:
    decoder: of a method with rounds.
    length: tokens of a row.
  """

  def __init__(self, decoder: Decoder, length: int):
    self._decoder, self._length, self._parts = decoder, length, decoder.parts
    drafter, verifier = self._parts.drafter, self._parts.verifier
    fixed = dict(drafter=drafter, verifier=verifier, max_len=length, target_prefix=self._parts.target_prefix)
    self._start = jax.jit(functools.partial(loop.start, **fixed))
    self._prefix = jax.jit(functools.partial(loop.prefix_round, drafter=drafter, verifier=verifier), donate_argnums=1)
    self._draft = jax.jit(functools.partial(loop.draft_round, drafter=drafter), donate_argnums=1)
    self._commit = jax.jit(functools.partial(loop.commit_reply, drafter=drafter), donate_argnums=1)

    def verify(params, side, state, draft):
      target = TargetSide(side.cursor, side.keys, jnp.int32(length), state)
      target, verdict = loop.verify_round(params, target, draft, verifier=verifier)
      return verdict, target.verifier

    self._verify = jax.jit(verify, donate_argnums=2)
    self._silent = jax.jit(loop.reply_to_nothing)
    self._call = jax.jit(lambda params, state: state, donate_argnums=1, keep_unused=True)

  def __call__(self, condition: PyTree, key: jax.Array) -> dict[str, float]:
    """Seconds of a round by part, the number of rounds, and the passes of both networks in a round."""
    params, seconds = self._parts.params, {"draft": 0.0, "target": 0.0, "commit": 0.0}
    state = self._start(params, key, condition)
    for _ in range(loop.prefix_rounds(self._parts.target_prefix, self._length)):
      state = self._prefix(params, state)
    side, verifier = state.draft_side, state.verifier
    before, like = jax.device_get(side.counters), None
    while bool(jnp.any(side.cursor.live)):
      waiting, spent = timed(self._draft, params.draft, side)
      seconds["draft"] += spent
      side, draft = waiting.side, waiting.draft
      if like is None:
        like = jax.eval_shape(self._verify, params.target, side, verifier, draft)[0]
      if bool(loop.needs_exchange(side.cursor, draft)):
        (verdict, verifier), spent = timed(self._verify, params.target, side, verifier, draft)
        seconds["target"] += spent
      else:
        verdict = self._silent(draft, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))
      side, spent = timed(self._commit, params.draft, waiting, verdict)
      seconds["commit"] += spent
    counters = jax.device_get(side.counters)
    of = lambda name: float((getattr(counters, name) - getattr(before, name)).max())
    rounds, calls = of("rounds"), {"draft": 0.0, "target": 0.0}
    for _ in range(_CALLS):
      side, spent = timed(self._call, params.draft, side)
      calls["draft"] += spent / _CALLS
      verifier, spent = timed(self._call, params.target, verifier)
      calls["target"] += spent / _CALLS
    shares = {"draft": 1.0, "target": of("target_calls") / rounds, "commit": 1.0}
    costs = {"draft": calls["draft"], "target": calls["target"], "commit": calls["draft"]}
    found = {name: seconds[name] / rounds - shares[name] * costs[name] for name in seconds}
    return found | {
      "rounds": rounds, "draft passes": of("draft_calls") / rounds, "target passes": of("target_calls") / rounds,
      "calls": sum(shares[name] * costs[name] for name in shares),
    }  # fmt: skip

  def compiled_round(self, condition: PyTree, key: jax.Array, rounds: float) -> float:
    """Seconds of a round of the whole decode in one program; token 0 and the target's own prefix are taken off."""
    params, length = self._parts.params, self._length
    kwargs = dict(drafter=self._parts.drafter, verifier=self._parts.verifier, max_len=length)
    whole = measure.seconds_of(lambda: self._decoder(condition, key=key, max_len=length).tokens)
    return (whole - measure.seconds_of(lambda: measure.prefill(params, key, condition, **kwargs))) / rounds


def timed(call: Callable[..., Any], *args: Any) -> tuple[Any, float]:
  """The result of a compiled call and its seconds; one output is there when all are."""
  started = time.perf_counter()
  result = call(*args)
  jax.block_until_ready(jax.tree.leaves(result)[-1])
  return result, time.perf_counter() - started


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
    ValueError: for guided vectors.
  """
  if not decoder.draws_vectors:
    fns, side = decoder.sampling.side(network)
    return fns, side.model
  if decoder.sampling.is_guided:
    raise ValueError("Must have vectors without guidance to time their network alone, we instead got guided ones")
  return head_fns(network).network, network.params


def inputs(decoder: Decoder, block: int) -> jax.Array:
  """Tokens ``[1, block]``, or vectors."""
  if not decoder.draws_vectors:
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
