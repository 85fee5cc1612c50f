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
from jaxspec.sampling import SamplingConfig
from jaxspec.sampling.row_schedule import row_schedule
from jaxspec.testing.tape import Tape, enumerate_outcomes, first_draw, round_draws
from tests.contract import networks
from tests.helpers import labels, slow_but
from tests.methods.networks import decoder, host, small

V, GRID = 3, (2, 3)
N = GRID[0] * GRID[1]
CLASS = 1


@pytest.mark.parametrize(
  "grid, width, passes", [((24, 24), 8, 208), ((48, 48), 16, 800), ((90, 90), 16, 1514), ((5, 7), 7, 35), ((1, 4), 2, 4)]
)
def test_passes_of_published_grids(grid, width, passes):
  """``columns + width (rows - 1)`` passes; tokens are drawn once, fed before a pass reads them, and in raster order."""
  plan, size, columns = row_schedule(grid, width), grid[0] * grid[1], grid[1]
  assert plan.num_passes == passes == plan.drawn_in.max() + 1 and sorted(plan.fed) == list(range(size))
  drawn = np.sort(plan.draw[plan.draw < size])
  assert drawn.tolist() == list(range(1, size))
  for index, number in enumerate(plan.drawn_in):
    assert number == index % columns + width * (index // columns)
  for number, (position, source, draw) in enumerate(zip(plan.position, plan.source, plan.draw), 1):
    inputs = draw < size
    assert (plan.drawn_in[source] < number).all() and (source <= position).all()
    assert (position[inputs] == draw[inputs] - 1).all()  # also of a stand-in
    own = plan.fed[plan.start[number - 1] :][: plan.count[number - 1]]
    assert position[: len(own)].tolist() == own.tolist()
  assert plan.num_inputs == (1 if width == columns else min(columns // width + 1, grid[0]))


_GUIDED = (33, SamplingConfig(cfg_scale=2.0, top_k=5))


@pytest.mark.parametrize("rows, sampling", slow_but([(1, SamplingConfig()), _GUIDED], [_GUIDED]))
def test_a_width_of_all_columns_is_plain_decoding(rows, sampling):
  """The same tokens, bit for bit; a smaller width has other ones, in fewer passes."""
  draw = lambda method: decoder(method, sampling, target=host(), num_tokens=16, grid=(4, 4))(labels(rows), key=7)
  plain, same, fewer = (draw(method) for method in (methods.Plain(), methods.Rows(width=4), methods.Rows(width=1)))
  for name in ("tokens", "origin", "commit_round", "lengths"):
    np.testing.assert_array_equal(getattr(plain, name), getattr(same, name))
  assert jax.tree.all(jax.tree.map(np.array_equal, plain.counters, same.counters))
  assert (fewer.counters.target_calls == 7).all() and (fewer.lengths == 16).all()
  np.testing.assert_array_equal(plain.tokens[:, :4], fewer.tokens[:, :4])  # the first row lacks nothing
  assert rows == 1 or (plain.tokens != fewer.tokens).any()


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


@pytest.mark.parametrize("width, legal", slow_but([(1, None), (2, None), (3, None), _ENDS], [(2, None), _ENDS]))
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
