"""MAR's objective: mask ratios, gradients, and the leaves with weight decay."""

import jax
import numpy as np
import optax
import pytest

from jaxspec.io import checkpoints
from jaxspec.models.mar.mar import MARConfig, mar_fns
from jaxspec.training import mar_loss, train_state
from jaxspec.training.train_step import make_train_step

CONFIG = MARConfig(
  num_tokens=4, latent_channels=2, num_classes=3, buffer_size=2, encoder_dim=8, encoder_depth=1, encoder_heads=2,
  decoder_dim=8, decoder_depth=1, decoder_heads=2, diffloss_width=16, diffloss_depth=1,
)  # fmt: skip


def test_mask_ratios():
  ratios = jax.jit(jax.vmap(mar_loss.mask_ratio))(jax.random.split(jax.random.key(0), 20_000))
  assert np.min(ratios) >= 0.7 - 1e-6 and np.max(ratios) <= 1.0
  assert np.mean(ratios) == pytest.approx(0.867, abs=0.003)
  for length in (1, 4, 16, 100, 256):
    assert length - int(mar_loss.num_masked(0.7, length)) <= mar_loss.most_known(length)


def test_weight_decay_applies_to_matrices_of_the_transformer():
  params = jax.eval_shape(mar_fns(CONFIG).init, jax.random.key(0))
  mask = checkpoints.flatten(mar_loss.decay_mask(params))
  assert mask["mask_token"] and mask["encoder_pos_embed_learned"] and mask["decoder_blocks_0.attn.qkv.weight"]
  assert mask["fake_latent"] and mask["class_emb.weight"]
  assert not any(value for name, value in mask.items() if name.endswith("bias") or name.startswith("diffloss"))


@pytest.mark.slow
def test_a_few_updates_lower_the_loss():
  fns = mar_fns(CONFIG)
  params = jax.jit(fns.init)(jax.random.key(0))
  optimizer = optax.adam(3e-3)
  step = make_train_step(mar_loss.mar_loss_fn(fns, CONFIG.num_classes), optimizer)
  state = step.place_state(train_state.create(params, optimizer))
  tokens = np.tile(np.random.default_rng(0).normal(size=(1, 4, 2)), (32, 1, 1)).astype(np.float32)
  batch = step.place_batch({"tokens": tokens, "labels": np.arange(32, dtype=np.int32) % 3})
  metrics = []
  for _ in range(60):
    state, values = step.update(state, batch)
    metrics.append({name: float(value) for name, value in values.items()})
  assert all(np.isfinite(list(values.values())).all() for values in metrics)
  mean = lambda part: np.mean([values["mse"] for values in part])
  assert mean(metrics[-10:]) < 0.8 * mean(metrics[:5])
