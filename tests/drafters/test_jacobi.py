"""Speculative Jacobi decoding: official windows, the exact distribution of the whole loop, and the contract of the loop."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec.core import rng
from jaxspec.core.types import Cursor, Draft
from jaxspec.drafters.jacobi_drafter import JacobiDrafter, JacobiState
from jaxspec.drafters.window_init import WindowInit
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.verifiers.target import target_logits
from tests.helpers import TARGET, labels, markov_fns, random_params, side

GOLDEN = Path(__file__).parent.parent / "golden" / "discrete"
VOCAB = TARGET.vocab_size
INITIALS = [
  WindowInit(),
  WindowInit(point_mass=True),
  WindowInit("left", "repeat"),
  WindowInit("above", "sample"),
  WindowInit("diagonal", "argmax"),
]


def _log(x):
  return jnp.log(jnp.asarray(x, jnp.float32))


def _transformer(window, **kwargs):
  fns = llamagen_fns(dataclasses.replace(TARGET, num_layers=1))
  params = jaxspec.SpecParams((), side(random_params(fns, 2)))
  drafter = JacobiDrafter(window=window, vocab_size=VOCAB, grid=4, **kwargs)
  verifier = jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp(), feedback_fn=target_logits)
  return params, dict(drafter=drafter, verifier=verifier)


@pytest.mark.slow
def test_official_windows(monkeypatch):
  """Compares acceptance, the distribution of the replaced token, and the tokens and distributions of the next window."""
  golden = np.load(GOLDEN / "sjd_verify_window.npz")
  rows, width, vocab = golden["draft_prob"].shape
  window = width - 1
  monkeypatch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(golden["u_draft"][:, 1:], jnp.float32))
  full = jnp.full((rows,), window, jnp.int32)
  tokens = jnp.asarray(golden["draft_tokens"][:, 1:], jnp.int32)
  draft = Draft.chain(tokens, _log(golden["draft_prob"][:, 1:]), full, 0)
  distributions = jnp.asarray(golden["target_logits"])

  def judged(quantile):
    monkeypatch.setattr(rng, "final_uniform", lambda keys: jnp.full((rows,), quantile, jnp.float32))
    return jaxspec.lossless((), rng.row_keys(jax.random.key(0), rows), draft, distributions)

  # The grid of final uniforms covers every quantile of the residual.
  grid = jax.jit(jax.vmap(judged))((np.arange(400, dtype=np.float32) + 0.5) / 400)
  verdict, ends = jax.tree.map(lambda leaf: leaf[-1], grid), np.asarray(grid.next_tokens[..., 0])
  np.testing.assert_array_equal(grid.num_accepted + 1, np.broadcast_to(golden["n_matched"], (400, rows)))
  for row in range(rows):
    distribution = golden["residual"][row] if golden["rejected"][row] else golden["target_prob"][row, window]
    seen = np.bincount(ends[:, row], minlength=vocab) / len(ends)
    assert np.abs(np.cumsum(seen) - np.cumsum(distribution)).max() < 2 / len(ends)

  drafter = JacobiDrafter(window=window, vocab_size=vocab)
  empty, _ = drafter.init((), None, labels(rows), 64, None)
  cursor = Cursor(tokens[:, 0], full, full > 0, jnp.int32(0))
  state = drafter.commit((), empty, cursor, draft, (), verdict._replace(feedback=distributions))
  for row in range(rows):
    matched, kept = golden["n_matched"][row], int(state.num_recycled[row])
    assert kept == width - matched
    np.testing.assert_array_equal(state.logits[row, :kept], golden["target_logits"][row, matched:])


@pytest.mark.slow
@pytest.mark.parametrize("draw,name", [("repeat", "repeat_horizon_tokens"), ("argmax", "sample_horizon_tokens")])
@pytest.mark.parametrize("case", range(3))
def test_official_initial_drafts(case, draw, name):
  """The official rows hold ``w`` codes and a newline, after a prompt and three header tokens."""
  golden = np.load(GOLDEN / "jacobi_init_horizon.npz")
  get = lambda key: golden[f"c{case}_{key}"]
  codes, prefill, width = (int(x) for x in get("width_prefill_window"))
  header, pending, expected = prefill + 3, len(get("pending_ids")), get(name)
  window, vocab = width, get("collected_prob").shape[1]
  drafter = JacobiDrafter(window=window, vocab_size=vocab, grid=codes + 1, initial=WindowInit("left", draw))
  length = len(get("collected_ids")) - header
  state, _ = drafter.init((), None, labels(1), length + window, None)
  # Recycled positions draw from point masses here, so that they repeat the stored tokens.
  distributions = np.full((1, window, vocab), -np.inf, np.float32)
  distributions[0, np.arange(pending), get("pending_ids")] = 0
  distributions[0, pending:] = 0
  if draw == "argmax" and pending:
    distributions[0, :pending] = np.log(np.maximum(get("pending_prob"), 1e-30))
  state = state._replace(logits=jnp.asarray(distributions), num_recycled=jnp.full((1,), pending, jnp.int32))
  if draw == "repeat":
    state = state._replace(tokens=state.tokens.at[0, :length].set(get("collected_ids")[header:]))
  else:
    state = state._replace(token_logits=state.token_logits.at[0, :length].set(_log(get("collected_prob")[header:] + 1e-30)))
  cursor = Cursor(
    jnp.asarray(get("collected_ids")[-1:], jnp.int32), jnp.full((1,), length, jnp.int32), jnp.ones(1, bool), jnp.int32(1)
  )
  draft = jax.jit(lambda *given: drafter.draft((), rng.row_keys(jax.random.key(0), 1), *given)[0])(state, cursor)
  fresh = np.asarray(draft.tokens)[0, pending : pending + len(expected)]
  known = expected[: len(fresh)] >= 0
  np.testing.assert_array_equal(fresh[known], expected[: len(fresh)][known])
  # A neighbour's copy is a point mass, a position without a neighbour has the uniform distribution.
  distributions = np.asarray(jax.nn.softmax(draft.proposal[0, pending : pending + len(expected)]))
  np.testing.assert_array_equal(distributions.max(-1) == 1, known)
  assert known.any() and not known.all()


HALVES = (np.arange(2) + 0.5) / 2


TABLES = [[1, 1], [2, 0], [1, 1]], [[0, 2], [1, 1], [1, 1]], [[1, 1]] * 3
ENUMERATED = [  # all pairs of a way to recycle, a table and initial drafts take a quarter of an hour
  ("fresh", TABLES[0], WindowInit()),
  ("fresh", TABLES[1], WindowInit("left", "sample")),
  ("fresh", TABLES[2], WindowInit("left", "repeat")),
  ("coupled", TABLES[0], WindowInit("left", "sample")),
]


@pytest.mark.slow
def test_chi_square_on_a_transformer():
  """Compares the joint distribution of tokens (1, 2, 3) with plain decoding of the same target. Others are enumerated."""
  rows = 8192
  params, kwargs = _transformer(3, recycle="coupled", initial=INITIALS[3])
  prompt = ClassLabels(jnp.ones((rows,), jnp.int32))
  fast = jaxspec.speculate(params, jax.random.key(21), prompt, max_len=4, **kwargs)
  plain = jaxspec.autoregress(params, jax.random.key(22), prompt, verifier=kwargs["verifier"], max_len=4)
  code = lambda out: np.ravel_multi_index(tuple(np.asarray(out.tokens[:, 1:]).T), (VOCAB,) * 3)
  a, b = np.bincount(code(fast), minlength=VOCAB**3), np.bincount(code(plain), minlength=VOCAB**3)
  big = (a + b) >= 20
  table = np.array([np.append(a[big], a[~big].sum()), np.append(b[big], b[~big].sum())])
  table = table[:, table.sum(0) > 0]
  assert table.shape[1] > 20
  p_value = stats.chi2_contingency(table).pvalue
  assert p_value > 0.01, p_value


@pytest.mark.slow
def test_greedy_equals_plain_decoding_and_converges():
  """The chain repeats itself. A correct token stays correct, so few passes are needed."""
  fns = markov_fns(4)
  params = jaxspec.SpecParams((), side(_log(np.eye(4)[[1, 2, 3, 0, 0]])))
  verifier = jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp(), feedback_fn=target_logits)
  out = jaxspec.speculate(
    params, jax.random.key(0), labels(2), drafter=JacobiDrafter(window=4, vocab_size=4), verifier=verifier, max_len=16
  )
  np.testing.assert_array_equal(out.tokens, np.tile(np.arange(16) % 4, (2, 1)))


def test_settings_out_of_range_are_errors():
  with pytest.raises(ValueError, match="window of at least 1"):
    JacobiDrafter(window=0, vocab_size=4)
  with pytest.raises(ValueError, match="recycle in fresh, coupled"):
    JacobiDrafter(window=2, vocab_size=4, recycle="stale")
  with pytest.raises(ValueError, match="source in"):
    WindowInit("below")
  assert JacobiState._fields[0] == "logits"
