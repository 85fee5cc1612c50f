"""LANTERN on trees: the chain's closed form, stored walks and distributions of the released code, and errors of plug-ins."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng, trees
from jaxspec.core.types import Draft
from jaxspec.rules.distances import neighbour_table
from jaxspec.rules.exact_distribution import exact_distribution, exact_tree_distribution
from jaxspec.rules.lantern_rule import LanternRule, lantern_plus_plus
from jaxspec.rules.lantern_tree import lantern_tree
from jaxspec.rules.tree_rule import tree_rule
from jaxspec.sampling import logit_processing as sampling
from tests.rules import golden

V = 4
GRID = (np.arange(12) + 0.5) / 12
CODES = jnp.asarray([[0.0, 0.0], [1.0, 0.1], [0.3, 0.0], [1.0, 1.0]])


def _draft(tokens, parents):
  rows, window = tokens.shape
  full, tokens = jnp.full((rows,), window, jnp.int32), jnp.asarray(tokens, jnp.int32)
  return (
    Draft.chain(tokens, (), full, 0) if parents is None else Draft.tree(tokens, jnp.asarray(parents, jnp.int32), full, 0)
  )


def _distribution_of_rounds(rule, table, draft, target, monkeypatch):
  """Distribution of the committed block of one round over all midpoints of its uniforms: ``{block: probability}``."""
  window = draft.tokens.shape[1]
  cells = np.stack(np.meshgrid(*[GRID] * (window + 1), indexing="ij"), -1).reshape(-1, window + 1).astype(np.float32)
  whole = jax.tree.map(lambda leaf: jnp.repeat(leaf, len(cells), axis=0), (draft, target))
  with monkeypatch.context() as patch:
    patch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(cells[:, :num]))
    patch.setattr(rng, "final_uniform", lambda keys: jnp.asarray(cells[:, -1]))
    verdict = rule(table, rng.row_keys(jax.random.key(0), len(cells)), *whole)
  kept, num = np.asarray(trees.accepted_tokens(whole[0], verdict)), np.asarray(verdict.num_accepted)
  distribution = {}
  for row, token in enumerate(np.asarray(verdict.next_tokens[:, 0])):
    block = (*kept[row, : num[row]].tolist(), int(token))
    distribution[block] = distribution.get(block, 0.0) + 1 / len(cells)
  return distribution


@pytest.mark.slow
@pytest.mark.parametrize("rule", [LanternRule(2, 0.25), LanternRule(1, 0.5), lantern_plus_plus(2, 2.0)])
def test_a_chain_of_certain_candidates_has_the_closed_form_of_the_chain_rule(rule, monkeypatch):
  """Probabilities are quarters, so all uniforms can be enumerated, including residuals in thirds and halves."""
  quarters = [np.array(c) / 4 for c in itertools.product(range(5), repeat=V) if sum(c) == 4 and max(c) < 4]
  generator = np.random.default_rng(0)
  p = np.stack([quarters[generator.integers(len(quarters))] for _ in range(3)])
  tokens = [int(np.flatnonzero(row)[0]) for row in p[:2]]  # drafts with a probability between 0 and 1
  table = neighbour_table(CODES, V - 1, normalise=False)
  target = jnp.log(jnp.asarray(p, jnp.float32))[None]

  certain = jax.nn.one_hot(jnp.asarray(tokens), V)
  position = exact_distribution(rule, table, jnp.asarray(p[:2], jnp.float32), certain)
  (first, second), distributions = np.asarray(position.alpha, np.float64), np.asarray(position.distribution, np.float64)
  expected = {}
  for y in range(V):
    emitted = distributions[:, y] - np.asarray(position.alpha) * (y == np.array(tokens))  # after a rejection
    expected[(y,)] = emitted[0]
    expected[(tokens[0], y)] = first * emitted[1]
    expected[(*tokens, y)] = first * second * p[2, y]
  assert max(first, second) > 0

  as_tree = tree_rule(lantern_tree(rule))
  chain = _draft(np.asarray([tokens]), None)
  tree = _draft(np.asarray([tokens]), [[-1, 0]])
  proposal = chain._replace(proposal=jnp.log(certain)[None])
  for judged, draft in ((as_tree, tree), (as_tree, chain), (rule, proposal)):
    found = _distribution_of_rounds(judged, table, draft, target, monkeypatch)
    error = sum(abs(found.get(block, 0.0) - mass) for block, mass in expected.items()) / 2
    assert set(found) <= set(expected) and error < 1e-5, (judged, found, expected)
  for node, index in ((-1, 0), (0, 1)):
    whole = exact_tree_distribution(as_tree, table, tree, target, jnp.asarray([node]))
    np.testing.assert_allclose(whole.distribution[0], distributions[index], atol=1e-6)
    np.testing.assert_allclose(whole.tv[0], position.tv[index], atol=1e-6)


def _rule(enabled, num_neighbours, delta):
  """The released code's settings, where a delta above 1 is a ratio."""
  if not enabled:
    return LanternRule(1, 0.0)
  return LanternRule(int(num_neighbours), float(delta), delta > 1, residual="compat")


