"""Losses are compared with closed forms, and their gradients with finite differences."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxspec.training import common_losses

# One program each, in place of one for each operation.
pixel_losses = jax.jit(common_losses.pixel_losses, static_argnames="floor")
feature_losses, token_cross_entropy = map(jax.jit, (common_losses.feature_losses, common_losses.token_cross_entropy))
distillation_kl = jax.jit(common_losses.distillation_kl)


def _normal(seed, *shape):
  return jax.device_put(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def _ids(*shape):
  """Tokens below 5."""
  return jax.device_put(np.random.default_rng(1).integers(5, size=shape).astype(np.int32))


def test_pixel_losses_closed_form():
  targets = jnp.zeros((2, 3, 4, 1))
  ramp = jnp.broadcast_to(jnp.arange(4.0).reshape(1, 1, 4, 1), targets.shape)
  losses = pixel_losses(ramp, targets, floor=0.0)
  assert losses.l1 == 1.5
  assert losses.l2 == 3.5
  assert losses.gradient == 0.5  # 1 along the rows, 0 along the columns
  np.testing.assert_allclose(losses.log_l2, np.log10(3.5), rtol=1e-6)


def test_log_loss_is_the_psnr_of_each_image():
  images, targets = _normal(0, 2, 4, 4, 3), _normal(1, 2, 4, 4, 3)
  mse = np.mean(np.square(np.asarray(images - targets, np.float64)), axis=(1, 2, 3))
  psnr = np.mean(10 * np.log10(4 / mse))  # the range of pixels is 2
  losses = pixel_losses(images, targets, floor=0.0)
  np.testing.assert_allclose(-10 * losses.log_l2 + 10 * np.log10(4), psnr, rtol=1e-5)


def test_pixel_gradients():
  images, targets = (jax.random.normal(jax.random.key(seed), (2, 3, 3, 2)) for seed in (0, 1))
  with jax.enable_x64(True):
    images, targets = np.float64(images), np.float64(targets)
    # float32 inside: differences need a wide step, and errors that are not near 0, where the absolute value has a kink.
    loss = jax.jit(lambda x: sum(pixel_losses(x, targets)))
    check_grads(loss, (images,), 1, modes=["rev"], eps=1e-2, atol=2e-2, rtol=2e-2)


def test_pixel_gradient_is_finite_at_zero_error():
  x = _normal(0, 1, 4, 4, 3)
  assert jnp.all(jnp.isfinite(jax.jit(jax.grad(lambda y: sum(pixel_losses(y, x))))(x)))


def test_cross_entropy_of_uniform_logits():
  np.testing.assert_allclose(token_cross_entropy(jnp.zeros((2, 3, 7)), jnp.ones((2, 3), jnp.int32)), np.log(7), rtol=1e-6)


@pytest.mark.slow
def test_cross_entropy_counts_valid_rows_only():
  logits, targets = _normal(0, 3, 4, 5), _ids(3, 4)
  valid = jnp.array([True, False, True])
  expected = token_cross_entropy(logits[valid], targets[valid])
  np.testing.assert_allclose(token_cross_entropy(logits, targets, valid), expected, rtol=1e-6)
  by_token = jnp.broadcast_to(valid[:, None], (3, 4))
  np.testing.assert_allclose(token_cross_entropy(logits, targets, by_token), expected, rtol=1e-6)
  assert token_cross_entropy(logits, targets, jnp.zeros(3, bool)) == 0
  grads = jax.jit(jax.grad(token_cross_entropy))(logits, targets, valid)
  assert jnp.all(grads[1] == 0)


def test_cross_entropy_gradient_is_distribution_minus_one_hot():
  logits, targets = _normal(0, 2, 3, 5), _ids(2, 3)
  expected = (jax.nn.softmax(logits) - jax.nn.one_hot(targets, 5)) / 6
  np.testing.assert_allclose(jax.jit(jax.grad(token_cross_entropy))(logits, targets), expected, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_distillation_closed_form(temperature):
  teacher, student = _normal(0, 2, 3, 5), _normal(1, 2, 3, 5)
  p = np.asarray(jax.nn.softmax(teacher / temperature), np.float64)
  q = np.asarray(jax.nn.softmax(student / temperature), np.float64)
  expected = np.mean(np.sum(p * np.log(p / q), axis=-1)) * temperature**2
  np.testing.assert_allclose(distillation_kl(teacher, student, temperature), expected, rtol=1e-5)
  grads = jax.jit(jax.grad(distillation_kl, (0, 1)))(teacher, student, temperature)
  assert jnp.all(grads[0] == 0)
  np.testing.assert_allclose(grads[1], temperature * (q - p) / 6, atol=1e-6)


def test_distillation_edges():
  teacher, student = _normal(0, 2, 3, 5), _normal(1, 2, 3, 5)
  np.testing.assert_allclose(distillation_kl(teacher, teacher), 0, atol=1e-6)
  masked = teacher.at[..., 0].set(-jnp.inf)
  value, grad = jax.jit(jax.value_and_grad(lambda x: distillation_kl(masked, x)))(student)
  assert jnp.isfinite(value)
  assert jnp.all(jnp.isfinite(grad))
  valid = jnp.array([True, False])
  np.testing.assert_allclose(
    distillation_kl(teacher, student, 1.0, valid), distillation_kl(teacher[:1], student[:1]), rtol=1e-6
  )


def test_feature_losses_match_the_public_recipe():
  golden = np.load(Path(__file__).parents[1] / "golden" / "discrete" / "eagle_drafter_tiny.npz")
  out, target, head = golden["out"], golden["target_features"], golden["head"]
  losses = feature_losses(
    jnp.asarray(out), jnp.asarray(target), jnp.asarray(out @ head.T), jnp.asarray(target @ head.T),
    jnp.asarray(golden["loss_mask"] > 0),
  )  # fmt: skip
  np.testing.assert_allclose(losses.feature, golden["feature_loss"], rtol=1e-5)
  np.testing.assert_allclose(losses.token, golden["token_loss"], rtol=1e-5)
  np.testing.assert_allclose(losses.feature + 0.1 * losses.token, golden["total_loss"], rtol=1e-5)


@pytest.mark.slow
def test_feature_losses_gradients():
  host, valid = _normal(0, 1, 3, 4), jnp.asarray([[True, False, True]])
  loss = lambda x: sum(feature_losses(x, host, 2.0 * x, 3.0 * host, valid))
  x = host + 0.3 * _normal(1, 1, 3, 4)
  check_grads(loss, (x,), order=1, modes=["rev"], eps=1e-2, atol=1e-2, rtol=1e-2)
  assert not jax.grad(loss)(x)[0, 1].any()
