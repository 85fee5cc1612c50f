"""Acceptance over trees: parity with the public code, a sequential walk, and exact distributions of the whole loop."""

import functools
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng, rounds, trees
from jaxspec.core.constructors import stateless
from jaxspec.core.types import Draft, Drafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules import tree_rule
from jaxspec.sampling import logit_processing as sampling
from tests.helpers import markov_fns, markov_joint, side

GOLDEN = Path(__file__).parents[1] / "golden" / "discrete"
V = 3
GRID = (np.arange(12) + 0.5) / 12
QUARTERS = [np.array(c) / 4 for c in itertools.product(range(5), repeat=V) if sum(c) == 4]


def _draft(tokens, parents, levels=None):
  rows, window = tokens.shape
  levels = jnp.full((rows,), window, jnp.int32) if levels is None else levels
  return Draft.tree(jnp.asarray(tokens, jnp.int32), jnp.asarray(parents, jnp.int32), levels, 0)


def _golden_tree(get):
  """Tokens and parents ``[1, K]`` of a stored tree, whose node 0 is the root."""
  tokens = get("draft_tokens")
  parents = np.full(len(tokens), -2)
  for row in get("retrieve_indices"):
    row = row[row >= 0]
    parents[row[1:]] = row[:-1]
  assert (parents[1:] >= 0).all()
  return tokens[None, 1:], parents[None, 1:] - 1


def _decide(monkeypatch, draft, target, uniforms, rule=tree_rule.lossless_tree):
  """Runs a rule with given uniforms ``[B, K]``; returns the verdict and the normalised distribution of the next token."""
  distributions = []
  with monkeypatch.context() as patch:
    patch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(uniforms, jnp.float32))
    patch.setattr(sampling, "inverse_cdf", lambda weights, u: distributions.append(weights) or jnp.argmax(weights, -1))
    decide = jax.jit(lambda *judged: (rule((), *judged), distributions[0]))
    verdict, distribution = decide(rng.row_keys(jax.random.key(0), draft.tokens.shape[0]), draft, target)
  distribution = np.asarray(distribution, np.float64)
  return verdict, distribution / distribution.sum(-1, keepdims=True)


@pytest.mark.parametrize("case", [0, 1, 2, 3])
def test_sampling_matches_the_public_code(case, monkeypatch):
  archive = np.load(GOLDEN / "tree_accept_sampling.npz")
  get = lambda name: archive[f"d{case}_{name}"]
  relaxed, _, _, top_k = get("lantern_k_delta_topk")
  assert not relaxed
  tokens, parents = _golden_tree(get)
  target = sampling.Warp(top_k=int(top_k))(jnp.asarray(get("target_logits")), jaxspec.sampling_params())[None]
  draft = _draft(tokens, parents)

  # The public code draws uniforms in the order of its tests; ours belong to nodes.
  uniforms, expected, at = np.full(tokens.shape, 0.5), {}, -1
  trace = get("trace_level_token_px_accept_r")
  for _, token, mass, _, uniform in trace[~np.isnan(trace[:, 0])]:
    node = next(i for i in np.flatnonzero(parents[0] == at) if tokens[0, i] == token)
    uniforms[0, node], expected[node] = uniform, mass
    at = node if uniform <= mass else at
  candidates = tree_rule.Candidates(draft.tokens, draft.parents + 1, trees.earlier_siblings(draft.parents))
  prob = jax.jit(tree_rule.exact_accept_prob)((), candidates, target)
  for node, mass in expected.items():
    np.testing.assert_allclose(prob[0, node], mass, atol=1e-5)
  verdict, distribution = _decide(monkeypatch, draft, target, uniforms)
  assert int(verdict.num_accepted[0]) == int(get("accept_length"))
  np.testing.assert_allclose(distribution[0], get("next_prob"), atol=1e-5)


@pytest.mark.parametrize("case", [0, 1])
def test_greedy_matches_the_public_code(case, monkeypatch):
  archive = np.load(GOLDEN / "tree_accept_greedy.npz")
  get = lambda name: archive[f"g{case}_{name}"]
  assert not get("lantern_k_delta")[0]
  tokens, parents = _golden_tree(get)
  target = sampling.Warp()(jnp.asarray(get("target_logits")), jaxspec.sampling_params(temperature=0.0))[None]
  uniforms = np.random.default_rng(0).random(tokens.shape)  # any
  verdict, distribution = _decide(monkeypatch, _draft(tokens, parents), target, uniforms)
  length = int(get("accept_length"))
  assert int(verdict.num_accepted[0]) == length
  row = get("retrieve_indices")[int(get("best_row"))]
  np.testing.assert_array_equal(verdict.path[0, :length] + 1, row[1 : 1 + length])
  assert distribution[0].argmax() == get("next_logits").argmax() and distribution[0].max() > 0.999


