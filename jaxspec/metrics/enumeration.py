"""A decode of a tiny model with nothing left to chance: every draft, every verdict and every history is followed.

The model is a table: the law of each token after each prefix. The process of drafting, judging and committing is written
out here a second time, state by state, with masses in place of random numbers:

1. a state is a prefix with the drafts that were just proposed behind it, and the laws they were drawn from;
2. its draft is judged place by place: kept with mass a(x), or replaced with the mass of the rule's residual;
3. whatever was committed, the drafter proposes again, and masses of equal states add up.

What comes out is the exact law of every committed token after every prefix, of whole sequences, and of the token
emitted at a place where p and q met. `jaxspec.exact_law` predicts the last from p and q alone, so that closed forms,
enumeration and measurement (`jaxspec.audited`) can be held against each other.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.metrics.exact_law import PlaceLaw, exact_law
from jaxspec.types import PyTree
from jaxspec.verifiers.chain import ChainRule, lossless_weights, usable_weights

# A prefix of t tokens is the number with these digits in base V; entry t of a table is [V**t, V], the law of token t.
Table = list[np.ndarray]


class TinyPair(NamedTuple):
  """A random target, a draft that is close to it, and vectors for rules that compare tokens."""

  target: Table
  draft: Table
  codebook: np.ndarray  # [V, 2]

  @property
  def vocab_size(self) -> int:
    return self.codebook.shape[0]

  @property
  def num_tokens(self) -> int:
    return len(self.target)


def tiny_pair(seed: int, *, vocab_size: int = 4, num_tokens: int = 5) -> TinyPair:
  """Laws that depend mostly on the newest token and somewhat on all others, so that Jacobi windows are of use."""
  generator = np.random.default_rng(seed)
  newest = generator.normal(size=(vocab_size, vocab_size))
  target, draft = [], []
  for length in range(num_tokens):
    prefixes = vocab_size**length
    logits = 0.4 * generator.normal(size=(prefixes, vocab_size)) + newest[np.arange(prefixes) % vocab_size]
    target.append(_softmax(logits))
    draft.append(_softmax(logits + 0.8 * generator.normal(size=logits.shape)))
  return TinyPair(target, draft, generator.normal(size=(vocab_size, 2)).astype(np.float32))


def _softmax(logits: np.ndarray) -> np.ndarray:
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


class Proposal(NamedTuple):
  """Drafts for the places behind a prefix."""

  rows: tuple[int, ...]  # which law each was drawn from, an index into the drafter's laws of that token
  tokens: tuple[int, ...]


class Leftover(NamedTuple):
  """What the last pass knows about a place that was not committed."""

  row: int
  old: tuple[int, int] | None  # draft at this place and the row it was drawn from; None: it had none


class EnumeratedDrafter(Protocol):
  """A drafter without random numbers.

  ``laws[t]`` is ``[M, V]``, all laws that a draft of token t may be drawn from.
  """

  laws: Table
  window: int

  def propose(self, prefix: int, length: int, left: tuple[Leftover, ...], num: int) -> Iterator[tuple[Proposal, float]]:
    """All drafts of ``num`` places behind a prefix, with their probabilities."""

  def leave(self, prefix: int, length: int, proposal: Proposal, num_accepted: int) -> tuple[Leftover, ...]:
    """What a round leaves behind for the places after the one it replaced."""


class EnumeratedChain:
  """A draft network: every law is the draft's own after the prefix and the drafts before."""

  def __init__(self, pair: TinyPair, window: int):
    self.laws, self.window, self._vocab = pair.draft, window, pair.vocab_size

  def propose(self, prefix, length, left, num):
    for tokens in itertools.product(range(self._vocab), repeat=num):
      rows, mass, at = [], 1.0, prefix
      for place, token in enumerate(tokens):
        rows.append(at)
        mass *= self.laws[length + place][at, token]
        at = at * self._vocab + token
      yield Proposal(tuple(rows), tokens), mass

  def leave(self, prefix, length, proposal, num_accepted):
    return ()


class EnumeratedJacobi:
  """Speculative Jacobi decoding (see `jaxspec.jacobi`): rows are those of older passes, the last one is uniform."""

  def __init__(self, pair: TinyPair, window: int, recycle: str):
    uniform = np.full((1, pair.vocab_size), 1 / pair.vocab_size)
    self.laws = [np.concatenate([law, uniform]) for law in pair.target]
    self.window, self._vocab, self._coupled = window, pair.vocab_size, recycle == "coupled"
    self._last = pair.num_tokens - 1  # no token is drafted for the last place
    self._drawn = functools.cache(self._law_of_draft)

  def propose(self, prefix, length, left, num):
    fresh = lambda token: Leftover(self._vocab**token, None)
    places = [left[i] if i < len(left) else fresh(length + i) for i in range(num)]
    laws = [self._drawn(length + i, place) for i, place in enumerate(places)]
    rows = tuple(place.row for place in places)
    for tokens in itertools.product(range(self._vocab), repeat=num):
      yield Proposal(rows, tokens), float(np.prod([law[token] for law, token in zip(laws, tokens)]))

  def leave(self, prefix, length, proposal, num_accepted):
    # The row of a place was computed with this round's drafts before it as its prefix.
    rows = list(itertools.accumulate(proposal.tokens, lambda at, token: at * self._vocab + token, initial=prefix))
    left = []
    for place in range(num_accepted + 1, min(self.window + 1, self._last - length)):
      drafted = self._coupled and place < len(proposal.tokens)
      left.append(Leftover(rows[place], (proposal.tokens[place], proposal.rows[place]) if drafted else None))
    return tuple(left)

  def _law_of_draft(self, token: int, place: Leftover) -> np.ndarray:
    law = self.laws[token][place.row]
    if place.old is None:
      return law
    kept, old_row = place.old
    old = self.laws[token][old_row]
    accept = min(1.0, law[kept] / old[kept])
    left = np.asarray(usable_weights(lossless_weights(None, law, old), law), np.float64)
    return accept * np.eye(self._vocab)[kept] + (1 - accept) * left / left.sum()


