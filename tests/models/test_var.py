"""VAR's transformer agrees with the official one on stored arrays, with and without its cache."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.conditions import ClassLabels
from jaxspec.models.var.scale_blocks import Block
from jaxspec.models.var.var import PUBLISHED_SIZES, VARConfig, scales, var_fns
from tests.models import var_golden as golden

STARTS = scales.starts(golden.SIDES)
INPUTS = golden.arrays("var_tiny_vae")["var_input"]


def _both(model, labels):
  """Conditions of the classes ``labels``, then of the unconditional class."""
  classes = ClassLabels(jnp.asarray(labels))
  null = model.fns.null_condition(model.params, classes)
  return ClassLabels(jnp.concatenate([classes.labels, null.labels]))


def test_every_layer_agrees():
  model, stored = golden.load("var_tiny"), golden.arrays("var_tiny")

  @jax.jit
  def run(params, classes, inputs):
    seen = []

    def spy(call, args, kwargs, context):
      out = call(*args, **kwargs)
      if isinstance(context.module, Block) and context.method_name == "__call__":
        seen.append((args[0], out[0]))
      return out

    with nn.intercept_methods(spy):
      output, _ = model.fns.apply(params, model.fns.condition(params, classes), inputs, first=0, end=6)
    return output, seen

  output, seen = run(model.params, _both(model, stored["labels"]), np.concatenate([INPUTS, INPUTS]))
  np.testing.assert_allclose(seen[0][0][:2], stored["embedded"], atol=golden.TOLERANCE)
  for i, (_, out) in enumerate(seen):
    np.testing.assert_allclose(out[:2], stored[f"block{i}"], atol=golden.TOLERANCE)
  assert len(seen) == model.config.depth and output.logits.dtype == jnp.float32
  np.testing.assert_allclose(
    output.logits, np.concatenate([stored["logits"], stored["logits_uncond"]]), atol=golden.TOLERANCE
  )


@pytest.mark.slow
def test_a_cache_changes_nothing():
  """Shared norms; scales in passes of any size, and stale entries of scales that are read again."""
  model, stored = golden.load("var_saln_tiny"), golden.arrays("var_saln_tiny")

  @jax.jit
  def run(params, classes, inputs):
    conditioned = model.fns.condition(params, classes)
    whole, _ = model.fns.apply(params, conditioned, inputs, first=0, end=6)
    cache, parts = model.fns.init_cache(4), []
    for first, end, last in ((0, 2, 0), (2, 5, 2), (2, 3, 2), (3, 6, 4)):
      given = inputs[:, max(STARTS[first] - 1, 0) : STARTS[end] - 1]
      given = given[:, ::-1] if (first, end) == (2, 5) else given  # to be read again
      output, cache = model.fns.apply(params, conditioned, given, cache, first=first, end=end, logits_from=last)
      parts.append(output)
    return whole, parts

  whole, parts = run(model.params, _both(model, stored["labels"]), np.concatenate([INPUTS, INPUTS]))
  wanted = np.concatenate([stored["logits"], stored["logits_uncond"]])
  np.testing.assert_allclose(whole.logits, wanted, atol=golden.TOLERANCE)
  near = lambda got, first, end: np.testing.assert_allclose(got, whole.logits[:, STARTS[first] : STARTS[end]], atol=1e-4)
  near(parts[0].logits, 0, 2)
  near(parts[2].logits, 2, 3)
  near(parts[3].logits, 4, 6)
  np.testing.assert_allclose(parts[3].features, whole.features[:, STARTS[3] :], atol=1e-4)
  assert np.abs(parts[1].logits[:, : STARTS[3] - STARTS[2]] - parts[2].logits).max() > 0.1


@pytest.mark.slow
def test_bfloat16_stays_close():
  model, stored = golden.load("var_saln_tiny"), golden.arrays("var_saln_tiny")
  fns = var_fns(dataclasses.replace(model.config, dtype="bfloat16"))
  labels = ClassLabels(jnp.asarray(stored["labels"]))

  @jax.jit
  def run(params):
    cache, conditioned, parts = fns.init_cache(2), fns.condition(params, labels), []
    for k in range(6):
      given = INPUTS[:, max(STARTS[k] - 1, 0) : STARTS[k + 1] - 1]
      output, cache = fns.apply(params, conditioned, given, cache, first=k, end=k + 1)
      parts.append(output.logits)
    return jnp.concatenate(parts, axis=1)

  error = np.abs(np.asarray(run(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.params))) - stored["logits"])
  assert error.mean() < 0.1 and np.all(np.isfinite(error))


def test_passes_that_cannot_be():
  model = golden.load("var_saln_tiny")
  conditioned = jax.eval_shape(model.fns.condition, model.params, ClassLabels(jnp.zeros((2,), jnp.int32)))
  run = lambda inputs, **kwargs: jax.eval_shape(
    lambda c, x: model.fns.apply(model.params, c, x, **kwargs), conditioned, inputs
  )
  for first, end in ((1, 2), (0, 7), (2, 2)):
    with pytest.raises(ValueError, match=f"scales from 0 within 0 to 6, we instead got {first} to {end}"):
      run(INPUTS, first=first, end=end)
  with pytest.raises(ValueError, match=r"inputs \[2, 4, 8\] for scales 0 to 2, we instead got \[2, 90, 8\]"):
    run(INPUTS, first=0, end=2)


def test_published_sizes():
  assert VARConfig.named("VAR-d16") == VARConfig()
  for name, (depth, pixels, _) in PUBLISHED_SIZES.items():
    config = VARConfig.named(name)
    assert (config.dim, config.head_dim, config.num_tokens) == (64 * depth, 64, {256: 680, 512: 2240}[pixels])
  assert VARConfig.named("VAR-d36").shared_adaln
  assert var_fns(VARConfig.named("VAR-d20")) is var_fns(VARConfig.named("VAR-d20"))
  with pytest.raises(ValueError, match="a size in VAR-d16, VAR-d20"):
    VARConfig.named("VAR-d12")


@pytest.mark.parametrize(
  ("fields", "words"),
  [
    ({"sides": (2, 4)}, "grow from 1 on"),
    ({"depth": 0}, "depth as an integer of at least 1, we instead got 0"),
    ({"num_heads": 3}, "divisible by the heads, we instead got width 1024 over 3"),
    ({"mlp_ratio": 0.0}, "positive mlp_ratio"),
  ],
)
def test_configs_that_cannot_be(fields, words):
  with pytest.raises(ValueError, match=words):
    VARConfig(**fields)
