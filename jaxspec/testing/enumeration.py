"""Exact enumeration of a decode of a tiny model, over every draft, verdict and history.

The model is a table with the distribution of each token after each prefix. Drafting, judging and committing are
reimplemented here, state by state, with probability masses instead of random numbers:

1. A state is a prefix with its newly proposed drafts and their distributions.
2. Its drafts are judged position by position. Draft x is accepted with mass a(x), or replaced with the residual's mass.
3. After every commit the drafter proposes again, and masses of equal states are added.

The result is the exact distribution of every committed token after every prefix, of whole sequences, and of the token
emitted at a position given p and q. `jaxspec.rules.exact_distribution.exact_distribution` predicts the last one from p and q
alone. Closed forms, enumeration and measurement (`jaxspec.audited`) can therefore be compared.
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

from jaxspec.core.types import HostArray, PyTree
from jaxspec.rules.chain_rule import ChainRule
from jaxspec.rules.exact_distribution import PositionDistribution, exact_distribution
from jaxspec.sampling.residual import lossless_weights, usable_weights

# A prefix of t tokens is the number with these digits in base V; entry t of a table is [V**t, V], the distribution of token
# t.
Table = list[np.ndarray]


class TinyPair(NamedTuple):
  """A random target, a similar draft model, and embeddings for acceptance rules that compare tokens."""

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
  """A pair whose distributions depend mostly on the newest token and slightly on others, so that Jacobi drafts are
  useful."""
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
  """Drafts for the positions after a prefix."""

  rows: tuple[int, ...]  # distribution of each draft, as an index into the drafter's distributions of that token
  tokens: tuple[int, ...]


class Leftover(NamedTuple):
  """Output of the last pass for an uncommitted position."""

  row: int
  old: tuple[int, int] | None  # draft at this position and the row of its distribution; None without a draft


class EnumeratedDrafter(Protocol):
  """A drafter without random numbers.

  ``distributions[t]`` is ``[M, V]``, all possible distributions of a draft of token t.
  """

  distributions: Table
  window: int

  def propose(self, prefix: int, length: int, left: tuple[Leftover, ...], num: int) -> Iterator[tuple[Proposal, float]]:
    """All drafts of ``num`` positions after a prefix, with their probabilities."""
    ...

  def leave(self, prefix: int, length: int, proposal: Proposal, num_accepted: int) -> tuple[Leftover, ...]:
    """State that a round leaves for the positions after the target's own token."""
    ...


class EnumeratedChain:
  """A draft network. Every distribution depends on the prefix and the earlier drafts."""

  def __init__(self, pair: TinyPair, window: int):
    self.distributions, self.window, self._vocab = pair.draft, window, pair.vocab_size

  def propose(self, prefix, length, left, num):
    for tokens in itertools.product(range(self._vocab), repeat=num):
      rows, mass, at = [], 1.0, prefix
      for position, token in enumerate(tokens):
        rows.append(at)
        mass *= self.distributions[length + position][at, token]
        at = at * self._vocab + token
      yield Proposal(tuple(rows), tokens), mass

  def leave(self, prefix, length, proposal, num_accepted):
    return ()


class EnumeratedJacobi:
  """Speculative Jacobi decoding (see `jaxspec.drafters.jacobi_drafter.JacobiDrafter`). Rows come from older passes; the last
  row is uniform."""

  def __init__(self, pair: TinyPair, window: int, recycle: str):
    uniform = np.full((1, pair.vocab_size), 1 / pair.vocab_size)
    self.distributions = [np.concatenate([distribution, uniform]) for distribution in pair.target]
    self.window, self._vocab, self._coupled = window, pair.vocab_size, recycle == "coupled"
    self._last = pair.num_tokens - 1  # no token is drafted for the last position
    self._drawn = functools.cache(self._distribution_of_draft)

  def propose(self, prefix, length, left, num):
    fresh = lambda token: Leftover(self._vocab**token, None)
    positions = [left[i] if i < len(left) else fresh(length + i) for i in range(num)]
    distributions = [self._drawn(length + i, position) for i, position in enumerate(positions)]
    rows = tuple(position.row for position in positions)
    for tokens in itertools.product(range(self._vocab), repeat=num):
      yield (
        Proposal(rows, tokens),
        float(np.prod([distribution[token] for distribution, token in zip(distributions, tokens)])),
      )

  def leave(self, prefix, length, proposal, num_accepted):
    # The row of a position was computed with this round's earlier drafts as its prefix.
    rows = list(itertools.accumulate(proposal.tokens, lambda at, token: at * self._vocab + token, initial=prefix))
    left = []
    for position in range(num_accepted + 1, min(self.window + 1, self._last - length)):
      drafted = self._coupled and position < len(proposal.tokens)
      left.append(Leftover(rows[position], (proposal.tokens[position], proposal.rows[position]) if drafted else None))
    return tuple(left)

  def _distribution_of_draft(self, token: int, position: Leftover) -> np.ndarray:
    distribution = self.distributions[token][position.row]
    if position.old is None:
      return distribution
    drafted, old_row = position.old
    old = self.distributions[token][old_row]
    accept = min(1.0, distribution[drafted] / old[drafted])
    left = np.asarray(usable_weights(lossless_weights(None, distribution, old), distribution), np.float64)
    return accept * np.eye(self._vocab)[drafted] + (1 - accept) * left / left.sum()


