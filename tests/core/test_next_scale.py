"""Generation scale by scale agrees with the official samplers on stored arrays; rows, networks and settings."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import rng
from jaxspec.core.state import Origin
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.tokenizers.scale_quantizer import ScaleQuantizer
from jaxspec.models.tokenizers.var_vae import VARVAEConfig, var_vae_fns
from jaxspec.models.var.var import VARConfig, scales, var_fns
from jaxspec.sampling.scale_network import scale_sampling
from jaxspec.testing import assert_same_distribution, fast_keys
from jaxspec.testing.toys import softmax
from tests.core.next_scale import ScaleParams, generate_scales
from tests.models import var_golden as golden

KEY = jax.random.key(0)
SCALE_OF = scales.scale_of_position(golden.SIDES)


def _labels(stored):
  return ClassLabels(jnp.asarray(stored["labels"]))


def _generate(stem, stored, sampling, top_k, **kwargs):
  vae, model = golden.load("var_tiny_vae"), golden.load(stem)
  params = ScaleParams(model.params, vae.params, kwargs.pop("weights", ()))
  out = generate_scales(
    model.fns, vae.fns, params, KEY, _labels(stored), sampling, top_k=top_k, uniforms=jnp.asarray(stored["uniforms"]),
    record=True, **kwargs,
  )  # fmt: skip
  return out, out.report.record


def _agrees(stored, kind, out, record, cfg):
  """Logits, tokens and images of one stored run."""
  weight = cfg * SCALE_OF / SCALE_OF[-1]
  error = np.abs(np.asarray(record.logits) - stored[f"{kind}_logits"]).max(axis=(0, 2))
  assert np.all(error <= golden.TOLERANCE * (1 + 2 * weight)), error
  np.testing.assert_array_equal(out.tokens, stored[f"{kind}_tokens"])
  vae = golden.load("var_tiny_vae")
  image = (jnp.clip(jax.jit(vae.fns.decode_latent)(vae.params, out.report.total), -1, 1) + 1) / 2
  np.testing.assert_allclose(image, golden.channels_last(stored[f"{kind}_image"]), atol=golden.IMAGES)


def _same_probs(got, expected):
  np.testing.assert_allclose(got, expected, atol=1e-4)
  np.testing.assert_array_equal(np.asarray(got) > 0, expected > 0)


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["var_tiny", "var_saln_tiny"])
def test_official_sampler(stem):
  """Truncation is the same in both runs; it never touches the arg-max."""
  stored = golden.arrays(stem)
  cfg, top_k, top_p = stored["cfg_topk_topp_sampled"].tolist()
  out, record = _generate(stem, stored, scale_sampling(6, cfg=cfg, top_p=top_p), int(top_k))
  _agrees(stored, "sampled", out, record, cfg)
  _same_probs(record.probs, stored["sampled_probs"])
  cfg = float(stored["cfg_greedy"])
  out, record = _generate(stem, stored, scale_sampling(6, cfg=cfg, top_p=top_p, temperature=0.0), int(top_k))
  _agrees(stored, "greedy", out, record, cfg)
  np.testing.assert_allclose(record.totals, golden.channels_last(stored["greedy_f_hats"], 2), atol=golden.IMAGES)
  np.testing.assert_allclose(record.inputs, stored["greedy_inputs"], atol=golden.IMAGES)
  assert out.commit_round.tolist() == [SCALE_OF.tolist()] * 2 and out.lengths.tolist() == [91, 91]
  counters = out.counters
  assert [c.tolist() for c in (counters.rounds, counters.target_calls, counters.draft_calls)] == [[6, 6], [6, 6], [0, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sampled", "greedy"])
def test_official_collaborative_decoding(kind):
  stored, refiner = golden.arrays("var_code_tiny"), golden.load("var_small_tiny")
  cfg, last = float(stored["cfg"]), int(stored["draft_scales"])
  temperature = jnp.asarray(stored["temp"]) * (kind == "sampled")
  sampling = scale_sampling(6, cfg=cfg, top_p=float(stored["top_p"]))._replace(temperature=temperature)
  top_k = tuple(stored["top_k"].tolist())
  out, record = _generate("var_tiny", stored, sampling, top_k, refiner=refiner.fns, refine_from=last, weights=refiner.params)
  _agrees(stored, kind, out, record, cfg)
  if kind == "sampled":
    _same_probs(record.probs, stored["sampled_probs"])
  handed_over = golden.channels_last(stored[f"{kind}_f_hat_draft"])
  np.testing.assert_allclose(record.totals[last - 1], handed_over, atol=golden.IMAGES)
  hub = stored[f"{kind}_token_hub"]
  np.testing.assert_allclose(record.inputs[:, : hub.shape[1]], hub, atol=golden.IMAGES)
  start = scales.starts(golden.SIDES)[last]
  assert out.counters.local.tolist() == [91 - start] * 2 and out.counters.draft_calls.tolist() == [3, 3]
  assert np.all((np.asarray(out.origin) == Origin.LOCAL) == (np.arange(91) >= start))


# Toy networks.


@functools.cache
def _toy(sides=(1, 2, 3)):
  """Random networks of five codes. The tokenizer has codebook and convolutions only, as the sampler needs."""
  fns = var_fns(VARConfig(depth=1, dim=8, num_heads=2, vocab_size=5, code_dim=4, num_classes=3, sides=sides))
  vae = var_vae_fns(VARVAEConfig(2, (1, 1), 1, 5, 4, num_phis=2, sides=sides, num_groups=1))
  draw = np.random.default_rng(0)
  normal = lambda leaf: jax.device_put(np.float32(draw.normal(size=leaf.shape) * 0.5))
  random = lambda template: jax.tree.map(normal, template)
  quantizer = ScaleQuantizer(5, 4, sides, 2)
  quantize = jax.eval_shape(quantizer.init, KEY, jnp.zeros((1, sides[-1], sides[-1], 4)))["params"]
  params = ScaleParams(random(jax.eval_shape(fns.init, KEY)), {"quantize": random(quantize)})
  return types.SimpleNamespace(fns=fns, vae=vae, params=params)


def _draw(toy, rows, key, **kwargs):
  params = toy.params._replace(refiner=toy.params.target) if "refiner" in kwargs else toy.params
  labels, sampling = ClassLabels(jnp.arange(rows) % 3), scale_sampling(len(toy.fns.sides), cfg=1.0)
  return generate_scales(toy.fns, toy.vae, params, key, labels, sampling, **kwargs)


@pytest.mark.slow
def test_rows_and_uniforms():
  """A row alone equals the row in a batch, with the uniforms of its key, scale and position."""
  toy, keys = _toy((1, 2)), rng.row_keys(jax.random.key(3), 4)
  together = _draw(toy, 4, keys)
  of_scale = lambda k: rng.uniforms(rng.of_token(rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0)), k), (k + 1) ** 2)
  alone = _draw(toy, 1, jax.random.key(9), uniforms=jnp.concatenate([of_scale(0), of_scale(1)], axis=1)[:1])
  assert alone.tokens.tolist() == together.tokens[:1].tolist()
  assert len({tuple(row) for row in together.tokens.tolist()}) > 1


@pytest.mark.slow
def test_a_refiner_that_is_the_target_changes_nothing():
  toy, keys = _toy(), rng.row_keys(jax.random.key(3), 64)
  for last in (1, 2):
    refined = _draw(toy, 64, keys, refiner=toy.fns, refine_from=last)
    assert refined.tokens.tolist() == _draw(toy, 64, keys).tokens.tolist()


@pytest.mark.slow
def test_maps_follow_the_distribution_of_the_network():
  """Pairs of tokens of scales 0 and 1, against the probabilities of all pairs from passes without a cache."""
  toy, rows = _toy(), 1 << 14
  sampling = scale_sampling(3, cfg=1.0, temperature=1.3)
  labels = ClassLabels(jnp.ones((rows,), jnp.int32))
  out = generate_scales(toy.fns, toy.vae, toy.params, fast_keys(5, rows), labels, sampling)
  pairs = np.asarray(out.tokens)[:, [0, 3]]
  maps = jnp.arange(5, dtype=jnp.int32)[:, None]  # all values of scale 0
  classes = ClassLabels(jnp.asarray([1] * 5 + [3] * 5, jnp.int32))

  @jax.jit
  def scored(params):
    values = toy.vae.value(params.tokenizer, maps, 0)
    inputs = jnp.einsum("ph,qw,bhwc->bpqc", *[scales.area_matrix(3, 2)] * 2, values).reshape(5, 4, 4)
    conditioned = toy.fns.condition(params.target, classes)
    return toy.fns.apply(params.target, conditioned, jnp.concatenate([inputs, inputs]), first=0, end=2)[0].logits

  conditional, null = np.split(np.asarray(scored(toy.params)), 2)
  probs = lambda logits: softmax(logits / 1.3)
  of_first = probs(conditional[0, 0])  # unguided
  of_second = probs(1.5 * conditional[:, 3] - 0.5 * null[:, 3])  # the second of three scales has half the weight
  assert_same_distribution(pairs, of_first[:, None] * of_second)


def test_official_weights_of_guidance():
  sampling = scale_sampling(5, cfg=2.0, top_p=0.9)
  np.testing.assert_allclose(sampling.guidance, [0, 0.5, 1, 1.5, 2])
  assert sampling.top_p.tolist() == pytest.approx([0.9] * 5) and sampling.temperature.tolist() == [1.0] * 5
  assert scale_sampling(5).guidance is None and scale_sampling(5).top_p is None