@pytest.mark.slow
def test_golden_distributions_of_four_candidates():
  """Four certain candidates for one position, with the released code's deletions."""
  case = golden.load("exact_law_lantern")
  table = jnp.asarray(case["neighbours"], jnp.int32)
  stats = [dict(zip(case["stats_names"], row)) for row in case["stats"]]
  settings = [(s["lantern"], s["k"], s["delta"]) for s in stats]
  for setting in sorted(set(settings)):
    rows = np.array([row for row, other in enumerate(settings) if other == setting])
    draft = _draft(case["candidates"][rows], np.full((rows.size, 4), -1))
    logits = jnp.asarray(case["logits"][rows], jnp.float32)
    target = jnp.repeat(logits[:, None], 5, axis=1)  # the position is the first; the others are not reached
    rule = tree_rule(lantern_tree(_rule(*setting)))
    found = exact_tree_distribution(rule, table, draft, target, jnp.full((rows.size,), -1))
    np.testing.assert_allclose(found.distribution, case["law_dynamic_four"][rows], atol=1e-5)
    np.testing.assert_allclose(found.alpha, [stats[row]["accept_dynamic_four"] for row in rows], atol=1e-5)


def _decide(rule, table, draft, target, uniforms, monkeypatch):
  """Verdict of one row with given uniforms ``[1, K]``, and the weights of its next token."""
  distributions = []
  with monkeypatch.context() as patch:
    patch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(uniforms))
    patch.setattr(sampling, "inverse_cdf", lambda weights, u: distributions.append(weights) or jnp.argmax(weights, -1))
    verdict = rule(table, rng.row_keys(jax.random.key(0), 1), draft, target)
  return verdict, distributions[0]


@pytest.mark.slow
def test_golden_walks(monkeypatch):
  """Whole trees with the stored uniforms: path length and distribution of the next token."""
  file = golden.load("tree_accept_sampling")
  table, lengths = jnp.asarray(file["neighbours"], jnp.int32), []
  for case in range(int(file["n_cases"])):
    get = lambda name, case=case: file[f"d{case}_{name}"]
    *setting, top_k = get("lantern_k_delta_topk")
    tokens, rows = get("draft_tokens"), get("retrieve_indices")
    parents = np.full(len(tokens), -1)
    for row in rows:
      row = row[row >= 0]
      parents[row[1:]] = row[:-1]
    draft = _draft(tokens[None, 1:], parents[None, 1:] - 1)
    target = jaxspec.Warp(top_k=int(top_k))(jnp.asarray(get("target_logits")), jaxspec.sampling_params())[None]
    # The released code draws uniforms in the order of its tests; ours belong to nodes.
    uniforms, at = np.full((1, len(tokens) - 1), 0.5, np.float32), -1
    trace = get("trace_level_token_px_accept_r")
    for _, token, mass, _, uniform in trace[~np.isnan(trace[:, 0])]:
      children = np.flatnonzero(np.asarray(draft.parents[0]) == at)
      node = next(i for i in children if tokens[1 + i] == token)
      uniforms[0, node] = uniform
      at = node if uniform <= mass else at
    rule = tree_rule(lantern_tree(_rule(*setting)))
    verdict, distribution = _decide(rule, table, draft, target, uniforms, monkeypatch)
    lengths.append(int(verdict.num_accepted[0]))
    assert lengths[-1] == int(get("accept_length")), case
    np.testing.assert_allclose(distribution[0] / distribution[0].sum(), get("next_prob"), atol=1e-5)
  assert len(lengths) == 24 and max(lengths) > 1


@pytest.mark.slow
def test_a_repeated_candidate_is_not_accepted_by_borrowing():
  """An additive bound lends to a token of probability 0, but a copy of a rejected candidate stays rejected."""
  table = neighbour_table(CODES, V - 1, normalise=False)
  target = jnp.log(jnp.asarray([[[0.4, 0.2, 0.2, 0.2]]], jnp.float32))
  draft = _draft(np.asarray([[0, 0]]), [[-1, -1]])
  rule = lantern_tree(LanternRule(1, 0.3))
  candidates = jaxspec.rules.tree_rule.candidates_of(draft)
  prob = rule.accept_prob(table, candidates, jnp.repeat(target, 3, axis=1))
  np.testing.assert_allclose(prob, [[0.6, 0.0]], atol=1e-6)