def enumerated_drafter(
  pair: TinyPair, family: str, *, gamma: int, window: int, recycle: str, initial: str
) -> EnumeratedDrafter:
  """The drafter of a family (``chain`` or ``jacobi``) with the options of `jaxspec.methods`.

  Raises:
    ValueError: for drafters without enumeration: trees, initial drafts that copy a neighbour, and noise that stays.
  """
  if family == "chain":
    return EnumeratedChain(pair, gamma)
  if family != "jacobi":
    raise ValueError(f"Must have a drafter of chains to enumerate, we instead got {family}; others take a checkpoint")
  if recycle == "gumbel":
    raise ValueError("Must have fresh or coupled drafts to enumerate Jacobi decoding, we instead got 'gumbel'")
  if initial != "uniform":
    raise ValueError(f"Must have uniform initial drafts to enumerate Jacobi decoding, we instead got {initial!r}")
  return EnumeratedJacobi(pair, window, recycle)


class Enumeration(NamedTuple):
  """The exact outcome of an enumerated decode. Masses of equal positions are added over their visits.

  Attributes:
    committed: entry t is ``[V**t, V]``, the probability of every sequence of t + 1 tokens.
    p: ``[M, V]`` target at each pair of p and q that occurs in a verdict.
    distribution: ``[M, V]`` distribution of the token emitted there; ``mass [M]`` the expected visits in one decode.
    predicted: the predictions of `jaxspec.rules.exact_distribution.exact_distribution` for them.
    calls: expected passes of the target in one decode, the prefill included.
  """

  committed: Table
  p: np.ndarray
  distribution: np.ndarray
  mass: np.ndarray
  predicted: PositionDistribution
  calls: float


class EnumeratedFigures(NamedTuple):
  """Figures of an enumerated decode; the first six mean the same as in `jaxspec.evaluation.audit.AuditFigures`.

  Attributes:
    closed_form: prediction of ``tv`` by `jaxspec.rules.exact_distribution.exact_distribution`, from p and q of the visited
    positions. distribution_error: largest difference between the enumerated distribution of a position and
    `exact_distribution`. prefix_tv: total variation of a token given its prefix alone, mean over tokens and prefixes; at
    most ``tv``. worst_prefix: the prefix with the largest total variation of the next token; ``worst_tv`` is that variation.
    sequence_tv: total variation of whole sequences.
  """

  tokens_per_call: float
  tv: float
  kl: float
  excess: float
  alpha: float
  alpha_sd: float
  closed_form: float
  distribution_error: float
  prefix_tv: float
  worst_prefix: tuple[int, ...]
  worst_tv: float
  sequence_tv: float


