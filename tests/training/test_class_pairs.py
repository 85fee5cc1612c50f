"""Training of pairs of scales (VAR) and of denoising steps (DiT): losses by hand, and the scripts for a few updates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import load_pipeline
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.io.bundle import write_bundle
from jaxspec.models.dit.dit import DiTConfig, dit_fns
from jaxspec.models.var.var import VARConfig, var_fns
from jaxspec.training.dit_loss import RadiusObjective, denoising_loss_fn, denoising_radii_loss_fn, radius_loss
from jaxspec.training.dropped_labels import drop_labels
from jaxspec.training.inter_dro import InterDro
from jaxspec.training.scale_vq import scale_code_loss, scale_vq_loss_fn
from jaxspec.training.var_loss import scale_loss_fn, scale_radii_loss_fn
from jaxspec.training.vq_loss import VQObjective
from tests.helpers import random_params
from tests.training.sharing import noise_digits, share_step

VAR = VARConfig(depth=1, dim=8, num_heads=2, vocab_size=5, code_dim=2, num_classes=3, sides=(1, 2))
DIT = DiTConfig(latent_size=2, latent_channels=1, patch_size=1, num_classes=3, dim=8, num_layers=1, num_heads=2)


def test_codes_follow_latents_after_every_scale():
  latent = jnp.full((1, 2, 2, 3), 2.0)
  totals = [jnp.zeros_like(latent), jnp.full_like(latent, 1.5)]
  assert float(scale_code_loss(latent, totals, 0.25)) == pytest.approx(1.25 * (4 + 0.25) / 2)
  moved = jax.grad(lambda totals: scale_code_loss(latent, totals, 0.25))(totals)
  np.testing.assert_allclose(moved[1], 2 * (1.5 - 2) / latent.size / 2, rtol=1e-6)  # the commitment moves no code
  with pytest.raises(ValueError, match="entropy_ratio of 0"):
    scale_vq_loss_fn(None, VQObjective(entropy_ratio=1.0))


def test_labels_are_dropped_as_often_as_asked():
  labels = jnp.arange(4000) % 3
  dropped = np.asarray(drop_labels(jax.random.key(0), labels, 3, 0.25).labels)
  assert np.mean(dropped == 3) == pytest.approx(0.25, abs=0.03)
  np.testing.assert_array_equal(dropped[dropped != 3], np.asarray(labels)[dropped != 3])
  np.testing.assert_array_equal(drop_labels(jax.random.key(0), labels, 3, 0.0).labels, labels)


def test_a_radius_is_how_far_the_noise_is_off():
  wanted = Prediction(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
  at = lambda radius: Prediction(jnp.full((1, 2), 0.5), jnp.full((1, 2), 0.2), jnp.full((1, 2), radius))
  loss, terms = radius_loss(at(0.5), wanted, RadiusObjective(variance=2.0, radius=3.0))
  assert {name: float(value) for name, value in terms.items()} == pytest.approx(
    {"eps": 0.25, "v": 0.04, "likelihood": np.log(0.5) + 0.5}, rel=1e-5
  )
  assert float(loss) == pytest.approx(0.25 + 2 * 0.04 + 3 * (np.log(0.5) + 0.5), rel=1e-5)
  likelihood = lambda radius: float(radius_loss(at(radius), wanted, RadiusObjective())[1]["likelihood"])
  assert likelihood(0.5) < min(likelihood(0.45), likelihood(0.55))
  moves = jax.grad(lambda p: radius_loss(p, wanted, RadiusObjective(variance=0.0, radius=1.0))[0])(at(0.1))
  np.testing.assert_allclose(moves.eps, 0.5, rtol=1e-5)  # of the square alone: a radius does not pull on the noise
  with pytest.raises(ValueError, match="radius=True"):
    radius_loss(at(0.5)._replace(radius=None), wanted, RadiusObjective())
  with pytest.raises(ValueError, match="radius of at least 0"):
    RadiusObjective(radius=-1.0)


def _scales(rows=4):
  generator = np.random.default_rng(0)
  return {
    "tokens": generator.integers(0, VAR.vocab_size, size=(rows, VAR.num_tokens)).astype(np.int32),
    "inputs": generator.normal(size=(rows, VAR.num_tokens - 1, VAR.code_dim)).astype(np.float32),
    "labels": generator.integers(0, 3, size=rows).astype(np.int32),
  }


@pytest.mark.slow
def test_losses_of_scales():
  fns, edge = var_fns(VAR), var_fns(dataclasses.replace(VAR, inter_head=True))
  params, batch = random_params(fns, 0, scale=0.3), _scales()
  head = {name: leaf for name, leaf in random_params(edge, 0, scale=0.3).items() if name not in params}
  head["inter_head"] = dict(head["inter_head"], centre_bias=jnp.zeros_like(head["inter_head"]["centre_bias"]))

  @jax.jit
  def run(params, head, batch):
    own = {**params, **head}
    plain, (metrics, _) = scale_loss_fn(fns, 3, label_drop_prob=0.0)(params, (), batch, jax.random.key(1))
    taught = scale_radii_loss_fn(edge, fns, 3, InterDro(), label_drop_prob=0.5)
    _, (same, _) = taught(own, params, batch, jax.random.key(1))
    other = jax.tree.map(lambda leaf: leaf + 0.3, params)
    (_, (apart, _)), moves = jax.value_and_grad(taught, has_aux=True)({**other, **head}, params, batch, jax.random.key(1))
    conditioned = fns.condition(params, drop_labels(jax.random.key(1), batch["labels"], 3, 0.0))
    logits = fns.apply(params, conditioned, batch["inputs"], first=0, end=2)[0].logits
    return plain, metrics, logits, same, apart, moves

  plain, metrics, logits, same, apart, moves = run(params, head, batch)
  log_p = np.asarray(jax.nn.log_softmax(logits))
  picked = np.take_along_axis(log_p, batch["tokens"][..., None], axis=-1)
  assert float(plain) == pytest.approx(-picked.mean(), rel=1e-4)
  assert float(metrics["right"]) == pytest.approx(np.mean(log_p.argmax(-1) == batch["tokens"]))
  assert float(same["acceptance"]) == pytest.approx(1, abs=1e-4) and float(apart["acceptance"]) < 0.999
  assert float(same["align"]) == pytest.approx(0, abs=1e-4) and float(apart["align"]) > 0
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(moves))
  assert np.abs(moves["inter_head"]["radius_bias"]).max() > 0 and np.abs(moves["blocks_0"]["attn"]["mat_qkv"]).max() > 0
  with pytest.raises(ValueError, match="draft of scales"):
    scale_radii_loss_fn(edge, var_fns(dataclasses.replace(VAR, sides=(1, 3))), 3, InterDro())


@pytest.mark.slow
def test_losses_of_states():
  fns, edge = dit_fns(DIT), dit_fns(dataclasses.replace(DIT, radius=True))
  params = random_params(fns, 0, scale=0.3)
  head = {name: leaf for name, leaf in random_params(edge, 0, scale=0.3).items() if name not in params}
  generator = np.random.default_rng(0)
  batch = {"states": generator.normal(size=(4, 4)).astype(np.float32), "labels": np.array([0, 1, 2, 0], np.int32)}

  @jax.jit
  def run(params, head, batch):
    (_, (plain, _)), moves = jax.value_and_grad(denoising_loss_fn(fns, 3, copies=3), has_aux=True)(
      params, (), batch, jax.random.key(1)
    )
    taught = denoising_radii_loss_fn(edge, fns, 3, RadiusObjective(), copies=3)
    _, (same, _) = taught({**params, **head}, params, batch, jax.random.key(1))
    other = jax.tree.map(lambda leaf: leaf + 0.3, params)
    _, (apart, _) = taught({**other, **head}, params, batch, jax.random.key(1))
    return plain, moves, same, apart

  plain, moves, same, apart = run(params, head, batch)
  assert float(plain["mse"]) > 0 and float(plain["vb"]) > 0
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(moves))
  assert np.abs(moves["x_embedder"]["weight"]).max() > 0
  assert float(same["eps"]) == pytest.approx(0, abs=1e-8) and float(same["v"]) == pytest.approx(0, abs=1e-8)
  assert float(apart["eps"]) > 1e-4 and float(same["radius"]) > 0
  with pytest.raises(ValueError, match="draft with schedule cosine"):
    denoising_radii_loss_fn(edge, dit_fns(dataclasses.replace(DIT, schedule="cosine")), 3, RadiusObjective())


@pytest.fixture
def digits(tmp_path, monkeypatch):
  """Images of noise as the set of digits."""
  from experiments.train import kl_vae, scale_tokenizer

  for script in (kl_vae, scale_tokenizer):
    monkeypatch.setattr(script, "PROBE", 4)
  return noise_digits(tmp_path, monkeypatch)


def _in_one_go(run):
  """Saves the last state only."""
  return dataclasses.replace(run, loop=dataclasses.replace(run.loop, checkpoint_every=0))


def _train_pair(script, tmp_path, monkeypatch, bundle, **given):
  """Target, draft and edge. Resuming is that of `class_network`, which test_continuous_tokens.py tests."""
  from experiments.train import class_network

  for name in ("smoke-target", "smoke-draft", "smoke-edge"):
    run = dataclasses.replace(script.get_config(name), **given)
    if name == "smoke-edge":
      run = dataclasses.replace(run, start=str(bundle / "draft"), teacher=str(bundle / "target"))
    with monkeypatch.context() as patch:
      share_step(patch, class_network)
      script.train(_in_one_go(run), tmp_path / name, export_to=bundle)


@pytest.mark.slow
def test_a_pair_of_scales_is_trained_and_draws(tmp_path, monkeypatch, digits):
  from experiments.train import class_scales as class_scales
  from experiments.train import scale_tokenizer

  bundle = tmp_path / "digits32-var"
  run = scale_tokenizer.get_config("smoke")
  scale_tokenizer.train(_in_one_go(run), tmp_path / "tokenizer", export_to=bundle)
  _train_pair(class_scales, tmp_path, monkeypatch, bundle, tokenizer=str(bundle / "tokenizer"))
  pipe = load_pipeline(bundle)
  assert pipe.family.classes == digits.classes and list(pipe.drafts) == ["small"]
  assert pipe.defaults.method == "scale-speculative"
  assert pipe.drafts.loaded("small").config.inter_head and pipe.sampling().cfg_scale == 1.5
  # By both networks; tests/studio draws maps by every method.
  out = pipe(["3"], key=jax.random.key(0), method=pipe.method("scale-ciar", tau=1e9, max_window=1, target_prefix=0.34))
  assert out.images.shape == (1, 32, 32, 3) and int(out.counters.local.sum()) == 2


@pytest.mark.slow
def test_a_pair_of_states_is_trained_and_draws(tmp_path, monkeypatch, digits):
  from experiments.train import class_denoising as class_denoising
  from jaxspec.io import checkpoints
  from jaxspec.models.tokenizers.kl_vae import KLVAEConfig, kl_vae_fns

  config = KLVAEConfig(
    base_channels=2, multipliers=(1, 1, 1), num_res_blocks=1, attention_levels=(), z_channels=4, latent_channels=4,
    num_groups=1,
  )  # fmt: skip
  source, bundle = tmp_path / "source", tmp_path / "digits32-dit"
  checkpoints.save(source / "vae", config, jax.jit(kl_vae_fns(config).init)(jax.random.key(0)))
  write_bundle(source, parts={"vae": "vae", "classes": digits.classes, "latent_scale": 0.5})
  _train_pair(class_denoising, tmp_path, monkeypatch, bundle, vae=str(source / "vae"))
  pipe = load_pipeline(bundle)
  assert pipe.family.classes == digits.classes and pipe.family.latent_scale == 0.5 and list(pipe.drafts) == ["small"]
  assert pipe.defaults.method == "step-speculative" and pipe.drafts.loaded("small").config.radius
  # By both networks; tests/studio draws states by every method.
  out = pipe(["3"], key=jax.random.key(0), steps=6, method=pipe.method("step-ciar", tau=1e9, target_prefix=0.5))
  assert out.images.shape == (1, 32, 32, 3) and int(out.counters.local.sum()) == 3


@pytest.mark.slow
def test_bad_runs_get_one_clear_line(tmp_path, digits):
  from experiments.train import class_denoising as class_denoising
  from experiments.train import class_scales as class_scales
  from experiments.train import scale_tokenizer
  from jaxspec.core.overrides import override

  for script in (class_scales, class_denoising):
    with pytest.raises(ValueError, match="target, draft, edge, or smoke-"):
      script.get_config("edges")
    with pytest.raises(ValueError, match="teacher for a network with radii"):
      script.recipe_of(override(script.get_config("smoke-target"), ["teacher=elsewhere"]))
    with pytest.raises(ValueError, match="nowhere"):
      script.recipe_of(override(script.get_config("smoke-target"), ["start=nowhere"]))
  with pytest.raises(ValueError, match="'' or 'smoke'"):
    scale_tokenizer.get_config("emoji")
  with pytest.raises(ValueError, match="make 32 pixels, 24 are made"):
    scale_tokenizer.train(override(scale_tokenizer.get_config("smoke"), ["model.sides=(1, 6)"]), tmp_path / "run")
  with pytest.raises(ValueError, match="seconds"):
    override(class_scales.get_config("smoke-target"), ["seconds=3"])


@pytest.mark.slow
def test_shipped_sizes_stay_small():
  """A bundle in bfloat16 stays below 4 MB: target, edge, and a tokenizer of 0.9 MB."""
  from experiments.train import class_denoising as class_denoising
  from experiments.train import class_scales as class_scales

  for script, make in ((class_scales, var_fns), (class_denoising, dit_fns)):
    sizes = []
    for name in ("target", "edge"):
      shapes = jax.eval_shape(make(script.get_config(name).model).init, jax.random.key(0))
      sizes.append(2 * sum(leaf.size for leaf in jax.tree.leaves(shapes)))
    assert sum(sizes) < 3.1e6 and sizes[0] > 5 * sizes[1], sizes