def enumerated_drafter(
  pair: TinyPair, family: str, *, gamma: int, window: int, recycle: str, initial: str
) -> EnumeratedDrafter:
  """The drafter of a family (``chain`` or ``jacobi``) with the settings of `jaxspec.decode.methods.MethodOptions`.

  Raises:
    ValueError: for what is not enumerated: trees, and initial drafts that copy a neighbour.
  """
  if family == "chain":
    return EnumeratedChain(pair, gamma)
  if family != "jacobi":
    raise ValueError(f"Must have a drafter of chains to enumerate, we instead got {family}; others take a checkpoint")
  if initial != "uniform":
    raise ValueError(f"Must have uniform initial drafts to enumerate Jacobi decoding, we instead got {initial!r}")
  return EnumeratedJacobi(pair, window, recycle)


class Enumeration(NamedTuple):
  """What the process did, exactly; masses of all places of one kind add up over their visits.

  Attributes:
    committed: entry t is ``[V**t, V]``, the probability of every sequence of t + 1 tokens.
    p: ``[M, V]`` target at each pair of p and q that a draft was judged with.
    law: ``[M, V]`` law of the token emitted there; ``mass [M]`` the expected number of visits in one decode.
    predicted: what `jaxspec.exact_law` says about them.
    calls: expected passes of the target in one decode, the prefill included.
  """

  committed: Table
  p: np.ndarray
  law: np.ndarray
  mass: np.ndarray
  predicted: PlaceLaw
  calls: float


class EnumeratedFigures(NamedTuple):
  """An enumerated decode in figures; the first six mean the same as in `jaxspec.metrics.audit.AuditFigures`.

  Attributes:
    closed_form: what `jaxspec.exact_law` predicts for ``tv`` from p and q of the places that are visited.
    law_error: largest difference between the law of one place, enumerated, and `jaxspec.exact_law`.
    prefix_tv: total variation of a token given its prefix alone, mean over tokens and prefixes; at most ``tv``.
    worst_prefix: the prefix with the largest total variation of the next token, ``worst_tv`` that variation.
    sequence_tv: total variation of whole sequences.
  """

  tokens_per_call: float
  tv: float
  kl: float
  excess: float
  alpha: float
  alpha_sd: float
  closed_form: float
  law_error: float
  prefix_tv: float
  worst_prefix: tuple[int, ...]
  worst_tv: float
  sequence_tv: float


def summarize_enumeration(found: Enumeration, target: Table) -> EnumeratedFigures:
  """Holds an enumerated decode against the target and against the closed forms."""
  num_tokens, vocab = len(target), target[0].shape[-1]
  predicted = found.predicted
  per_token = lambda values: float(np.sum(found.mass * values) / num_tokens)
  per_place = lambda values: float(np.sum(found.mass * values) / max(np.sum(found.mass), 1e-300))
  visited = found.mass > 1e-9  # rarer ones are rounding, and so is their law
  distance = lambda a, b: 0.5 * np.abs(a - b).sum(-1)

  prefix_tv, worst, joint = 0.0, (0.0, ()), np.ones((1, 1))
  for length, (law, committed) in enumerate(zip(target, found.committed)):
    joint = joint.reshape(-1, 1) * law
    mass = committed.sum(-1)
    given = distance(committed / np.maximum(mass, 1e-300)[:, None], law) * (mass > 1e-9)
    prefix_tv += float(mass @ given) / num_tokens
    most = int(np.argmax(given))
    if given[most] > worst[0]:
      worst = float(given[most]), tuple(int(digit) for digit in np.unravel_index(most, (vocab,) * length))
  with np.errstate(divide="ignore", invalid="ignore"):
    kl = np.where(found.law > 0, found.law * np.log(found.law / found.p), 0.0).sum(-1)
  return EnumeratedFigures(
    tokens_per_call=float(num_tokens / found.calls),
    tv=per_token(distance(found.law, found.p)),
    kl=per_token(kl),
    excess=per_token(predicted.excess),
    alpha=per_place(predicted.alpha),
    alpha_sd=per_place(predicted.alpha_sd),
    closed_form=per_token(predicted.tv),
    law_error=float(np.max(np.abs(found.law - predicted.law)[visited], initial=0.0)),
    prefix_tv=prefix_tv,
    worst_prefix=worst[1],
    worst_tv=worst[0],
    sequence_tv=float(distance(found.committed[-1].ravel(), joint.ravel())),
  )