def summarize_enumeration(found: Enumeration, target: Table) -> EnumeratedFigures:
  """Compares an enumerated decode with the target and with the closed forms."""
  num_tokens, vocab = len(target), target[0].shape[-1]
  predicted = found.predicted
  per_token = lambda values: float(np.sum(found.mass * values) / num_tokens)
  per_position = lambda values: float(np.sum(found.mass * values) / max(np.sum(found.mass), 1e-300))
  visited = found.mass > 1e-9  # smaller masses are rounding errors
  distance = lambda a, b: 0.5 * np.abs(a - b).sum(-1)

  prefix_tv, worst, joint = 0.0, (0.0, ()), np.ones((1, 1))
  for length, (distribution, committed) in enumerate(zip(target, found.committed)):
    joint = joint.reshape(-1, 1) * distribution
    mass = committed.sum(-1)
    given = distance(committed / np.maximum(mass, 1e-300)[:, None], distribution) * (mass > 1e-9)
    prefix_tv += float(mass @ given) / num_tokens
    most = int(np.argmax(given))
    if given[most] > worst[0]:
      worst = float(given[most]), tuple(int(digit) for digit in np.unravel_index(most, (vocab,) * length))
  with np.errstate(divide="ignore", invalid="ignore"):
    kl = np.where(found.distribution > 0, found.distribution * np.log(found.distribution / found.p), 0.0).sum(-1)
  return EnumeratedFigures(
    tokens_per_call=float(num_tokens / found.calls),
    tv=per_token(distance(found.distribution, found.p)),
    kl=per_token(kl),
    excess=per_token(predicted.excess),
    alpha=per_position(predicted.alpha),
    alpha_sd=per_position(predicted.alpha_sd),
    closed_form=per_token(predicted.tv),
    distribution_error=float(np.max(np.abs(found.distribution - predicted.distribution)[visited], initial=0.0)),
    prefix_tv=prefix_tv,
    worst_prefix=worst[1],
    worst_tv=worst[0],
    sequence_tv=float(distance(found.committed[-1].ravel(), joint.ravel())),
  )


def enumerate_decode(target: Table, drafter: EnumeratedDrafter, rule: ChainRule, tables: PyTree) -> Enumeration:
  """Enumerates all states of a decode.

  Args:
    target: the distribution of every token after every prefix; the number of states grows as ``V`` to the number of tokens.
    rule: acceptance rule of the drafts; ``tables`` are the arrays that it reads.
  """
  num_tokens, vocab = len(target), target[0].shape[-1]
  judgements = _judge_all(target, drafter.distributions, rule, tables)
  committed = [np.zeros_like(distribution) for distribution in target]
  positions: dict[tuple[int, int, int], np.ndarray] = collections.defaultdict(lambda: np.zeros(vocab))
  states: list[dict] = [collections.defaultdict(float) for _ in range(num_tokens)]  # by length, (prefix, proposal) -> mass
  calls = 1.0

  def advance(prefix: int, length: int, mass: np.ndarray, left: tuple[Leftover, ...]) -> None:
    """Commits token ``length`` after a prefix with mass ``[V]`` and proposes the next drafts."""
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
      for position, (row, token) in enumerate(zip(*proposal)):
        judged = judgements[length + position]
        accepted = mass * judged.accept[at, row, token]
        replaced = (mass - accepted) * judged.residual[at, row, token]
        visited = positions[length + position, at, row]
        visited += replaced
        visited[token] += accepted
        advance(at, length + position, replaced, drafter.leave(prefix, length, proposal, position))
        committed[length + position][at, token] += accepted
        at, mass = at * vocab + token, accepted
      end = length + len(proposal.tokens)
      if mass > 0:
        advance(at, end, mass * target[end][at], drafter.leave(prefix, length, proposal, end - length))

  emitted = np.stack(list(positions.values()))
  mass = emitted.sum(-1)
  return Enumeration(
    committed,
    p=np.stack([target[t][at] for t, at, _ in positions]),
    distribution=emitted / np.maximum(mass, 1e-300)[:, None],
    mass=mass,
    predicted=PositionDistribution(
      *map(np.stack, zip(*([leaf[at, row] for leaf in judgements[t].predicted] for t, at, row in positions)))
    ),
    calls=calls,
  )


class _Judgement(NamedTuple):
  """An acceptance rule evaluated at all pairs of p and q of one token."""

  accept: HostArray  # [V**t, M, V] probability of accepting each draft
  residual: HostArray  # [V**t, M, V, V] distribution after the rejection of each draft
  predicted: PositionDistribution  # leaves [V**t, M, ...]


def _judge_all(target: Table, distributions: Table, rule: ChainRule, tables: PyTree) -> dict[int, _Judgement]:
  """Judgements of every position with drafts, which are all but the first and the last."""
  vocab, tokens = target[0].shape[-1], range(1, len(target) - 1)
  shapes = [(target[t].shape[0], *distributions[t].shape) for t in tokens]
  # All pairs of all tokens at once: one program instead of one per shape.
  join = lambda parts: jnp.asarray(np.concatenate([part.reshape(-1, vocab) for part in parts]), jnp.float32)
  p = join([np.broadcast_to(target[t][:, None], shape) for t, shape in zip(tokens, shapes)])
  q = join([np.broadcast_to(distributions[t][None], shape) for t, shape in zip(tokens, shapes)])
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
  return _Judgement(rule.accept_all(tables, p, q), jnp.stack(residual, axis=-2), exact_distribution(rule, tables, p, q))
