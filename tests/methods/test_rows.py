"""Rows in parallel: the schedule, plain decoding as its limit, and the KL of the images against enumeration."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.token_space import TokenSpace
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.language.image_rows import ImageRows
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig, row_schedule
from jaxspec.sampling.row_schedule import num_groups, num_passes
from jaxspec.testing.tape import Tape, enumerate_outcomes, fast_keys, first_draw, round_draws
from tests.contract import networks
from tests.helpers import labels
from tests.methods.networks import decoder, host, small

V, GRID = 3, (2, 3)
N = GRID[0] * GRID[1]
CLASS = 1


@pytest.mark.parametrize(
  "grid, width, passes", [((24, 24), 8, 208), ((48, 48), 16, 800), ((90, 90), 16, 1514), ((5, 7), 7, 35), ((1, 4), 2, 4)]
)
def test_passes_of_published_grids(grid, width, passes):
  """One token of a row per pass is ZipAR's schedule: token (r, c) is drawn in pass ``c + width r``."""
  (drawn_in,), most = _played(grid, width, np.ones((passes + 2, 1, num_groups(grid, width)), np.int32))
  assert num_passes(grid, width) == passes == drawn_in.max() + 1
  row, column = np.indices(grid)
  np.testing.assert_array_equal(drawn_in, column + width * row)
  assert most == num_groups(grid, width) == (1 if width == grid[1] else min(grid[1] // width + 1, grid[0]))


@pytest.mark.parametrize("grid, width", [((6, 5), 1), ((6, 5), 2), ((6, 5), 5), ((4, 1), 1), ((3, 8), 3)])
def test_rows_that_advance_by_several_tokens(grid, width):
  """A row stays ``width`` tokens behind the row above, however many tokens each of them commits in a pass."""
  generator = np.random.default_rng(0)
  most = generator.integers(1, generator.integers(2, 8, (20, 1)) + 1, (grid[0] * grid[1], 20, num_groups(grid, width)))
  for drawn_in in _played(grid, width, np.int32(most))[0]:
    for above, below in zip(drawn_in, drawn_in[1:]):
      for column in range(grid[1]):
        assert above[min(column + width, grid[1]) - 1] < below[column]


def _played(grid, width, most):
  """The pass ``[L, R, C]`` that draws each token, and the most groups of a pass.

  Groups commit up to ``most [passes, L, G]`` tokens.
  Checks passes by their definition: groups hold every row with tokens to read, every one of them commits if it lacks tokens,
  and every token but the last of the image is read once.
  """

  def step(progress, most):
    read = row_schedule.next_pass(progress, grid, width)
    gain = jnp.minimum(read.room, most)
    return row_schedule.advance(progress, read, gain, grid), (read, gain, progress.committed)

  run = jax.jit(lambda most: jax.lax.scan(step, row_schedule.start(grid, most.shape[1]), most))
  last, passes = jax.device_get(run(most))
  (rows, columns), images = grid, most.shape[1]
  drawn_in, fed = np.full((images, rows * columns), -1), [[] for _ in range(images)]
  drawn_in[:, 0] = 0
  for number in range(len(most)):
    read, gain, committed = jax.tree.map(lambda leaf, number=number: leaf[number], passes)
    for image in range(images):
      active = read.is_active[image]
      row = read.row[image][active]
      lacking = [r for r in range(rows) if committed[image, r] < columns and (not r or committed[image, r - 1] >= width)]
      assert {*lacking} <= {*row.tolist()} and (gain[image][active] >= 1).sum() == len(lacking)
      for r, n, is_known, more in zip(row, *(leaf[image][active] for leaf in (read.committed, read.is_known, gain))):
        first = r * columns + n - 1
        drawn_in[image, first + 1 : first + 1 + more] = number + 1
        fed[image] += [first] * bool(is_known) + [*range(first + 1, first + more)]
  assert (last.committed == columns).all() and (drawn_in >= 0).all()
  assert all(sorted(of_image) == list(range(rows * columns - 1)) for of_image in fed)
  return drawn_in.reshape(images, rows, columns), int(passes[0].is_active.sum(2).max())


@pytest.mark.slow
def test_a_width_of_all_columns_is_plain_decoding():
  """The same tokens, bit for bit; a smaller width has other ones, in fewer passes."""
  rows, sampling = 33, SamplingConfig(cfg_scale=2.0, top_k=5)
  of = lambda method: decoder(method, sampling, target=host(), num_tokens=16, grid=(4, 4))
  draw = lambda method: of(method)(labels(rows), key=fast_keys(7, rows))
  plain, same, fewer = (draw(method) for method in (methods.Plain(), methods.Rows(width=4), methods.Rows(width=1)))
  for name in ("tokens", "origin", "commit_round", "lengths"):
    np.testing.assert_array_equal(getattr(plain, name), getattr(same, name))
  assert jax.tree.all(jax.tree.map(np.array_equal, plain.counters, same.counters))
  assert (fewer.counters.target_calls == 7).all() and (fewer.lengths == 16).all()
  np.testing.assert_array_equal(plain.tokens[:, :4], fewer.tokens[:, :4])  # the first row lacks nothing
  assert (plain.tokens != fewer.tokens).any()


def _table(legal) -> np.ndarray:
  """Logits by history of a target whose probabilities are quarters; with row ends, those of the two codes alone."""
  generator, size = np.random.default_rng(0), networks.rows_of_table(V, N)
  if legal is None:
    return np.log(generator.permuted(np.tile([0.25, 0.25, 0.5], (size, 1)), axis=1))
  return np.log(np.pad(generator.permuted(np.tile([0.25, 0.75], (size, 1)), axis=1), ((0, 0), (0, 1)), constant_values=0.5))


def _allowed(legal) -> np.ndarray:
  """Legal ids ``[N, V]`` of every index."""
  return np.ones((N, V), bool) if legal is None else np.asarray(legal(jnp.arange(N)))


def _joint(logits: np.ndarray, width: int, legal) -> np.ndarray:
  """The distribution of images ``[V] * N`` by the definition: a token is drawn from its raster-earlier tokens of earlier
  passes, and the first of a row also from a stand-in for the last token above."""
  columns, base, allowed = GRID[1], V + 1, _allowed(legal)
  drawn_in = [index % columns + width * (index // columns) for index in range(N)]
  joint = np.zeros((V,) * N)
  for image in itertools.product(range(V), repeat=N):
    mass = 1.0
    for index, token in enumerate(image):
      seen = {at: image[at] for at in range(index) if drawn_in[at] < drawn_in[index]}
      if index and index % columns == 0 and width < columns:
        known = np.flatnonzero(allowed[index - 1])
        seen[index - 1] = known[0] if len(known) == 1 else image[index - 1 - columns + width]
      name = CLASS * base ** (N - 1) + sum((id + 1) * base**at for at, id in seen.items())
      mass *= networks.softmax(np.where(allowed[index], logits[name], -np.inf))[token]
      if mass == 0:
        break
    joint[image] = mass
  return joint


_ENDS = (1, ImageRows(2, GRID[0], GRID[1] - 1, 0))  # rows of two codes and an end


@pytest.mark.slow
@pytest.mark.parametrize("width, legal", [(1, None), (2, None), (3, None), _ENDS])
def test_divergence_against_enumeration(width, legal):
  """Images have the distribution of the definition, and the mean of the estimate is its KL to the target, without rest."""
  logits = _table(legal)
  space = TokenSpace(vocab_size=V, num_tokens=N, grid=GRID, legal=legal)
  bound = Decoder(networks.host(V, N, logits), methods.Rows(width=width), space=space, audit=True)
  cells = lambda index: 1 if legal is not None and (index + 1) % GRID[1] == 0 else 4  # a row end is certain
  tape = Tape.all_outcomes({first_draw(): cells(0)} | {round_draws(i - 1)[0]: cells(i) for i in range(1, N)})
  out = bound(ClassLabels(jnp.full((tape.num_rows,), CLASS)), key=tape.keys())
  found = enumerate_outcomes(lambda keys: out.tokens, tape, V)
  wanted, target = _joint(logits, width, legal), _joint(logits, GRID[1], legal)
  np.testing.assert_allclose(found, wanted, atol=1e-9)
  some = wanted > 0
  divergence = np.sum(wanted[some] * np.log(wanted[some] / target[some]))
  assert np.asarray(out.metrics.kl, np.float64).sum(1).mean() == pytest.approx(divergence, abs=1e-5)
  assert (divergence > 0.02) == (width < GRID[1])
  # A token without missing context has no divergence.
  assert np.asarray(out.metrics.kl[:, : GRID[1]]).max() < 1e-6 and not out.metrics.tested.any()
  kl, tv = np.asarray(out.metrics.kl), np.asarray(out.metrics.tv)
  assert (kl >= 2 * tv**2 - 1e-6).all()  # Pinsker


@pytest.mark.slow
def test_audit_of_a_transformer():
  """Cached keys lack tokens too: the divergence is that of the distribution that was drawn from. Guided."""
  of = lambda width: decoder(
    methods.Rows(width=width), SamplingConfig(cfg_scale=1.5), target=host(), num_tokens=16, grid=(4, 4), audit=True
  )
  plain, lossy = (of(width)(labels(3), key=1) for width in (4, 2))
  assert np.asarray(plain.metrics.kl).max() < 1e-5
  kl = np.asarray(lossy.metrics.kl)
  assert kl[:, :4].max() < 1e-5 < 1e-3 < kl[:, 4:].mean()
  np.testing.assert_array_equal(decoder(small("rows"), SamplingConfig(cfg_scale=1.5), target=host(), num_tokens=16,
    grid=(4, 4))(labels(3), key=1).tokens, lossy.tokens)  # fmt: skip


def test_the_default_is_a_third_of_the_columns():
  for columns, width in ((12, 4), (48, 16), (1, 1), (4, 2)):
    bound = decoder(methods.Rows(), num_tokens=3 * columns, grid=(3, columns))
    assert bound.method.resolved(bound.context) == methods.Rows(width=width) and bound.parts.decode.width == width
  assert methods.Rows().expected(0.0, 2304).tokens == pytest.approx(2304 / 800)
  # Rows advance by two tokens a pass; a row starts one pass after the row above, and not half of one.
  assert methods.Rows(row_window=2).expected(1.0, 2304).tokens == pytest.approx(2304 / 400)
  assert methods.Rows(width=1, row_window=2).expected(1.0, 2304).tokens == pytest.approx(2304 / (24 + 47))


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: methods.Rows(width=0), "at least 1"),
    (lambda: decoder(methods.Rows(width=4)).parts, "width from 1 to the 3 columns of the image, we instead got 4"),
    (lambda: decoder(methods.Rows(), grid=None).parts, "images with a grid of tokens for method rows, we instead got none"),
    (
      lambda: decoder(methods.Rows(), num_tokens=8)(labels(1), key=0),
      "max_len 9, whole images, for method rows, we instead",
    ),
    (lambda: decoder(methods.Rows())(labels(1), key=0, max_len=5), "max_len 9, whole images, for method rows, we instead"),
    (lambda: decoder(methods.Rows())(labels(1), key=0, end_token=1), "no end_token for images"),
    (lambda: decoder(methods.Rows())(labels(1), key=0, loop="host"), "no loop for a method with a schedule"),
  ],
)
def test_what_does_not_fit_is_named(make, words):
  with pytest.raises(ValueError, match=words) as caught:
    make()
  assert "\n" not in str(caught.value)


def test_equal_settings_share_a_program():
  bound = decoder(small("rows"))
  again = dataclasses.replace(bound, sampling=SamplingConfig(temperature=0.5))
  assert bound.parts.decode == again.parts.decode and hash(bound.parts.decode) == hash(again.parts.decode)