def enumerate_decode(target: Table, drafter: EnumeratedDrafter, rule: ChainRule, tables: PyTree) -> Enumeration:
  """Follows a decode through all its states.

  Args:
    target: the law of every token after every prefix; the number of states grows as ``V`` to the number of tokens.
    rule: judges the drafts; ``tables`` is what it reads.
  """
  num_tokens, vocab = len(target), target[0].shape[-1]
  judgements = _judge_all(target, drafter.laws, rule, tables)
  committed = [np.zeros_like(law) for law in target]
  places: dict[tuple[int, int, int], np.ndarray] = collections.defaultdict(lambda: np.zeros(vocab))
  states: list[dict] = [collections.defaultdict(float) for _ in range(num_tokens)]  # by length, (prefix, proposal) -> mass
  calls = 1.0

  def advance(prefix: int, length: int, mass: np.ndarray, left: tuple[Leftover, ...]) -> None:
    """Commits token ``length`` behind a prefix with mass ``[V]`` and proposes the next drafts."""
    committed[length][prefix] += mass
    if length + 1 == num_tokens:
      return
    num = min(drafter.window, num_tokens - length - 2)
    for token in np.flatnonzero(mass):
      longer = prefix * vocab + int(token)
      for proposal, probability in drafter.propose(longer, length + 1, left, num):
        states[length + 1][longer, proposal] += mass[token] * probability

  advance(0, 0, target[0][0], ())
  for length in range(1, num_tokens):
    for (prefix, proposal), mass in states[length].items():
      calls += mass
      at = prefix
      for place, (row, token) in enumerate(zip(*proposal)):
        judged = judgements[length + place]
        kept = mass * judged.accept[at, row, token]
        replaced = (mass - kept) * judged.residual[at, row, token]
        visited = places[length + place, at, row]
        visited += replaced
        visited[token] += kept
        advance(at, length + place, replaced, drafter.leave(prefix, length, proposal, place))
        committed[length + place][at, token] += kept
        at, mass = at * vocab + token, kept
      end = length + len(proposal.tokens)
      if mass > 0:
        advance(at, end, mass * target[end][at], drafter.leave(prefix, length, proposal, end - length))

  emitted = np.stack(list(places.values()))
  mass = emitted.sum(-1)
  return Enumeration(
    committed,
    p=np.stack([target[t][at] for t, at, _ in places]),
    law=emitted / np.maximum(mass, 1e-300)[:, None],
    mass=mass,
    predicted=PlaceLaw(*map(np.stack, zip(*([leaf[at, row] for leaf in judgements[t].predicted] for t, at, row in places)))),
    calls=calls,
  )


class _Judgement(NamedTuple):
  """A rule at all pairs of p and q of one token."""

  accept: np.ndarray  # [V**t, M, V] probability of keeping each draft
  residual: np.ndarray  # [V**t, M, V, V] law after the rejection of each draft
  predicted: PlaceLaw  # leaves [V**t, M, ...]


def _judge_all(target: Table, laws: Table, rule: ChainRule, tables: PyTree) -> dict[int, _Judgement]:
  """Every token that may be drafted; the first and the last one never are."""
  vocab, tokens = target[0].shape[-1], range(1, len(target) - 1)
  shapes = [(target[t].shape[0], *laws[t].shape) for t in tokens]
  # All pairs of all tokens at once: one program instead of one per shape.
  join = lambda parts: jnp.asarray(np.concatenate([part.reshape(-1, vocab) for part in parts]), jnp.float32)
  p = join([np.broadcast_to(target[t][:, None], shape) for t, shape in zip(tokens, shapes)])
  q = join([np.broadcast_to(laws[t][None], shape) for t, shape in zip(tokens, shapes)])
  found = jax.device_get(_judge(rule, tables, p, q))
  judgements, start = {}, 0
  for t, shape in zip(tokens, shapes):
    here = slice(start, start := start + shape[0] * shape[1])
    cut = lambda leaf, here=here, shape=shape: np.asarray(leaf[here], np.float64).reshape(*shape[:2], *leaf.shape[1:])
    judgements[t] = jax.tree.map(cut, found)
  return judgements


@functools.partial(jax.jit, static_argnums=0)
def _judge(rule: ChainRule, tables: PyTree, p: jax.Array, q: jax.Array) -> _Judgement:
  normalised = lambda weights: weights / jnp.sum(weights, axis=-1, keepdims=True)
  after = lambda x: rule.residual_weights(tables, jnp.full(p.shape[:-1], x, jnp.int32), p, q)
  residual = [normalised(usable_weights(after(x), p)) for x in range(p.shape[-1])]
  return _Judgement(rule.accept_all(tables, p, q), jnp.stack(residual, axis=-2), exact_law(rule, tables, p, q))
