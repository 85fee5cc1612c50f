"""Rows in parallel with Jacobi windows: their distribution and the bound of their KL against complete enumeration."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core import rng
from jaxspec.core.state import Origin
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Draft, Verdict
from jaxspec.drafters.row_windows import RowWindows
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig, row_schedule
from jaxspec.testing.tape import FINAL, Tape, enumerate_outcomes, fast_keys, first_draw
from tests.contract import networks
from tests.helpers import labels
from tests.methods.networks import decoder, host

V, GRID, CLASS = 2, (2, 3), 1
N = GRID[0] * GRID[1]
FREE = (1, 2, 4)  # indices of tokens with two legal ids; at the others only 0 is legal


def _legal(index):
  """Few tokens are random, so that all outcomes of a decode can be enumerated."""
  free = jnp.isin(index, jnp.asarray(FREE))[..., None]
  return free | (jnp.arange(V).reshape((1,) * index.ndim + (V,)) == 0)


LOGITS = np.log(np.random.default_rng(1).permuted(np.tile([0.25, 0.75], (networks.rows_of_table(V, N), 1)), axis=1))


def _probs(seen: dict[int, int]) -> np.ndarray:
  """The distribution of a free token after the tokens at some indices."""
  return networks.softmax(LOGITS[CLASS * (V + 1) ** (N - 1) + sum((id + 1) * (V + 1) ** at for at, id in seen.items())])


def _by_definition(width: int) -> tuple[np.ndarray, np.ndarray, float]:
  """The distribution of the images, the target's, and the bound of the divergence between them.

  With a width of 1, the token below the first draft is tested in pass 2. The row above is whole by then if its first draft
  was accepted, and else lacks its last token. The first draft is uniform.
  """
  joint, target, bound = np.zeros((V,) * N), np.zeros((V,) * N), 0.0
  for a, b, c in itertools.product(range(V), repeat=3):
    first, second = _probs({0: 0}), _probs({0: 0, 1: a})
    seen = {0: 0, 1: a, 3: 0}
    whole, lacking = _probs(seen | {2: b}), _probs(seen)
    accepted = min(0.5, first[a]) / first[a] if width == 1 else 1.0
    before = first[a] * second[b]
    at = (0, a, b, 0, c, 0)
    joint[at], target[at] = before * (accepted * whole[c] + (1 - accepted) * lacking[c]), before * whole[c]
    bound += before * (1 - accepted) * lacking[c] * np.log(lacking[c] / whole[c])
  return joint, target, bound


def _tape(width: int, drafts: int) -> Tape:
  """All outcomes. A draft follows quarters or, if it is initial, halves; its test is against quarters."""
  draft = lambda round_, row, offset: (rng.Stream.DRAFT, round_, row, offset)
  test = lambda before, offset: (rng.Stream.VERIFY, before, offset)
  halves, quarters, ratios = 2, 4, 3  # two uniform ids; four cells of a draw; ratios of quarters: 1/3, 1, 3
  cells = {first_draw(): 1, draft(0, 0, 0): halves, test(0, 0): halves}
  if drafts == 1:
    cells |= {test(0, FINAL): quarters, draft(1, 0, 0): quarters, test(1, 0): ratios}
    return Tape.all_outcomes(cells | {draft(1, 1, 0): quarters, test(3, 0): ratios})
  # The second token of a row was drafted before: its old draft is kept by a third number (offset 2).
  cells |= {draft(0, 0, 1): halves, test(0, 1): halves, draft(1, 0, 2): halves, test(1, 0): ratios}
  if width == 1:
    return Tape.all_outcomes(cells | {draft(0, 1, 1): halves, draft(1, 1, 2): halves, test(3, 0): ratios})
  return Tape.all_outcomes(cells | {draft(1, 1, 1): quarters, draft(2, 1, 1): quarters, test(2, 1): ratios})


@pytest.mark.parametrize("width, drafts", [(1, 1), (1, 2), (3, 2)])
def test_every_outcome_of_windows(width, drafts):
  """Every token follows the row that it was tested against; with a width of all columns, images follow the target."""
  space = TokenSpace(vocab_size=V, num_tokens=N, grid=GRID, legal=_legal)
  bound = Decoder(
    networks.host(V, N, LOGITS), methods.Rows(width=width, row_window=drafts + 1), space=space, audit=width == 1
  )
  tape = _tape(width, drafts)
  out = bound(ClassLabels(jnp.full((tape.num_rows,), CLASS)), key=tape.keys())
  found = enumerate_outcomes(lambda keys: out.tokens, tape, V)
  wanted, target, divergence = _by_definition(width)
  np.testing.assert_allclose(found, wanted, atol=1e-9)
  origins = {int(origin) for origin in np.unique(out.origin)}
  assert origins >= {Origin.FIRST, Origin.DRAFT, Origin.REPLACED} and (out.counters.accepted < out.counters.drafted).any()
  if width > 1:
    np.testing.assert_allclose(found, target, atol=1e-9)
    return
  # The estimate has the bound as its mean, without rest; the bound exceeds the divergence by what the passes say about the
  # tokens beyond the image.
  some = wanted > 0
  exact = np.sum(wanted[some] * np.log(wanted[some] / target[some]))
  assert np.asarray(out.metrics.kl, np.float64).sum(1).mean() == pytest.approx(divergence, abs=1e-6)
  assert (exact, divergence) == pytest.approx((0.0497, 0.1373), abs=1e-4)
  assert np.asarray(out.metrics.kl)[:, [0, 1, 2, 3, 5]].max() < 1e-6 and np.asarray(out.metrics.tested)[:, 4].all()


def test_windows_move_with_their_rows():
  """When the first row is whole and read, the group of the second row becomes the first, with its own distributions."""
  grid, windows = (2, 3), RowWindows(1, 3, 2)
  feedback = jnp.arange(4.0)  # of the first row 0 and 1, of the second 2 and 3

  @jax.jit
  def move(feedback):
    progress = row_schedule.RowProgress(jnp.array([[3, 1]]), jnp.array([0]))
    read = row_schedule.next_pass(progress, grid, 1)
    draft = Draft.chain(jnp.zeros((2, 1), jnp.int32), jnp.zeros((2, 1, V)), jnp.array([0, 1]), 0)
    verdict = Verdict.one(jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32))
    verdict = verdict._replace(feedback=feedback.reshape(2, 2, 1) + jnp.zeros((2, 2, V)))
    after = row_schedule.advance(progress, read, jnp.array([[0, 1]]), grid)
    return after, windows.commit(windows.start(jnp.zeros((1, V))), draft, verdict, read, jnp.full((1, 2, 2), 3), after)

  after, state = move(feedback)
  assert after.first.tolist() == [1] and state.windows.num_recycled.tolist() == [1, 0]
  np.testing.assert_array_equal(state.windows.logits[0, 0], [3.0, 3.0])


@pytest.mark.slow
def test_a_transformer_with_windows():
  """The cache keeps the right entries: a first row lacks nothing, and other rows lack as much as without drafts."""
  images = 33
  of = lambda **options: decoder(
    methods.Rows(**options), SamplingConfig(cfg_scale=1.5), target=host(), num_tokens=16, grid=(4, 4), audit=True
  )(labels(images), key=fast_keys(1, images))
  whole, lossy = of(width=4, row_window=4), of(width=2, row_window=4)
  assert np.asarray(whole.metrics.kl).max() < 1e-5
  kl = np.asarray(lossy.metrics.kl)
  assert kl[:, :4].max() < 1e-5 < 1e-3 < kl[:, 4:].mean()
  for out in (whole, lossy):
    calls = out.counters.target_calls
    assert (calls == np.asarray(out.commit_round).max(1) + 1).all() and (out.counters.rounds == calls - 1).all()
    assert (out.counters.accepted == (np.asarray(out.origin) == Origin.DRAFT).sum(1)).all() and (out.lengths == 16).all()
  assert (lossy.counters.target_calls <= row_schedule.num_passes((4, 4), 2)).all()  # of one token of a row per pass
  assert whole.counters.target_calls.mean() < 16


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: methods.Rows(row_window=0), "at least 1"),
    (lambda: decoder(methods.Rows(row_window=4)).parts, "window of at most the 3 columns of the image, we instead got 4"),
    (
      lambda: decoder(methods.Rows(width=1, row_window=2), target=_without_compact()).parts,
      "can compact its cache for the row_window of method rows",
    ),
  ],
)
def test_what_does_not_fit_is_named(make, words):
  with pytest.raises(ValueError, match=words) as caught:
    make()
  assert "\n" not in str(caught.value)


def _without_compact():
  network = networks.host(3, 4, np.zeros((networks.rows_of_table(3, 4), 3)))
  return dataclasses.replace(network, fns=network.fns._replace(compact=None))
