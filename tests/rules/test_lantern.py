"""LANTERN's functions of one position against stored outputs of the released code: neighbours, distributions, tree walks.

The walks are written out here, candidate by candidate. Only the functions under test come from the library.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.rules.distances import neighbour_table
from jaxspec.rules.exact_distribution import exact_distribution
from jaxspec.rules.lantern_rule import LanternRule, lantern_plus_plus
from jaxspec.sampling.logit_processing import probabilities
from tests.rules import golden

_exact_distribution = jax.jit(exact_distribution, static_argnums=0)


def _rule(enabled, num_neighbours, delta, residual="compat"):
  """An acceptance rule from the released code's settings, where a delta above 1 is a ratio; off means no borrowing."""
  if not enabled:
    return LanternRule(1, 0.0, residual="optimal")
  return LanternRule(int(num_neighbours), float(delta), delta > 1, residual=residual)


def _cases(file, prefix):
  count = int(file["n_cases"])
  for index in range(count):
    start = f"{prefix}{index}_"
    yield {name.removeprefix(start): value for name, value in file.items() if name.startswith(start)}


@functools.partial(jax.jit, static_argnums=0)
def _judge_point(rule, table, token, distribution):
  return rule.accept_point(table, token, distribution), rule.after_point(table, token, distribution)


@functools.partial(jax.jit, static_argnums=0)
def _judge_sample(rule, table, token, distribution, proposal):
  return rule.accept_prob(table, token, distribution, proposal), rule.after_sample(table, token, distribution, proposal)


def test_golden_neighbours():
  case = golden.load("lantern_neighbours")
  codebook = jnp.asarray(case["codebook"])
  np.testing.assert_array_equal(neighbour_table(codebook, 63, normalise=False), case["neighbours"])
  np.testing.assert_array_equal(neighbour_table(codebook, 7, normalise=False), case["neighbours"][:, :7])
  # The lengths of rows matter only if rows are not normalised.
  longer = codebook * jnp.linspace(0.5, 2.0, 64)[:, None]
  np.testing.assert_array_equal(neighbour_table(longer, 9), neighbour_table(codebook, 9))
  assert (neighbour_table(longer, 9, normalise=False) != case["neighbours"][:, :9]).any()


@pytest.mark.slow
def test_golden_exact_distributions():
  """One candidate sampled from q, and four certain candidates one after the other."""
  case = golden.load("exact_law_lantern")
  table = jnp.asarray(case["neighbours"], jnp.int32)
  stats = [dict(zip(case["stats_names"], row)) for row in case["stats"]]
  settings = [(s["lantern"], s["k"], s["delta"]) for s in stats]
  p, q = probabilities(jnp.asarray(case["logits"])), jnp.asarray(case["q"], jnp.float32)
  seen = set()
  for setting in sorted(set(settings)):
    rows = np.array([row for row, other in enumerate(settings) if other == setting])
    rule = _rule(*setting)
    found = _exact_distribution(rule, table, p[rows], q[rows])
    np.testing.assert_allclose(found.distribution, case["law_sampled_single"][rows], atol=1e-6)
    np.testing.assert_allclose(found.alpha, [stats[row]["alpha_sampled_single"] for row in rows], atol=1e-6)
    np.testing.assert_allclose(found.tv, [stats[row]["tv_sampled_single"] for row in rows], atol=1e-6)

    distribution, left, here = np.zeros((rows.size, 40)), np.ones(rows.size), p[rows]
    for column in case["candidates"][rows].T:
      accept, after = _judge_point(rule, table, jnp.asarray(column, jnp.int32), here)
      distribution[np.arange(rows.size), column] += left * np.asarray(accept)
      left, here = left * (1 - np.asarray(accept, np.float64)), after
    np.testing.assert_allclose(1 - left, [stats[row]["accept_dynamic_four"] for row in rows], atol=1e-5)
    np.testing.assert_allclose(distribution + left[:, None] * np.asarray(here), case["law_dynamic_four"][rows], atol=1e-5)
    seen.update(rows)
  assert len(seen) == len(settings) == 15


