"""The audit of a decode: it changes no token, judges exactly the drafted positions, and agrees with the enumeration."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxspec
from jaxspec.core.types import Draft, ModelFns, ModelOutput
from jaxspec.drafters.jacobi_drafter import JacobiDrafter
from jaxspec.evaluation.audit import summarize_audit
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules import tree_rule
from jaxspec.rules.audited import TokenAudit
from jaxspec.rules.distances import distance_table, neighbour_table
from jaxspec.rules.exact_distribution import exact_distribution, exact_tree_distribution
from jaxspec.rules.gsd_rule import GsdRule
from jaxspec.rules.lantern_rule import lantern_plus_plus
from jaxspec.rules.scaled_rule import ScaledRule
from jaxspec.statistics import FEWEST_CLUSTERS
from jaxspec.testing import enumeration
from jaxspec.verifiers.target import target_logits
from tests.helpers import labels, markov_fns, side, slow_but

V = 5


def _markov_params(seed, scale=1.5):
  generator = np.random.default_rng(seed)
  tables = [jnp.asarray(scale * generator.normal(size=(V + 1, V)), jnp.float32) for _ in range(2)]
  return jaxspec.SpecParams(*(side(table) for table in tables))


@pytest.mark.slow
def test_audit_judges_the_drafted_positions_and_no_others():
  """Figures of positions with judged drafts; 0 elsewhere."""
  fns, params = markov_fns(V), _markov_params(0)
  drafter = jaxspec.SmallModelDrafter(fns, window=3, warp=jaxspec.Warp())
  verifier = jaxspec.TargetVerifier(fns, jaxspec.audited(ScaledRule(2.0)), warp=jaxspec.Warp())
  found = jaxspec.speculate(params, jax.random.key(0), labels(6), drafter=drafter, verifier=verifier, max_len=9)
  audit = found.metrics
  chex.assert_shape(list(audit), (6, 9))
  judged = np.isin(found.origin, [jaxspec.Origin.DRAFT, jaxspec.Origin.REPLACED])
  np.testing.assert_array_equal(audit.tested, judged)
  for leaf in audit[1:]:
    assert (np.asarray(leaf)[~judged] == 0).all()

  # The distributions depend on the previous token only and are known tables, so the figures can be looked up.
  p, q = (jax.nn.softmax(params_of.model[:V]) for params_of in (params.target, params.draft))
  expected = _distribution(ScaledRule(2.0), (), p, q)
  before = np.asarray(found.tokens)[:, :-1]
  for name in ("tv", "kl", "alpha", "alpha_sd", "excess"):
    looked_up = np.where(judged[:, 1:], np.asarray(getattr(expected, name))[before], 0.0)
    np.testing.assert_allclose(np.asarray(getattr(audit, name))[:, 1:], looked_up, atol=2e-6)

  figures = summarize_audit(audit, found.lengths, found.counters.target_calls)
  assert figures.tv.low <= figures.tv.value <= figures.tv.high
  assert figures.tokens_per_call.value == pytest.approx(54 / int(found.counters.target_calls.sum()))
  assert figures.alpha.value == pytest.approx(float(np.asarray(audit.alpha)[judged].mean()), abs=1e-6)
  assert float(audit.tv[figures.worst]) == float(audit.tv.max())


def _audit(generator, images, judged=True):
  """Figures of random positions; the rounding of float32 takes some out of range."""
  shape = (images, 12)
  tv = 0.1 * generator.random(shape)
  alpha = np.clip(generator.normal(0.8, 0.2, shape), 0.0, 1.0) + 1e-7
  return TokenAudit(np.full(shape, judged), alpha * judged, alpha * judged, tv, tv**2 - 1e-9, tv)


def test_figures_have_intervals_over_prompts():
  """Images of one prompt are one cluster; a few clusters have no interval; without judged drafts there is no share."""
  audit, calls, full = _audit(np.random.default_rng(0), 8), np.arange(4, 12), lambda rows: np.full(rows, 12)
  found = summarize_audit(audit, full(8), calls)
  for figure in found[:-1]:
    assert 0 <= figure.low < figure.value < figure.high
  assert found.alpha.high <= 1
  repeated = TokenAudit(*(np.repeat(leaf, 4, axis=0) for leaf in audit))
  width = lambda figure: figure.high - figure.low
  by_prompt = summarize_audit(repeated, full(32), np.repeat(calls, 4), prompts=np.repeat(np.arange(8), 4))
  by_image = summarize_audit(repeated, full(32), np.repeat(calls, 4))
  for name in ("tokens_per_call", "tv", "kl", "alpha"):
    assert width(getattr(by_prompt, name)) == pytest.approx(width(getattr(found, name)), rel=1e-6)
    assert width(getattr(by_image, name)) < 0.6 * width(getattr(by_prompt, name))
  one_prompt = summarize_audit(repeated, full(32), np.repeat(calls, 4), prompts=np.zeros(32))
  assert one_prompt.tv == by_image.tv
  for few in (1, 2, FEWEST_CLUSTERS - 1):
    alone = summarize_audit(TokenAudit(*(leaf[:few] for leaf in audit)), full(few), calls[:few])
    assert alone.tv.value > 0 and all(np.isnan([figure.low, figure.high]).all() for figure in alone[:-1])
  unjudged = lambda rows: summarize_audit(_audit(np.random.default_rng(1), rows, judged=False), full(rows), calls[:rows])
  assert unjudged(8).alpha == (0.0, 0.0, 1.0)
  assert unjudged(3).alpha.value == 0 and np.isnan(unjudged(3).alpha[1:]).all()
  infinite = audit._replace(kl=np.where(np.arange(12) == 3, np.inf, audit.kl))
  assert np.isinf(summarize_audit(infinite, full(8), calls).kl.value)


def test_an_audit_with_nan_is_refused():
  audit = TokenAudit(*(np.full((2, 3), np.nan) for _ in TokenAudit._fields))
  with pytest.raises(ValueError, match="Must have finite logits of the target, we instead got NaN"):
    summarize_audit(audit, np.full(2, 3), np.ones(2))


def test_intervals_of_bounded_figures_stay_within_their_bounds():
  """Also with a single dominant prompt, on both sides; equal figures give a single point."""
  apart = np.r_[1.0, np.zeros(FEWEST_CLUSTERS - 1)][:, None] * np.ones((1, 12))
  for tv in (apart, 1 - apart):
    found = summarize_audit(TokenAudit(tv > -1, tv, tv, tv, tv, tv), np.full(len(tv), 12), np.full(len(tv), 12))
    for figure in (found.tv, found.excess, found.alpha):
      assert 0 <= figure.low < figure.value < figure.high <= 1
  same = np.full_like(apart, 1e-7)
  found = summarize_audit(TokenAudit(same > 0, same, same, same, same, same), np.full(len(same), 12), np.full(len(same), 12))
  assert found.tv == pytest.approx((1e-7,) * 3) and found.alpha.high > found.alpha.value


def test_what_stands_after_the_end_of_a_text_is_not_counted():
  """Rows of 2 to 12 tokens, 2 per call; means are over drawn tokens."""
  lengths = np.array([2, 4, 6, 8, 10, 12])
  drawn = np.arange(12)[None] < lengths[:, None]
  audit = TokenAudit(drawn, *(value * drawn for value in (0.5, 0.4, 0.3, 0.2, 0.1)))
  found = summarize_audit(audit, lengths, lengths // 2)
  assert found.tokens_per_call == pytest.approx((2.0,) * 3) and found.tv == pytest.approx((0.3,) * 3)
  assert found.kl.value == pytest.approx(0.2) and found.excess.value == pytest.approx(0.1)
  assert found.alpha.value == pytest.approx(0.5) and found.alpha_sd.value == pytest.approx(0.4)


distributions = st.lists(st.floats(0.0, 1.0, width=32), min_size=V, max_size=V).filter(lambda x: sum(x) > 0.1)
normal = lambda x: jnp.asarray(np.asarray(x) / np.sum(x), jnp.float32)
_distribution = jax.jit(exact_distribution, static_argnums=0)


NEIGHBOURS = jnp.asarray([[1, 2], [0, 2], [3, 1], [2, 4], [3, 0]], jnp.int32)


@settings(max_examples=40, deadline=None)
@given(distributions, distributions)
def test_no_rule_escapes_the_bound(p, q):
  """A lossless rule has TV 0. A relaxed rule has a TV of at least the acceptance gained, here the least possible."""
  p, q = normal(p), normal(q)
  exact = _distribution(jaxspec.lossless, (), p, q)
  assert float(exact.tv) < 1e-5 and abs(float(exact.alpha - exact.alpha_sd)) < 1e-6
  for rule, tables in ((ScaledRule(2.0), ()), (lantern_plus_plus(2, 3.0), NEIGHBOURS)):
    found = _distribution(rule, tables, p, q)
    assert float(found.tv) >= float(found.alpha - found.alpha_sd) - 1e-6
    assert abs(float(found.tv - found.excess)) < 1e-5


def _random_tree():
  tokens = jnp.asarray([[0, 2, 2, 1, 3], [4, 4, 1, 0, 0]], jnp.int32)
  parents = jnp.asarray([[-1, -1, 0, 0, 1], [-1, -1, -1, 2, 2]], jnp.int32)
  two = jnp.full((2,), 2, jnp.int32)
  draft = Draft.tree(tokens, parents, two, 0)
  return draft, jax.random.normal(jax.random.key(0), (2, 6, V)) * 2


@pytest.mark.slow
def test_exact_trees_have_the_distribution_of_the_target_at_every_node():
  """Nodes with children, leaves, repeated candidates, and truncated levels."""
  draft, target = _random_tree()
  nodes = jnp.asarray([[-1, 0, 1, 2, 4], [-1, 0, 1, 2, 4]])
  at_nodes = lambda draft: jax.vmap(
    lambda node: exact_tree_distribution(tree_rule.lossless_tree, (), draft, target, node), in_axes=1, out_axes=1
  )(nodes)
  distributions_at = jax.jit(at_nodes)
  p = jax.nn.softmax(target)[:, np.asarray(nodes[0]) + 1]
  for levels in (2, 1):
    distribution = distributions_at(draft._replace(num_drafted=jnp.full((2,), levels, jnp.int32)))
    np.testing.assert_allclose(distribution.distribution, p, atol=1e-6)
    np.testing.assert_allclose(distribution.alpha, distribution.alpha_sd, atol=1e-6)
    has_children = np.array([[1, levels > 1, levels > 1, 0, 0], [1, 0, 0, levels > 1, 0]], bool)
    np.testing.assert_array_equal(np.asarray(distribution.alpha) > 0, has_children)
  np.testing.assert_allclose(distribution.alpha[0, 0], p[0, 0, 0] + p[0, 0, 2], atol=1e-6)  # candidates 0 and 2
  np.testing.assert_allclose(distribution.alpha[1, 0], p[1, 0, 4] + p[1, 0, 1], atol=1e-6)  # candidates 4, 4 again, and 1


@pytest.mark.slow
def test_biased_trees_are_caught_and_audits_change_no_verdict():
  draft, target = _random_tree()
  always = tree_rule.TreeRule(tree_rule.CandidateRule(lambda *_: jnp.ones((2, 5)), tree_rule.remove_rejected))
  keys = jax.random.split(jax.random.key(1), 2)

  @jax.jit
  def judge(keys):
    return always((), keys, draft, target), jaxspec.audited(always)((), keys, draft, target)

  verdict, audit = judge(keys)
  chex.assert_trees_all_equal(verdict, audit._replace(metrics=()))
  chex.assert_shape(list(audit.metrics), (2, verdict.path.shape[1] + 1))
  np.testing.assert_array_equal(audit.metrics.tested[0], [True, True, False, False, False, False])
  chosen = jax.nn.softmax(target[:, 0])[jnp.arange(2), draft.tokens[:, 0]]
  np.testing.assert_allclose(audit.metrics.tv[:, 0], 1 - chosen, atol=1e-6)
  np.testing.assert_allclose(audit.metrics.kl[:, 0], -jnp.log(chosen), rtol=1e-5)


# --- enumeration -----------------------------------------------------------------------------------------------------

PAIR = enumeration.tiny_pair(3, vocab_size=3, num_tokens=4)
DRAFTERS = {
  "chain": enumeration.EnumeratedChain(PAIR, 2),
  "fresh": enumeration.EnumeratedJacobi(PAIR, 2, "fresh"),
  "coupled": enumeration.EnumeratedJacobi(PAIR, 3, "coupled"),
}
CODES = jnp.asarray(PAIR.codebook)
RULES = {
  "lossless": (jaxspec.lossless, ()),
  "scaled": (ScaledRule(2.0), ()),
  "gsd": (GsdRule(3, 0.4, 10.0), distance_table(CODES, source="codebook")),
  "lantern": (lantern_plus_plus(2, 3.0, residual="paper"), neighbour_table(CODES, 2)),
}


@pytest.mark.parametrize(
  ("drafter", "rule"),
  slow_but(
    [("chain", "scaled"), ("fresh", "scaled"), ("coupled", "lossless"), ("coupled", "gsd"), ("coupled", "lantern")],
    [("fresh", "scaled"), ("coupled", "gsd")],
  ),
)
def test_enumerated_decode_equals_the_closed_form(drafter, rule):
  rule, tables = RULES[rule]
  found = enumeration.enumerate_decode(PAIR.target, DRAFTERS[drafter], rule, tables)
  figures = enumeration.summarize_enumeration(found, PAIR.target)
  for distribution in found.committed:
    assert distribution.sum() == pytest.approx(1.0, abs=1e-6)
  assert figures.distribution_error < 1e-5 and abs(figures.tv - figures.closed_form) < 1e-5
  gained = (figures.alpha - figures.alpha_sd) * found.mass.sum() / len(PAIR.target)
  assert figures.tv >= gained - 1e-6 and figures.prefix_tv <= figures.tv + 1e-6
  assert figures.sequence_tv <= figures.prefix_tv * len(PAIR.target) + 1e-6
  if rule == jaxspec.lossless:
    assert max(figures.tv, figures.worst_tv, figures.sequence_tv) < 1e-5
  else:
    assert figures.tv > 1e-4 and figures.worst_tv > figures.prefix_tv


def _table_fns(pair) -> ModelFns:
  """A network that looks up the distribution of the next token in its params; its cache is the tokens so far ``[B, S]``."""
  vocab, num_tokens = pair.vocab_size, pair.num_tokens
  starts = np.cumsum([0] + [vocab**t for t in range(num_tokens)])

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    rows = jax.tree.leaves(inputs)[0].shape[0]
    if isinstance(inputs, ClassLabels):
      return _output(jnp.broadcast_to(params[:1][None], (rows, 1, vocab))), cache
    row = jnp.arange(rows)[:, None]
    positions = jnp.broadcast_to(positions, inputs.shape)
    cache = cache.at[row, positions].set(inputs, mode="drop")  # position 1 is token 0
    tokens = jnp.where(jnp.arange(1, cache.shape[1])[None, None] <= positions[..., None], cache[:, None, 1:], 0)
    power = positions[..., None] - jnp.arange(1, cache.shape[1])[None, None]
    prefix = jnp.sum(tokens * jnp.where(power >= 0, vocab ** jnp.maximum(power, 0), 0), axis=-1)
    known = positions < num_tokens
    index = jnp.where(known, jnp.asarray(starts)[jnp.minimum(positions, num_tokens - 1)] + prefix, 0)
    logits = params[index]
    if logits_at is not None:
      logits = jnp.take_along_axis(logits, jnp.broadcast_to(logits_at, (rows,))[:, None, None], axis=1)
    return _output(logits), cache

  return ModelFns(
    init=lambda key: (),
    init_cache=lambda batch, max_len: jnp.zeros((batch, max_len + 1), jnp.int32),
    apply=apply,
    prefix_len=lambda condition: 1,
  )


def _output(logits):
  return ModelOutput(logits, logits)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["chain", "fresh", "coupled"])
def test_enumeration_predicts_what_the_loop_measures(drafter):
  """The same tiny model in the real loop: calls, accepted drafts, bias per token and the distribution of sequences."""
  pair, rows = PAIR, 4096
  rule, tables = ScaledRule(2.0), ()
  plan = DRAFTERS[drafter]
  found = enumeration.enumerate_decode(pair.target, plan, rule, tables)
  figures = enumeration.summarize_enumeration(found, pair.target)
  fns = _table_fns(pair)
  logits = lambda table: jnp.asarray(np.log(np.concatenate(table)), jnp.float32)
  feedback, warp = target_logits, jaxspec.Warp()
  if drafter == "chain":
    params = jaxspec.SpecParams(side(logits(pair.draft)), side(logits(pair.target)))
    made = jaxspec.SmallModelDrafter(fns, window=plan.window, warp=warp)
  else:
    params = jaxspec.SpecParams((), side(logits(pair.target)))
    made = JacobiDrafter(window=plan.window, vocab_size=pair.vocab_size, recycle=drafter)
  verifier = jaxspec.TargetVerifier(fns, jaxspec.audited(rule), warp=warp, feedback_fn=feedback)
  out = jaxspec.speculate(params, jax.random.key(1), labels(rows), drafter=made, verifier=verifier, max_len=pair.num_tokens)
  tv = np.asarray(out.metrics.tv).mean(1)
  assert abs(tv.mean() - figures.tv) < 4 * tv.std() / np.sqrt(rows)
  calls = np.asarray(out.counters.target_calls)
  assert abs(calls.mean() - found.calls) < 4 * calls.std() / np.sqrt(rows)
  code = np.ravel_multi_index(tuple(np.asarray(out.tokens).T), (pair.vocab_size,) * pair.num_tokens)
  observed = np.bincount(code, minlength=found.committed[-1].size)
  expected = rows * found.committed[-1].ravel()
  assert np.sum((observed - expected) ** 2 / expected) < observed.size + 4 * np.sqrt(2 * observed.size)


def test_a_rule_that_is_only_a_function_is_refused():
  with pytest.raises(ValueError, match="a ChainRule, a BlockRule or a TreeRule to audit, we instead got commit_leading"):
    jaxspec.audited(jaxspec.rules.lossless.commit_leading)
