"""Losslessness is shown twice: by enumeration of the compiled loop's output distribution, and by a seeded chi-square test.

Enumeration: the distribution of a finite program is exact when every uniform it draws is replaced by all cell midpoints of a
grid on which the program is constant. With target and draft probabilities in quarters, every threshold (inverse CDFs,
acceptance ratios, residuals) is a multiple of 1/12, so 12 midpoints per draw give the distribution exactly.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec import testing
from jaxspec.core import rng, rounds
from jaxspec.models.conditions import ClassLabels
from tests.helpers import labels, markov_fns, markov_joint, side, tiny_pair

V = 3
GRID = (np.arange(12) + 0.5) / 12
QUARTERS = [np.array(c) / 4 for c in itertools.product(range(5), repeat=V) if sum(c) == 4]


def _quarter_tables(seed):
  generator = np.random.default_rng(seed)
  table = lambda: np.stack([QUARTERS[generator.integers(len(QUARTERS))] for _ in range(V + 1)])
  return table(), table()


def _markov(p, q, window):
  fns = markov_fns(V)
  log = lambda x: jnp.log(jnp.asarray(x, jnp.float32))
  params = jaxspec.SpecParams(side(log(q)), side(log(p)))
  drafter = jaxspec.SmallModelDrafter(fns, window=window, warp=jaxspec.Warp())
  return params, dict(drafter=drafter, verifier=jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp()))


CELLS = np.stack(np.meshgrid(*[GRID] * 5, indexing="ij"), -1).reshape(-1, 5).astype(np.float32)
FIRST = 1  # the token before the round


@pytest.fixture(scope="module")
def one_round():
  """Committed tokens and their number after a round of two drafts that draws all cells; one program for all tables."""

  def run(params):
    kwargs = _markov(*_quarter_tables(0), window=2)[1]
    condition = ClassLabels(jnp.zeros((len(CELLS),), jnp.int32))
    state = rounds.start(params, jax.random.key(0), condition, max_len=4, **kwargs)
    cursor = state.draft_side.cursor._replace(last=jnp.full((len(CELLS),), FIRST, jnp.int32))
    edge = state.draft_side.replace(cursor=cursor)
    columns = iter([CELLS[:, 0:2], CELLS[:, 2:4]])
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(next(columns)))
      patch.setattr(rng, "final_uniform", lambda keys: jnp.asarray(CELLS[:, 4]))
      done = rounds.decode_round(params, state.replace(draft_side=edge), **kwargs).draft_side
    return done.tokens, done.cursor.length

  return jax.jit(run)


@pytest.mark.slow
@pytest.mark.long_runs
@pytest.mark.parametrize("seed", range(4))
def test_enumerated_distribution_of_one_round_of_two_drafts(seed, one_round):
  """The next three tokens after a first one: a round of two drafts, continued by the target's own distribution."""
  p, q = _quarter_tables(seed + 10)
  tokens, length = map(np.asarray, one_round(_markov(p, q, window=2)[0]))
  gained, tokens, rows = length - 1, tokens[:, 1:], len(CELLS)

  distribution = np.zeros((V,) * 3)
  for count in (1, 2, 3):
    codes = np.ravel_multi_index(tuple(tokens[gained == count, :count].T), (V,) * count)
    for head, n in np.ndenumerate(np.bincount(codes, minlength=V**count).reshape((V,) * count)):
      tail = np.ones(())
      if count < 3:
        tail = markov_joint(np.vstack([p[:-1], p[head[-1]]]), 3 - count)
      distribution[head] += n / rows * tail
  exact = markov_joint(np.vstack([p[:-1], p[FIRST]]), 3)
  error = np.abs(distribution - exact).max()
  assert error < 1e-5, error


@pytest.mark.slow
@pytest.mark.long_runs
@pytest.mark.parametrize(
  "warp,sampling,scale",
  [
    (jaxspec.Warp(top_k=4), dict(temperature=0.7), 2.0),
    (jaxspec.Warp(top_k=9, nucleus=True), dict(top_p=0.8), None),
  ],
)
def test_chi_square_of_joint_pairs_on_transformers(warp, sampling, scale):
  """Compares the joint distribution of tokens (0, 1, 2) of a random transformer pair with plain decoding of its target."""
  rows = 16384
  params, drafter, verifier = tiny_pair(guided=scale is not None, warp=warp, layers=2, **sampling)
  same_prompt = ClassLabels(jnp.ones((rows,), jnp.int32))
  kwargs = dict(verifier=verifier, max_len=4)
  fast = jaxspec.speculate(params, testing.fast_keys(11, rows), same_prompt, drafter=drafter, **kwargs)
  plain = jaxspec.autoregress(params, testing.fast_keys(12, rows), same_prompt, **kwargs)
  code = lambda out: np.ravel_multi_index(tuple(np.asarray(out.tokens[:, 1:]).T), (13,) * 3)
  a, b = np.bincount(code(fast), minlength=13**3), np.bincount(code(plain), minlength=13**3)
  big = (a + b) >= 20
  table = np.array([np.append(a[big], a[~big].sum()), np.append(b[big], b[~big].sum())])
  table = table[:, table.sum(0) > 0]
  p_value = stats.chi2_contingency(table).pvalue
  assert p_value > 0.01, p_value
  assert table.shape[1] > 20


@pytest.mark.slow
def test_draft_and_target_without_common_support_reject_every_draft():
  """Top-k sets that do not overlap: every draft is rejected and the residual is the target itself."""
  p = np.array([[0.5, 0.5, 0.0]] * 4)
  q = np.array([[0.0, 0.0, 1.0]] * 4)
  params, kwargs = _markov(p, q, window=2)
  out = jaxspec.speculate(params, jax.random.key(0), labels(64), max_len=5, **kwargs)
  np.testing.assert_array_equal(out.counters.accepted, 0)
  assert set(np.unique(out.tokens)) == {0, 1}


@pytest.mark.slow
def test_equal_distributions_are_always_accepted_without_nan():
  p = np.array([[1.0, 0.0, 0.0]] * 4)
  params, kwargs = _markov(p, p, window=2)
  out = jaxspec.speculate(params, jax.random.key(0), labels(4), max_len=5, **kwargs)
  np.testing.assert_array_equal(out.tokens, 0)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)


@pytest.mark.slow
def test_ragged_number_of_drafts_is_exact():
  """``num_drafted`` differs between rows (0 included); padding after it must not matter."""
  rows, window = 40000, 2
  generator = np.random.default_rng(0)
  p = generator.dirichlet(np.ones(V), size=window + 1)
  q = generator.dirichlet(np.ones(V), size=window)
  log = lambda x: jnp.broadcast_to(jnp.log(jnp.asarray(x, jnp.float32))[None], (rows, *x.shape))
  tokens = jnp.asarray(np.stack([generator.choice(V, size=rows, p=q[i]) for i in range(window)], 1), jnp.int32)
  judge = jax.jit(jaxspec.lossless)
  for count in (0, 1):
    draft = jaxspec.Draft.chain(tokens, log(q), count, 0)
    verdict = judge((), rng.row_keys(jax.random.key(count), rows), draft, log(p))
    assert int(verdict.num_accepted.max()) <= count
    first = np.where(np.asarray(verdict.num_accepted) > 0, np.asarray(tokens[:, 0]), np.asarray(verdict.next_tokens[:, 0]))
    observed = np.bincount(first, minlength=V)
    assert stats.chisquare(observed, rows * p[0] / p[0].sum()).pvalue > 0.01
