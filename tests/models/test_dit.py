"""DiT and its samplers agree with the official code on stored arrays; sizes, faults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.diffusion import ddim, ddpm
from jaxspec.diffusion.ddpm import TokenNoise
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.dit import PUBLISHED_SIZES, DiT, DiTConfig, dit_fns, grid_positions, to_latents, to_states
from tests.models import dit_golden
from tests.models.mar_parity import watch

TABLES = diffusion_tables("10", "linear")
SCALES = ("4.0", "1.5")


@pytest.fixture(scope="module")
def model():
  return dit_golden.network()


def _close(got, expected, atol):
  assert np.shape(got) == np.shape(expected)
  np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


def _output(prediction, config):
  """Noise and variance as the official network returns them, ``[B, 2 c, h, w]``."""
  return np.concatenate([dit_golden.images(part, config) for part in (prediction.eps, prediction.v)], axis=1)


def test_a_pass_agrees_layer_by_layer(model):
  arrays, config = model.arrays, model.config
  watched = lambda module, method: module.name if method == "__call__" and isinstance(module.parent, DiT) else None

  @jax.jit
  def run(x, t, y):
    # Every row is at its own step.
    return watch(lambda: model.fns.predictor(model.params, ClassLabels(y), t)(jnp.arange(3)[:, None], x), watched)

  seen = run(dit_golden.states(arrays["x"]), arrays["t"], arrays["y"])
  _close(seen["x_embedder"].reshape(3, 16, 48), arrays["patches"], 5e-5)
  _close(seen["t_embedder_in"], arrays["t_freq"], 1e-4)  # cosines of numbers up to 999
  _close(seen["t_embedder"], arrays["t_emb"], 5e-5)
  _close(seen["y_embedder"], arrays["y_emb"], 0)
  for i in range(3):
    _close(seen[f"blocks_{i}"], arrays[f"block{i}"], 5e-5)
  _close(seen["final_layer"], arrays["final"], 5e-5)
  _close(_output(seen["result"], config), arrays["out"], 5e-5)


def test_positions(model):
  _close(grid_positions(4, 48)[0], model.arrays["pos_embed"], 1e-6)
  fresh = jax.eval_shape(model.fns.init, jax.random.key(0))["pos_embed"]
  assert fresh.shape == (1, 16, 48)
  np.testing.assert_array_equal(model.params["pos_embed"][0], model.arrays["pos_embed"])


@pytest.fixture(scope="module")
def guided(model):
  """Guided passes and chains by scale."""
  arrays = model.arrays
  # Entry j of the official noise belongs to step 9 - j.
  steps = np.moveaxis(dit_golden.states(arrays["noise"])[::-1], 0, -2)
  noise = TokenNoise(dit_golden.states(arrays["z"]), steps)

  @jax.jit
  def run(scale):
    bind = lambda labels, timesteps: model.fns.guided_predictor(model.params, ClassLabels(labels), timesteps, scale)
    once = bind(arrays["cfg_y"][:2], arrays["cfg_t"][:1])(jnp.int32(0), dit_golden.states(arrays["cfg_x"][:2]))
    predict_fn = bind(arrays["labels"], TABLES.timesteps)
    chain = ddpm.sample(predict_fn, TABLES, noise, jnp.float32(1), record=True)
    return once, chain, ddim.sample(predict_fn, TABLES, noise.initial)

  return {scale: run(jnp.float32(scale)) for scale in SCALES}


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_a_guided_pass_agrees(model, guided, scale):
  got, expected = _output(guided[scale][0], model.config), model.arrays[f"cfg_out_{scale}"]
  _close(got, expected[:2], 1e-4)
  _close(got[:, :3], expected[2:, :3], 1e-4)
  # Variance and the last channel of the noise are not guided: the unconditional half has others.
  assert np.abs(got[:, 3:] - expected[2:, 3:]).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_chains_agree(model, guided, scale):
  _, chain, deterministic = guided[scale]
  arrays, of = model.arrays, lambda states: dit_golden.images(states, model.config)
  after = np.concatenate([chain.token[None], chain.states[:-1]])[::-1]
  _close(of(after), arrays[f"ddpm_chain_{scale}"], 3e-4)
  # The first steps multiply the rounding of the noise by up to 157 in x0.
  for name, atol in (("mean", 3e-4), ("log_variance", 3e-4), ("x0", 2e-3)):
    _close(of(getattr(chain.distributions, name)[::-1]), arrays[f"ddpm_{name}_{scale}"], atol)
  _close(of(deterministic), arrays[f"ddim_{scale}"], 3e-4)


@pytest.mark.slow
def test_a_chain_without_guidance_agrees(model):
  arrays = model.arrays
  steps = np.moveaxis(dit_golden.states(arrays["noise"])[::-1], 0, -2)

  @jax.jit
  def run(noise):
    predict_fn = model.fns.predictor(model.params, ClassLabels(arrays["labels"]), TABLES.timesteps)
    return ddpm.sample(predict_fn, TABLES, noise, jnp.float32(1)).token

  token = run(TokenNoise(dit_golden.states(arrays["z"]), steps))
  _close(dit_golden.images(token, model.config), arrays["ddpm_plain"], 3e-4)


@pytest.mark.slow
def test_states_at_several_steps_in_one_pass(model):
  """Also guided: verifying several steps of a chain takes one pass."""
  labels = ClassLabels(jnp.asarray([3, 10]))
  x = jax.random.normal(jax.random.key(1), (3, 2, model.config.state_dim))
  index = jnp.asarray([9, 0, 4])
  for predict_fn in (
    model.fns.predictor(model.params, labels, TABLES.timesteps),
    model.fns.guided_predictor(model.params, labels, TABLES.timesteps, jnp.float32(2.5)),
  ):
    together, single = jax.jit(predict_fn)(index[:, None, None], x), jax.jit(predict_fn)
    for row in range(3):
      for got, expected in zip(jax.tree.leaves(single(index[row], x[row])), jax.tree.leaves(together), strict=True):
        _close(got, expected[row], 2e-5)


def test_latents_are_states():
  config = DiTConfig(latent_size=4, latent_channels=2, patch_size=2, dim=8, num_heads=2, num_layers=1)
  latents = np.arange(3 * 32).reshape(3, 4, 4, 2)
  np.testing.assert_array_equal(to_latents(to_states(latents), config), latents)


MILLIONS = {"DiT-S/2": 33, "DiT-B/4": 130, "DiT-L/8": 458, "DiT-XL/2": 675}  # arXiv 2212.09748, table 4


@pytest.mark.parametrize("name", [
  name if name == "DiT-S/2" else pytest.param(name, marks=pytest.mark.slow) for name in MILLIONS
])  # fmt: skip
def test_published_sizes(name):
  template = jax.eval_shape(dit_fns(DiTConfig.named(name)).init, jax.random.key(0))
  assert sum(leaf.size for leaf in jax.tree.leaves(template)) / 1e6 == pytest.approx(MILLIONS[name], abs=0.6)


def test_names_of_sizes():
  assert DiTConfig.named("DiT-XL/2") == DiTConfig() and len(PUBLISHED_SIZES) == 12
  assert DiTConfig.named("DiT-B/4", latent_size=64).grid == 16
  with pytest.raises(ValueError, match="DiT-S/2, DiT-S/4"):
    DiTConfig.named("DiT-XXL/2")


@pytest.mark.parametrize(
  "change, message",
  [
    (dict(latent_size=31), "latent_size divisible by patch_size"),
    (dict(num_heads=7), "width divisible by its heads"),
    (dict(dim=1150, num_heads=1), "by 4"),
    (dict(num_layers=0), "num_layers"),
    (dict(mlp_ratio=-1.0), "mlp_ratio"),
  ],
)
def test_bad_configs_are_errors(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(DiTConfig(), **change)


@pytest.mark.slow
def test_bfloat16_stays_close(model):
  arrays = model.arrays
  fns = dit_fns(dataclasses.replace(model.config, dtype="bfloat16"))
  params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), model.params)
  run = jax.jit(lambda x: fns.predictor(params, ClassLabels(arrays["y"]), arrays["t"])(jnp.arange(3)[:, None], x))
  out = run(dit_golden.states(arrays["x"]))
  assert out.eps.dtype == out.v.dtype == jnp.float32
  assert np.abs(_output(out, model.config) - arrays["out"]).mean() < 0.05