def _walk(target, tokens, parents, levels, uniforms):
  """The published procedure in float64: test the children in order, delete and renormalise, then descend."""
  distribution = np.exp(target - target.max(-1, keepdims=True)).astype(np.float64)
  distribution /= distribution.sum(-1, keepdims=True)
  at, path = -1, []
  while True:
    left, found = distribution[at + 1].copy(), False
    for node in np.flatnonzero(parents == at):
      if len(path) == levels:
        break
      if uniforms[node] < left[tokens[node]]:
        at, found = node, True
        path.append(node)
        break
      left[tokens[node]] = 0.0
      left /= left.sum()
    if not found:
      return path, left


@pytest.mark.slow
@pytest.mark.parametrize("max_path", [None, 3])
def test_parallel_acceptance_tests_equal_the_sequential_walk(max_path, monkeypatch):
  """Random trees with repeated siblings and truncated levels."""
  rows, window, vocab = 300, 12, 8
  generator = np.random.default_rng(4)
  parents = np.stack([[generator.integers(-1, i) if i else -1 for i in range(window)] for _ in range(rows)])
  tokens = generator.integers(vocab, size=(rows, window))
  target = generator.normal(size=(rows, window + 1, vocab)) * 2
  target[generator.random(target.shape) < 0.2] = -np.inf
  target[..., 0] = 0.0
  levels = generator.integers(0, 6, size=rows)
  uniforms = generator.random((rows, window)).astype(np.float32)
  draft = _draft(tokens, parents, jnp.asarray(levels, jnp.int32))
  verdict, distribution = _decide(
    monkeypatch, draft, jnp.asarray(target, jnp.float32), uniforms, tree_rule.tree_rule(max_path=max_path)
  )
  bound = window if max_path is None else max_path
  verdict = jax.tree.map(np.asarray, verdict)  # indexing device arrays would compile programs
  assert verdict.path.shape == (rows, bound)
  for row in range(rows):
    path, left = _walk(target[row], tokens[row], parents[row], min(levels[row], bound), uniforms[row])
    assert verdict.path[row, : len(path)].tolist() == path and int(verdict.num_accepted[row]) == len(path)
    np.testing.assert_allclose(distribution[row], left, atol=2e-5)
  assert len(set(verdict.num_accepted.tolist())) > 3


@pytest.mark.slow
def test_a_chain_is_the_tree_of_one_path():
  rows, window, vocab = 64, 4, 5
  generator = np.random.default_rng(1)
  target = jnp.asarray(generator.normal(size=(rows, window + 1, vocab)), jnp.float32)
  chain = Draft.chain(jnp.asarray(generator.integers(vocab, size=(rows, window)), jnp.int32), (), window, 0)
  as_tree = chain._replace(parents=trees.parents_of(chain))
  keys = rng.row_keys(jax.random.key(0), rows)
  judge = jax.jit(tree_rule.lossless_tree)
  first = judge((), keys, chain, target)
  second = judge((), keys, as_tree, target)
  assert first.path.shape == (rows, 0) and second.path.shape == (rows, window)
  np.testing.assert_array_equal(first.num_accepted, second.num_accepted)
  np.testing.assert_array_equal(first.next_tokens, second.next_tokens)
  assert trees.layout(chain)[1] is None
  positions, mask = trees.layout(as_tree)
  np.testing.assert_array_equal(positions, np.broadcast_to(np.arange(window + 1), (rows, window + 1)))
  np.testing.assert_array_equal(mask[0], np.tril(np.ones((window + 1, window + 1), bool)))


@functools.cache
def table_trees(window: int) -> Drafter:
  """A drafter of one fixed tree: parameters are its parents ``[K]``, and tokens ``[V, K]`` by the newest token."""

  def draft(params, keys, cursor):
    parents, tokens = params
    rows = cursor.last.shape[0]
    return _draft(tokens[cursor.last], jnp.broadcast_to(parents[None], (rows, window)))

  return stateless(draft, window=window)


