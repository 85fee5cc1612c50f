"""MAR's network: published sizes, dependencies of the head, patches, errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.io import checkpoints
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.mar import MARConfig, mar_fns, patchify, unpatchify
from tests.helpers import random_params

CONFIG = MARConfig(
  num_tokens=9, latent_channels=2, num_classes=3, buffer_size=2, encoder_dim=8, encoder_depth=2, encoder_heads=2,
  decoder_dim=12, decoder_depth=2, decoder_heads=3, diffloss_width=8, diffloss_depth=1,
)  # fmt: skip
FNS = mar_fns(CONFIG)
PARAMS = random_params(FNS, 0)
TOKENS = jax.random.normal(jax.random.key(0), (3, 9, 2))
ORDER = jnp.asarray(np.stack([np.random.default_rng(i).permutation(9) for i in range(3)]), jnp.int32)
LABELS = ClassLabels(jnp.asarray([0, 2, 3]))


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, leaves, total, head",
  [
    ("MAR-B", 364, 207.92, 35.75),
    pytest.param("MAR-L", 476, 478.33, 72.23, marks=pytest.mark.slow),
    pytest.param("MAR-H", 604, 942.40, 151.21, marks=pytest.mark.slow),
  ],
)
def test_published_sizes(name, leaves, total, head):
  fns = mar_fns(MARConfig.named(name))
  shapes = checkpoints.flatten(jax.eval_shape(fns.init, jax.random.key(0)))
  size = lambda prefix: sum(leaf.size for path, leaf in shapes.items() if path.startswith(prefix)) / 1e6
  assert len(shapes) == leaves
  assert size("") == pytest.approx(total, abs=0.01) and size("diffloss.") == pytest.approx(head, abs=0.01)


RUN = jax.jit(FNS.condition, static_argnames="size")


@pytest.fixture(scope="module")
def everything():
  """Conditions of all positions; rows know different numbers of tokens."""
  return RUN(PARAMS, TOKENS, ORDER, jnp.asarray([0, 4, 7]), LABELS)


def test_conditions_do_not_depend_on_unknown_tokens(everything):
  known = jnp.asarray([0, 4, 7])
  hidden = (jnp.arange(9)[None] >= known[:, None])[..., None]
  np.testing.assert_array_equal(RUN(PARAMS, jnp.where(hidden, 99.0, TOKENS), ORDER, known, LABELS), everything)


@pytest.mark.slow
def test_slots_and_windows_do_not_change_conditions(everything):
  known = jnp.asarray([0, 4, 7])
  np.testing.assert_allclose(RUN(PARAMS, TOKENS[:, :7], ORDER, known, LABELS), everything, atol=2e-5)
  start = jnp.asarray([0, 4, 6])
  got = RUN(PARAMS, TOKENS, ORDER, known, LABELS, start, size=3)
  expected = np.stack([everything[row, at : at + 3] for row, at in enumerate(start)])
  np.testing.assert_allclose(got, expected, atol=2e-5)


def test_conditions_do_not_depend_on_the_generation_order(everything):
  """The same known set in another order gives the same conditions at the same raster positions."""
  shuffled = ORDER.at[1, :4].set(ORDER[1, :4][::-1])
  tokens = TOKENS.at[1, :4].set(TOKENS[1, :4][::-1])
  got = RUN(PARAMS, tokens, shuffled, jnp.asarray([0, 4, 7]), LABELS)
  np.testing.assert_allclose(got[1, 4:], everything[1, 4:], atol=2e-5)
  assert not np.allclose(got[1, :3], everything[1, :3])


@pytest.mark.slow
def test_states_at_several_steps_in_one_pass():
  z, x = jnp.ones((2, 12)), jax.random.normal(jax.random.key(1), (4, 2, 2))
  predict_fn = FNS.predictor(PARAMS, z, np.asarray([0, 300, 600, 999]))
  index = jnp.asarray([3, 0, 2, 3])
  together = jax.jit(predict_fn)(index[:, None, None], x)
  single = jax.jit(predict_fn)
  for row in range(4):
    np.testing.assert_allclose(single(index[row], x[row]).eps, together.eps[row], atol=1e-5)


@settings(max_examples=12, deadline=None)
@given(grid=st.integers(1, 3), patch=st.integers(1, 3), channels=st.integers(1, 3))
def test_patches(grid, patch, channels):
  side = grid * patch
  latents = np.arange(2 * side * side * channels, dtype=np.float32).reshape(2, side, side, channels)
  tokens = np.asarray(patchify(latents, patch))
  np.testing.assert_array_equal(unpatchify(tokens, patch), latents)
  r, s, ch, a, d = grid - 1, 0, channels - 1, patch - 1, 0
  position = ch * patch * patch + a * patch + d
  np.testing.assert_array_equal(tokens[:, r * grid + s, position], latents[:, r * patch + a, s * patch + d, ch])


@pytest.mark.parametrize(
  "change, message",
  [
    (dict(num_tokens=10), "square"),
    (dict(encoder_heads=3), "encoder width divisible"),
    (dict(decoder_heads=5), "decoder width divisible"),
    (dict(buffer_size=0), "buffer_size"),
    (dict(diffloss_depth=1.5), "diffloss_depth"),
    (dict(mlp_ratio=0.0), "mlp_ratio"),
  ],
)
def test_bad_configs_are_errors(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(CONFIG, **change)


def test_unknown_sizes_are_errors():
  with pytest.raises(ValueError, match="MAR-B, MAR-L, MAR-H"):
    MARConfig.named("MAR-XL")