class _Walk:
  """Descends a tree of candidates and records the tests for comparison with the stored trace."""

  def __init__(self, tokens, rows, uniforms):
    self.tokens, self.rows, self.uniforms = tokens, rows, iter(uniforms)
    self.paths = np.where(rows >= 0, tokens[rows], -1)
    self.trace = []

  def run(self, distributions, judge):
    """``judge(token, earlier, row, depth, distribution)`` gives (accept, distribution if rejected), or None to skip a
    child.
    """
    level, best, accepted = 1, 0, [self.tokens[0]]
    while level < self.rows.shape[1]:
      agree = [row for row in range(len(self.rows)) if list(self.paths[row, :level]) == accepted]
      distribution, earlier, found = distributions[self.rows[agree[0], level - 1]], [], False
      for row in agree:
        token = int(self.paths[row, level])
        if token < 0 or token in earlier:
          continue
        verdict = judge(token, earlier, row, level, distribution)
        if verdict is None:
          continue
        earlier = [*earlier, token]
        uniform = next(self.uniforms)
        self.trace.append((level, token, float(verdict[0])))
        if uniform <= verdict[0]:
          accepted.append(token)
          best, found = row, True
          break
        distribution = np.asarray(verdict[1])
      if not found:
        return best, level - 1, distribution if earlier else distributions[self.rows[best, level - 1]]
      level += 1
    return best, level - 1, distributions[self.rows[best, level - 1]]


def _compare(walk, result, case, column):
  best, length, distribution = result
  stored = case["trace_level_token_px_accept_r"]
  stored = stored[~np.isnan(stored[:, 0])]
  np.testing.assert_array_equal([entry[:2] for entry in walk.trace], stored[:, :2])
  np.testing.assert_allclose([min(entry[2], 1) for entry in walk.trace], np.minimum(stored[:, column], 1), atol=1e-5)
  assert (best, length) == (case["best_row"], case["accept_length"])
  np.testing.assert_allclose(distribution, case["next_prob"], atol=1e-5)


def test_golden_walks_over_certain_candidates():
  file = golden.load("tree_accept_sampling")
  table = jnp.asarray(file["neighbours"], jnp.int32)
  lengths = []
  for case in _cases(file, "d"):
    *setting, top_k = case["lantern_k_delta_topk"]
    rule = _rule(*setting)
    logits = jaxspec.Warp(top_k=int(top_k))(jnp.asarray(case["target_logits"]), jaxspec.sampling_params())
    walk = _Walk(case["draft_tokens"], case["retrieve_indices"], case["uniforms"])

    def judge(token, earlier, row, depth, distribution, rule=rule):
      return _judge_point(rule, table, jnp.int32(token), jnp.asarray(distribution))

    result = walk.run(np.asarray(probabilities(logits)), judge)
    _compare(walk, result, case, 2)
    lengths.append(result[1])
  assert max(lengths) > 1 and min(lengths) == 0


@pytest.mark.slow
def test_golden_walks_over_sampled_children():
  """Static trees: children drawn without replacement, judged against their conditional proposal."""
  file = golden.load("static_tree_accept")
  buffers = golden.load("static_tree_buffers")
  table = jnp.asarray(file["neighbours"], jnp.int32)
  lengths = []
  for case in _cases(file, "s"):
    tree, rule = str(case["tree"]), _rule(*case["lantern_k_delta"])
    parents = buffers[f"{tree}_p_indices"]
    walk = _Walk(case["tree_tokens"], buffers[f"{tree}_retrieve_indices"], case["uniforms"])

    def judge(token, earlier, row, depth, distribution, case=case, parents=parents, rule=rule):
      if case["paths_prob"][row, depth] <= 0:
        return None
      proposal = case[f"draft_prob_level{depth - 1}"][parents[row, depth]].astype(np.float64)
      proposal[earlier] = 0
      proposal /= proposal.sum()
      np.testing.assert_allclose(proposal[token], case["paths_prob"][row, depth], atol=1e-5)
      return _judge_sample(rule, table, jnp.int32(token), jnp.asarray(distribution), jnp.asarray(proposal, jnp.float32))

    result = walk.run(np.asarray(probabilities(jnp.asarray(case["target_logits"]))), judge)
    _compare(walk, result, case, 3)
    lengths.append(result[1])
  assert len(lengths) == 8 and max(lengths) > 1