def _markov(seed, parents):
  generator = np.random.default_rng(seed)
  p = np.stack([QUARTERS[generator.integers(len(QUARTERS))] for _ in range(V + 1)])
  fns = markov_fns(V)
  tokens = jnp.asarray(np.stack([generator.permutation(np.arange(len(parents)) % V) for _ in range(V)]), jnp.int32)
  drafted = (jnp.asarray(parents, jnp.int32), tokens)
  params = jaxspec.SpecParams(drafted, side(jnp.log(jnp.asarray(p, jnp.float32))))
  verifier = jaxspec.TargetVerifier(fns, tree_rule.lossless_tree, warp=jaxspec.Warp())
  return p, params, dict(drafter=table_trees(len(parents)), verifier=verifier)


CELLS = np.stack(np.meshgrid(*[GRID] * 4, indexing="ij"), -1).reshape(-1, 4).astype(np.float32)
FIRST = 1  # the token before the round


@pytest.fixture(scope="module")
def one_round():
  """Tokens, their number and the newest one after a round that draws all cells; one program for all tables and trees."""

  def run(params):
    kwargs = _markov(0, (-1,) * 3)[2]
    condition = ClassLabels(jnp.zeros((len(CELLS),), jnp.int32))
    state = rounds.start(params, jax.random.key(0), condition, max_len=4, **kwargs)
    cursor = state.draft_side.cursor._replace(last=jnp.full((len(CELLS),), FIRST, jnp.int32))
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(CELLS[:, :3]))
      patch.setattr(rng, "final_uniform", lambda keys: jnp.asarray(CELLS[:, 3]))
      edge = state.draft_side.replace(cursor=cursor)
      done = rounds.decode_round(params, state.replace(draft_side=edge), **kwargs).draft_side
    return done.tokens, done.cursor.length, done.cursor.last

  return jax.jit(run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parents", [(-1, -1, 0), (-1, 0, 0), (-1, -1, 1)])
def test_enumerated_distribution_of_one_round_of_a_tree(seed, parents, one_round):
  """The next three tokens after a first one: a round over a tree of two levels, continued by the target's distribution."""
  p, params, _ = _markov(seed + 10, parents)
  tokens, length, last = map(np.asarray, one_round(params))
  gained, tokens, rows = length - 1, tokens[:, 1:], len(CELLS)

  distribution = np.zeros((V,) * 3)
  for count in (1, 2, 3):
    heads, number = np.unique(tokens[gained == count, :count], axis=0, return_counts=True)
    for head, n in zip(heads, number):
      tail = markov_joint(np.vstack([p[:-1], p[head[-1]]]), 3 - count) if count < 3 else np.ones(())
      distribution[tuple(head)] += n / rows * tail
  error = np.abs(distribution - markov_joint(np.vstack([p[:-1], p[FIRST]]), 3)).sum() / 2
  assert error < 1e-5, error
  # The newest token of a row is the last it committed.
  np.testing.assert_array_equal(last, tokens[np.arange(rows), gained - 1])


def test_bonus_and_replacement_are_distinguished():
  """A path that ends at a leaf of a shallow branch gets a bonus token; with rejected children it gets a replacement."""
  parents = jnp.asarray([[-1, -1, 1]] * 3, jnp.int32)
  draft = _draft(jnp.zeros((3, 3), jnp.int32), parents, jnp.full((3,), 2))
  path = jnp.asarray([[0, 0], [1, 0], [0, 0]])
  verdict = jaxspec.Verdict.one(jnp.asarray([1, 1, 0]), jnp.zeros((3,), jnp.int32), path=path)
  np.testing.assert_array_equal(trees.ended_by_rejection(draft, verdict), [False, True, True])
  cut = draft._replace(num_drafted=jnp.ones((3,), jnp.int32))
  np.testing.assert_array_equal(trees.ended_by_rejection(cut, verdict), [False, False, True])


def test_trees_need_a_model_that_can_move_its_cache():
  p, params, kwargs = _markov(0, (-1, -1))
  plain = markov_fns(V)._replace(compact=None)
  verifier = jaxspec.TargetVerifier(plain, tree_rule.lossless_tree, warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="compact"):
    jaxspec.speculate(
      params, jax.random.key(0), ClassLabels(jnp.zeros((1,), jnp.int32)),
      drafter=kwargs["drafter"], verifier=verifier, max_len=3,
    )  # fmt: skip
