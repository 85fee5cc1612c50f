"""Training of continuous tokens: objectives are compared with plain computations, and the scripts run for a few updates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.models.tokenizers.kl_vae import Posterior
from jaxspec.training.causal_tokens_loss import causal_loss, causal_loss_fn
from jaxspec.training.kl_vae_loss import VAEObjective, normal_divergence
from jaxspec.training.mar_loss import noisy_context
from tests.helpers import random_params
from tests.io.text.packed_emoji import pack
from tests.training.sharing import compile_init, share_step

CONFIG = CausalTokensConfig(
  num_tokens=4, latent_channels=3, num_classes=3, dim=8, num_layers=1, num_heads=2, diffloss_width=8, diffloss_depth=1
)


def test_divergence_of_the_posterior_by_hand():
  posterior = Posterior(jnp.zeros((2, 1, 1, 3)), jnp.zeros((2, 1, 1, 3)))
  assert float(normal_divergence(posterior)) == 0
  moved = Posterior(posterior.mean + 2.0, posterior.log_variance + jnp.log(4.0))
  assert float(normal_divergence(moved)) == pytest.approx(0.5 * (4 + 4 - 1 - np.log(4.0)), rel=1e-6)
  with pytest.raises(ValueError, match="min_std of at least 0"):
    VAEObjective(min_std=-1.0)


def test_context_carries_the_noise_of_its_step():
  tokens = jnp.full((4, 500, 3), 2.0)
  assert noisy_context(jax.random.key(0), tokens, None) is tokens
  kept = diffusion_tables().alphas_cumprod[300]
  context = np.asarray(noisy_context(jax.random.key(0), tokens, 300))
  assert context.mean() == pytest.approx(2 * kept**0.5, abs=0.05)
  assert context.std() == pytest.approx((1 - kept) ** 0.5, rel=0.05)


@pytest.mark.slow
def test_causal_loss_depends_on_earlier_tokens_only():
  head = causal_token_fns(CONFIG)
  params = random_params(head.network, 0, scale=0.3)
  tokens = jax.random.normal(jax.random.key(0), (2, 4, 3))
  timesteps = jax.random.randint(jax.random.key(1), (3, 2, 4), 0, 1000)
  noise = jax.random.normal(jax.random.key(2), (3, 2, 4, 3))
  labels = ClassLabels(jnp.asarray([0, 2]))
  run = jax.jit(lambda context: causal_loss(head, params, tokens, labels, timesteps, noise, context=context))
  loss, rows = run(tokens)
  assert rows.mse.shape == rows.vb.shape == (3, 2, 4)
  np.testing.assert_allclose(loss, np.mean(rows.mse + rows.vb), rtol=1e-5)
  _, moved = run(tokens.at[:, 2].add(1.0))
  np.testing.assert_array_equal(moved.mse[:, :, :3], rows.mse[:, :, :3])
  assert np.all(np.any(np.asarray(moved.mse != rows.mse)[:, :, 3], axis=0))

  loss_fn = causal_loss_fn(head, CONFIG.num_classes, batch_mul=2, context_step=100)
  batch = {"tokens": tokens, "labels": jnp.asarray([0, 2])}
  grads = jax.jit(jax.grad(lambda p: loss_fn(p, (), batch, jax.random.key(3))[0]))(params)
  assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(grads))
  assert np.any(grads["input_proj"]["weight"] != 0) and np.any(grads["cls_embedding"]["embedding_table"]["weight"] != 0)


def test_targets_cost_four_times_their_drafts():
  from experiments.train import class_tokens

  assert all(class_tokens.cost_ratio(name) >= 4 for name in ("mar", "causal", "digits-mar", "digits-causal"))
  assert class_tokens.get_config("").context_step == 80
  assert class_tokens.get_config("causal-draft").is_draft
  with pytest.raises(ValueError, match="mar-target, mar-draft"):
    class_tokens.get_config("mar")


@pytest.mark.slow
def test_scripts_run_and_resume(tmp_path, monkeypatch):
  """Two updates in one run, and two with a stop after the first, give the same weights. The exported bundles load."""
  from experiments.data import class_images
  from experiments.train import class_network, class_tokens, kl_vae
  from jaxspec import load_pipeline

  # A tiny set in place of the full one, which is not shipped.
  tiny = class_images._emoji(pack(tmp_path / "emoji"))
  monkeypatch.setitem(class_images.SETS, "emoji", lambda: tiny)
  loop_of = lambda run, **kwargs: dataclasses.replace(run, loop=dataclasses.replace(run.loop, **kwargs))
  in_one_go = lambda run: loop_of(run, checkpoint_every=0)  # the last state is always saved

  def resumes(script, run, whole):
    folder = tmp_path / f"{run.name}-parts"
    assert int(script.train(loop_of(run, stop_after=1), folder).step) == 1
    resumed = script.train(in_one_go(run), folder)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(resumed.params), strict=True):
      np.testing.assert_array_equal(a, b)

  compile_init(monkeypatch, kl_vae, "kl_vae_fns")
  for name in ("mar_fns", "causal_token_fns"):
    compile_init(monkeypatch, class_tokens, name)
  monkeypatch.setattr(kl_vae, "PROBE", 8)
  bundle, run = tmp_path / "bundle", kl_vae.get_config("smoke")
  with monkeypatch.context() as patch:
    share_step(patch, kl_vae)
    resumes(kl_vae, run, kl_vae.train(in_one_go(run), tmp_path / "vae", export_to=bundle))
  for name in ("smoke", "causal-smoke"):
    masked = name == "smoke"
    folder = bundle if masked else tmp_path / "causal"
    run = class_tokens.get_config(name)
    model = dataclasses.replace(run.model, num_classes=len(tiny.classes))
    run = dataclasses.replace(run, model=model, vae=str(bundle / "vae"))
    with monkeypatch.context() as patch:
      share_step(patch, class_network)  # the draft has the target's config except its name
      whole = class_tokens.train(in_one_go(run), tmp_path / name, export_to=folder)
      if masked:
        resumes(class_tokens, run, whole)
        draft = dataclasses.replace(run, name=f"{name}-draft")
        class_tokens.train(in_one_go(draft), tmp_path / draft.name, export_to=folder)
    loaded = load_pipeline(folder)
    assert list(loaded.drafts) == ["small"] * masked
    assert "food-fruit" in loaded.family.classes and loaded.sampling().stop == 5


@pytest.mark.slow
def test_a_teacher_replaces_the_noise():
  """A draft with its teacher's weights has an mse of 0, so only the bound is left. A focus changes the diffusion steps."""
  from jaxspec.training.causal_tokens_loss import Teacher

  head = causal_token_fns(CONFIG)
  params = jax.jit(head.init)(jax.random.key(0))
  tokens = jax.random.normal(jax.random.key(1), (2, CONFIG.num_tokens, head.token_dim))
  batch = {"tokens": tokens, "labels": jnp.asarray([0, 2])}

  def figures(params, **kwargs):
    loss_fn = causal_loss_fn(head, CONFIG.num_classes, batch_mul=2, **kwargs)
    return loss_fn(params, (), batch, jax.random.key(3))[1][0]

  plain, focused = jax.jit(lambda params: (figures(params), figures(params, focus=(5,))))(params)
  taught = jax.jit(lambda params, teacher: figures(params, teacher=Teacher(head, teacher)))
  own = taught(params, params)
  assert own["mse"] == 0 and own["vb"] == pytest.approx(float(plain["vb"]), rel=1e-5)
  assert taught(params, jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(0.1), params))["mse"] > 0
  assert focused["vb"] != own["vb"]