def test_golden_greedy_walks():
  file = golden.load("tree_accept_greedy")
  table = jnp.asarray(file["neighbours"], jnp.int32)
  accept = jax.jit(lambda rule, token, distribution: rule.accept_greedily(table, token, distribution), static_argnums=0)
  lengths = []
  for case in _cases(file, "g"):
    rule, rows = _rule(*case["lantern_k_delta"]), case["retrieve_indices"]
    distributions, tokens = probabilities(jnp.asarray(case["target_logits"])), case["draft_tokens"]
    kept = np.zeros(rows.shape[0], int)
    for row, path in enumerate(rows):
      for parent, node in zip(path, path[1:]):
        if node < 0 or not accept(rule, jnp.int32(tokens[node]), distributions[parent]):
          break
        kept[row] += 1
    best = int(np.argmax(kept))
    assert (best, kept[best]) == (case["best_row"], case["accept_length"])
    np.testing.assert_array_equal(case["target_logits"][rows[best, kept[best]]], case["next_logits"])
    lengths.append(kept[best])
  assert len(set(lengths)) > 1


def test_additive_bound_does_not_bound_the_bias():
  """With p on m codes, q on their nearest codes and delta = 1/m, every draft is accepted and q is emitted."""
  m = 20
  pairs = np.concatenate([np.arange(m) + m, np.arange(m)])  # code i and i + m are each other's nearest
  others = np.stack([[y for y in range(2 * m) if y not in (x, pairs[x])] for x in range(2 * m)])
  table = jnp.asarray(np.concatenate([pairs[:, None], others], 1), jnp.int32)
  p, q = np.repeat([1.0, 0.0], m) / m, np.repeat([0.0, 1.0], m) / m
  found = _exact_distribution(LanternRule(1, 0.0501), table, jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32))
  assert float(found.alpha) == pytest.approx(1.0, abs=1e-5) and float(found.tv) == pytest.approx(1.0, abs=1e-5)
  # A ratio cannot raise a token of target probability 0.
  other = _exact_distribution(lantern_plus_plus(1, 5.0), table, jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32))
  assert float(other.alpha) == 0.0 and float(other.tv) == pytest.approx(0.0, abs=1e-6)


def test_relaxed_ratio_stays_below_the_factor():
  table = jnp.asarray(golden.load("lantern_neighbours")["neighbours"], jnp.int32)
  p = probabilities(jnp.asarray(np.random.default_rng(0).normal(size=(64,)), jnp.float32))
  mass = jax.jit(lantern_plus_plus(10, 3.0).relax)(table, jnp.broadcast_to(p, (64, 64)), jnp.arange(64)).mass
  lifted = np.asarray(mass / p)
  assert (lifted >= 1).all() and (lifted <= 3 + 1e-5).all() and (lifted > 1.5).any()


@pytest.mark.slow
def test_after_a_certain_candidate():
  """The distribution after its candidate was rejected, for the three residuals."""
  table = jnp.asarray([[1, 2, 3], [0, 2, 3], [3, 1, 0], [2, 1, 0]], jnp.int32)
  p, x = jnp.asarray([0.5, 0.1, 0.2, 0.2], jnp.float32), jnp.int32(0)
  left = {name: LanternRule(1, 0.15, residual=name).after_point(table, x, p) for name in ("optimal", "paper", "compat")}
  np.testing.assert_allclose(left["optimal"], [0, 0.2, 0.4, 0.4], atol=1e-6)
  np.testing.assert_allclose(left["paper"], [0, 0, 0.5, 0.5], atol=1e-6)
  np.testing.assert_allclose(left["compat"], [0, 0, 0, 1], atol=1e-6)
  wide = LanternRule(3, 0.15, residual="compat").after_point(table, x, p)
  np.testing.assert_allclose(wide, 0.25, atol=1e-6)  # nothing left: uniform


def test_settings_and_tables_out_of_range():
  for wrong in (dict(num_neighbours=0), dict(bound=-0.1), dict(bound=0.5, relative=True), dict(residual="code")):
    with pytest.raises(ValueError, match="Must have"):
      LanternRule(**wrong)
  narrow = jnp.zeros((9, 3), jnp.int32)
  p = jnp.full((9,), 1 / 9)
  with pytest.raises(ValueError, match="Must have a table of 5 neighbours"):
    LanternRule(5, 0.1).accept_point(narrow, jnp.int32(0), p)
  for columns in (0, 9):
    with pytest.raises(ValueError, match="Must have between 1 and 8"):
      neighbour_table(jnp.zeros((9, 2)), columns)
