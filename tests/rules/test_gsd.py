"""GSD against stored outputs of the released code, and its edge cases one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng
from jaxspec.rules import chain_rule
from jaxspec.rules.distances import DistanceTable
from jaxspec.rules.exact_distribution import exact_distribution
from jaxspec.rules.gsd_rule import GsdRule, gsd_released
from tests.rules import golden


def _table(values):
  return DistanceTable(jnp.asarray(values), "embedding", 2)


def _released(case):
  return gsd_released(int(case["G"]), float(case["delta"]), float(case["d"]))


@jax.jit
def _groups(table, tokens, p, q):
  """Window, group and acceptance of positions with one table each."""
  rule = gsd_released()

  def position(table, token, p, q):
    members, inside, rank = rule.window_of(token, p)
    return members, inside, rank, rule.group_of(table, token, p).kept, rule.accept_prob(table, token, p, q)

  return jax.vmap(position)(table, tokens, p, q)


def test_golden_groups():
  case = golden.load("gsd_group")
  assert _released(case) == gsd_released()
  order = case["sort_asc"]
  p, q = golden.in_order(order, case["p"], case["q"])
  table = _table(golden.table_in_order(order, case["Md"]))
  members, inside, rank, kept, accept = map(np.asarray, _groups(table, jnp.asarray(case["rank"], jnp.int32), p, q))
  np.testing.assert_array_equal(rank, case["rank"])
  np.testing.assert_allclose(accept, case["accept_prob"], atol=1e-6)

  # Our members are seven tokens below in descending order, then six above; theirs ascend, with the token itself in between.
  own = np.ones_like(inside[:, :1])
  upwards = lambda x, middle: np.concatenate([x[:, 6::-1], middle, x[:, 7:]], axis=1)
  ids = np.take_along_axis(order, upwards(members, case["rank"][:, None]), axis=1)
  empty = case["token_fallback"][:, None]
  window = np.where(upwards(inside, own), ids, -1)
  np.testing.assert_array_equal(np.where(empty, -1, window), case["window"])
  np.testing.assert_array_equal(upwards(kept, own) & ~empty, case["member"] == 1)
  assert set(case["case"][empty[:, 0]]) and not empty.all()

  residual = chain_rule.lossless_weights(None, case["p"], case["q"])
  total = residual.sum(-1, keepdims=True)
  np.testing.assert_allclose(np.where(total > 1e-6, residual / np.maximum(total, 1e-6), 0), case["residual"], atol=1e-6)


def test_golden_windows_of_drafts(monkeypatch):
  """Fifteen drafts in a row: acceptance of every position, number of accepted drafts, distribution of the replacement."""
  case = golden.load("gsd_verify_window")
  assert _released(case) == gsd_released()
  rows, window = 10, 15
  flat = lambda x: x.reshape(rows * window, *x.shape[2:])
  order = flat(case["sort_asc"][:, :-1])
  p, q = golden.in_order(order, flat(case["target_prob"][:, :-1]), flat(case["draft_prob"][:, 1:]))
  tokens = case["draft_tokens"][:, 1:].astype(np.int32)
  position = np.argmax(order == flat(tokens)[:, None], axis=-1).astype(np.int32)
  accept = np.asarray(_groups(_table(golden.table_in_order(order, case["Md"])), position, p, q)[-1]).reshape(rows, window)
  judged = ~np.isnan(case["accept_prob"][:, 1:])
  assert judged.sum() > 40
  np.testing.assert_allclose(accept[judged], case["accept_prob"][:, 1:][judged], atol=1e-6)

  monkeypatch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(case["u_draft"][:, 1:]))
  monkeypatch.setattr(rng, "final_uniform", lambda keys: jnp.full((rows,), 0.5))
  full = jnp.full((rows,), window, jnp.int32)
  logits = jnp.log(jnp.asarray(case["draft_prob"][:, 1:]))
  draft = jaxspec.Draft.chain(jnp.asarray(tokens), logits, full, 0)

  @jax.jit
  def judge(keys, draft, logits, accept):
    seen = {}

    def residual_fn(token, p, q):
      seen["token"], seen["weights"] = token, chain_rule.lossless_weights(token, p, q)
      return seen["weights"]

    return chain_rule.commit_leading(keys, draft, logits, accept_prob=accept, residual_fn=residual_fn), seen

  keys = rng.row_keys(jax.random.key(0), rows)
  verdict, seen = judge(keys, draft, jnp.asarray(case["target_logits"]), jnp.asarray(accept))
  kept = np.asarray(verdict.num_accepted)
  np.testing.assert_array_equal(kept + 1, case["n_matched"])
  rejected = case["rejected"]
  np.testing.assert_array_equal(kept < window, rejected)
  weights = np.asarray(seen["weights"])[rejected]
  np.testing.assert_allclose(weights / weights.sum(-1, keepdims=True), case["residual"][rejected], atol=1e-5)
  np.testing.assert_array_equal(np.asarray(seen["token"])[rejected], tokens[rejected, kept[rejected]])
  middle = np.argmax(np.cumsum(case["residual"], -1) > 0.5, axis=-1)
  np.testing.assert_array_equal(np.asarray(verdict.next_tokens[:, 0])[rejected], middle[rejected])
  for row in range(rows):
    out, n = case["out_tokens"][row], kept[row]
    np.testing.assert_array_equal(out[:n], tokens[row, :n])
    assert (out[n] == -1) == rejected[row]


@pytest.mark.parametrize("max_rule", [False, True])
def test_golden_exact_distribution(max_rule):
  case = golden.load("exact_law_gsd")
  order = case["sort_asc"].astype(np.int64)
  p, q, distribution, accept = golden.in_order(order, case["p"], case["q"], case["output_law"], case["accept_prob"])
  rule = dataclasses.replace(_released(case), max_rule=max_rule)
  table = _table(golden.table_in_order(order, case["Md"]))
  cast = lambda x: jnp.asarray(x, jnp.float32)
  found = jax.jit(jax.vmap(lambda table, p, q: exact_distribution(rule, table, p, q)))(table, cast(p), cast(q))
  figures = dict(zip(case["stats_names"], case["stats"].T))
  np.testing.assert_allclose(found.alpha_sd, figures["alpha_sd"], atol=1e-6)
  if max_rule:
    np.testing.assert_allclose(found.alpha, figures["alpha_max_rule"], atol=1e-6)
    np.testing.assert_allclose(found.tv, figures["tv_max_rule"], atol=1e-6)
    np.testing.assert_allclose(found.tv, found.alpha - found.alpha_sd, atol=2e-6)  # the least possible
    return
  known = ~np.isnan(accept)
  np.testing.assert_allclose(np.asarray(found.accept)[known], accept[known], atol=1e-5)
  np.testing.assert_allclose(found.distribution, distribution, atol=1e-6)
  np.testing.assert_allclose(found.alpha, figures["alpha_gsd"], atol=1e-6)
  np.testing.assert_allclose(found.tv, figures["tv_output_p"], atol=1e-6)
  better = figures["alpha_gsd"] >= figures["alpha_sd"]
  np.testing.assert_allclose(np.asarray(found.excess)[better], figures["sum_excess_formula"][better], atol=1e-6)


# A small vocabulary in ascending order, so that ids are ranks; every distance is 0.
P = np.array([0.0, 0.0, 0.02, 0.04, 0.08, 0.16, 0.3, 0.4], np.float32)
Q = np.array([0.05, 0.05, 0.1, 0.2, 0.3, 0.1, 0.1, 0.1], np.float32)
_NEAR = _table(np.zeros((8, 8), np.float32))


_accept_prob = jax.jit(lambda rule, *given: rule.accept_prob(*given), static_argnums=0)


def _accept(rule, token, p=P, q=Q, table=_NEAR):
  return float(_accept_prob(rule, table, jnp.int32(token), jnp.asarray(p), jnp.asarray(q)))


def _expected(group, p=P, q=Q):
  return min(1.0, p[group].sum(dtype=np.float64) / q[group].sum(dtype=np.float64))


@pytest.mark.slow
@pytest.mark.parametrize(
  "settings,token,group",
  [
    (dict(), 4, [2, 3, 4, 5]),  # half-open: two below, one above
    (dict(window="centered"), 4, [2, 3, 4, 5, 6]),
    (dict(), 7, [5, 6, 7]),  # truncated at the top
    (dict(), 3, [2, 3, 4]),  # removed tokens stay out
    (dict(support="compat"), 3, [1, 2, 3, 4]),
    (dict(edge="compat"), 3, [2, 3, 4]),  # rank 3 is not below G//2
    (dict(support="compat", edge="compat"), 1, [1]),  # rank 1 is: the token alone
    (dict(support="compat"), 1, [0, 1, 2]),  # outside the support, but accepted with some probability
    (dict(max_gap=0.0401), 4, [3, 4]),
    (dict(group_size=5), 4, [2, 3, 4, 5]),  # G//2 on both counts
    (dict(group_size=1), 4, [4]),
    (dict(group_size=100), 4, [2, 3, 4, 5, 6, 7]),
  ],
)
def test_groups_at_the_edges(settings, token, group):
  rule = GsdRule(**{**dict(group_size=4, max_gap=0.5, max_rule=False), **settings})
  assert _accept(rule, token) == pytest.approx(_expected(group), abs=1e-6)
  every = rule.accept_all(_NEAR, jnp.asarray(P), jnp.asarray(Q))
  assert float(every[token]) == pytest.approx(_expected(group), abs=1e-6)


@pytest.mark.slow
def test_outside_the_support_is_rejected_unless_asked_otherwise():
  rule = GsdRule(4, 0.5, max_rule=False)
  assert _accept(rule, 1) == 0.0
  assert _accept(GsdRule(4, 0.5, max_rule=False, support="compat"), 1) > 0.0


def test_a_proposal_without_mass_on_the_group():
  """Such a draft is impossible in exact arithmetic. It is accepted where the target has mass, else rejected as in the
  released code (NaN).
  """
  q = np.array([0.5, 0.5, 0, 0, 0, 0, 0, 0], np.float32)
  assert _accept(GsdRule(2, 0.5), 5, q=q) == 1.0
  assert _accept(GsdRule(2, 0.5, support="compat", max_rule=False), 5, q=q) == 0.0


def test_ties_go_by_ascending_id():
  p = np.full(8, 0.125, np.float32)
  q = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05], np.float32)
  rule = GsdRule(4, 1.0, max_rule=False)
  for token, group in ((3, [1, 2, 3, 4]), (0, [0, 1])):
    assert _accept(rule, token, p, q) == pytest.approx(_expected(group, p, q), abs=1e-6)


def test_distance_filter_reads_the_row_of_the_draft():
  far = np.zeros((8, 8), np.float32)
  far[4, 3] = 0.5  # not below the threshold
  rule = GsdRule(4, 0.5, 0.5, max_rule=False)
  assert _accept(rule, 4, table=_table(far)) == pytest.approx(_expected([2, 4, 5]), abs=1e-6)
  assert _accept(rule, 5, table=_table(far)) == pytest.approx(_expected([3, 4, 5, 6]), abs=1e-6)


def test_settings_out_of_range_are_errors():
  wrong = dict(group_size=0), dict(max_gap=-1.0), dict(window="wide"), dict(edge="?"), dict(residual="compat")
  for settings in wrong:
    with pytest.raises(ValueError, match="Must have"):
      GsdRule(**settings)
  assert hash(GsdRule(14)) == hash(GsdRule()) and GsdRule(14) == GsdRule()
