"""The Inter-Head on a trunk: outputs, initialisation, guidance, and checkpoint."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.io import checkpoints
from jaxspec.models import guidance
from jaxspec.models.chameleon.chameleon import ChameleonConfig, chameleon_fns
from jaxspec.models.chameleon.chameleon_drawing import drawing_fns, drawing_params
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.guidance import Guided
from jaxspec.models.heads.inter_head import INITIAL_RADIUS, InterHeadConfig, edge_from_cloud, inter_head_fns
from jaxspec.models.llamagen import llamagen_fns
from tests.helpers import TARGET, labels, random_params

B, T = 2, 5
TOKENS = jnp.asarray(np.random.default_rng(0).integers(13, size=(B, T)), jnp.int32)


def edge(num_heads=1, **options):
  cloud = llamagen_fns(TARGET)
  config, params = edge_from_cloud(TARGET, random_params(cloud, 2), 1, jax.random.key(0), num_heads=num_heads, **options)
  return config, inter_head_fns(config), params


def whole(fns, params):
  return fns.apply(params, Prefixed(labels(B), TOKENS))[0]


@pytest.mark.slow
def test_a_fresh_edge_network_has_the_cloud_s_first_layers_and_equal_radii():
  config, fns, params = edge()
  assert config.trunk == dataclasses.replace(TARGET, num_layers=1) and "layers_1" not in params["trunk"]
  out = whole(fns, params)
  trunk = llamagen_fns(config.trunk).apply(params["trunk"], Prefixed(labels(B), TOKENS))[0]
  np.testing.assert_array_equal(out.logits, trunk.logits)
  np.testing.assert_array_equal(out.intervals.centre[:, :, 0], trunk.logits)
  np.testing.assert_allclose(out.intervals.radius, INITIAL_RADIUS, rtol=1e-6)
  assert jax.tree.structure(jax.eval_shape(fns.init, jax.random.key(0))) == jax.tree.structure(params)


@pytest.mark.slow
def test_formula_clamp_and_cached_passes():
  config, fns, params = edge(num_heads=2, max_radius=1.5)
  generator = np.random.default_rng(1)
  params["head"] = {k: jnp.asarray(generator.normal(size=v.shape), jnp.float32) for k, v in params["head"].items()}
  out, head = whole(fns, params), params["head"]
  h = np.float64(out.features)
  weight = np.concatenate([params["trunk"]["output"]["weight"], head["centre_weight"]])
  centre = (h @ np.float64(weight).T).reshape(B, -1, 2, 13) + np.asarray(head["centre_bias"])
  radius = (h @ np.float64(head["radius_weight"]).T).reshape(B, -1, 2, 13) + np.asarray(head["radius_bias"])
  np.testing.assert_allclose(out.intervals.centre, centre, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(out.intervals.radius, np.minimum(np.logaddexp(0, radius), 1.5), rtol=1e-4, atol=1e-4)
  assert float(out.intervals.radius.max()) == 1.5
  # Prefill, then tokens one after the other, with the distribution of one input only.
  cache = fns.init_cache(B, 16)
  _, cache = fns.apply(params, labels(B), cache, positions=jnp.arange(1)[None])
  step, _ = fns.apply(
    params, TOKENS[:, :3], cache, positions=1 + jnp.arange(3)[None], logits_at=jnp.array([2, 1], jnp.int32)
  )
  for row, position in ((0, 3), (1, 2)):
    np.testing.assert_allclose(step.intervals.centre[row, 0], out.intervals.centre[row, position], atol=2e-4)
    np.testing.assert_allclose(step.logits[row, 0], out.intervals.centre[row, position, 0], atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["conditional", "arithmetic"])
def test_guidance(rule):
  _, fns, params = edge()
  params["head"]["radius_weight"] = 0.3 * jax.random.normal(jax.random.key(1), params["head"]["radius_weight"].shape)
  null = jaxspec.models.conditions.ClassLabels(jnp.full((B,), TARGET.num_classes, jnp.int32))
  cond, free = (fns.apply(params, Prefixed(c, TOKENS))[0].intervals for c in (labels(B), null))
  guided = guidance.guided(fns, radius=rule)
  out, _ = guided.apply(
    Guided(params, jnp.float32(3.0)), Prefixed(labels(B), TOKENS), None, positions=jnp.arange(T + 1)[None]
  )
  np.testing.assert_allclose(out.intervals.centre, free.centre + 3 * (cond.centre - free.centre), atol=1e-3)
  expected = cond.radius if rule == "conditional" else 3 * cond.radius + 2 * free.radius
  np.testing.assert_allclose(out.intervals.radius, expected, rtol=1e-4)
  np.testing.assert_allclose(out.logits, out.intervals.centre[:, :, 0], atol=1e-5)
  with pytest.raises(ValueError, match="radius rule"):
    guidance.guided(fns, radius="wide")


@pytest.mark.slow
def test_lens_reads_the_layers_below_and_costs_nothing_unread():
  """Norm and output matrix on layer 1 give the logits of a cloud of one layer, guided like all logits."""
  cloud = dataclasses.replace(TARGET, num_layers=2)
  params = random_params(llamagen_fns(cloud), 2)
  both = [edge_from_cloud(cloud, params, layers, jax.random.key(0)) for layers in (1, 2)]
  shallow, deep = (whole(inter_head_fns(config), weights) for config, weights in both)
  assert shallow.intervals.lens.shape == (B, T + 1, 0, 13)
  np.testing.assert_allclose(deep.intervals.lens[:, :, 0], shallow.logits, atol=1e-4)
  assert np.abs(deep.logits - shallow.logits).max() > 0.1
  config, weights = both[1]
  guided, cond = guidance.guided(inter_head_fns(config)), Prefixed(labels(B), TOKENS)
  run = lambda scale: guided.apply(Guided(weights, scale), cond, None, positions=jnp.arange(T + 1)[None])[0]
  np.testing.assert_allclose(run(jnp.float32(1.0)).intervals.lens, deep.intervals.lens, atol=1e-4)
  compiled = lambda read: jax.jit(lambda w: read(whole(inter_head_fns(config), w))).lower(weights).compile()
  dots = lambda read: compiled(read).as_text().count("dot(")
  assert dots(lambda out: out.logits) < dots(lambda out: (out.logits, out.intervals.lens))


@pytest.mark.slow
def test_the_first_layers_of_a_chameleon():
  """The centre is the logits of these layers for local ids; the lens reads the layer below; prompts are read."""
  config = ChameleonConfig(
    vocab_size=14, dim=8, num_layers=3, num_heads=2, ffn_hidden=12, num_codes=6, first_code=3, rows=2, columns=3
  )
  params = drawing_params(config, random_params(chameleon_fns(config), 2))
  made, weights = edge_from_cloud(config, params, 2, jax.random.key(0), num_heads=2)
  assert set(weights["trunk"]) == {"embed_tokens", "layers_0", "layers_1", "norm", "lm_head"}
  prompt = Prompt(jnp.asarray([[1, 9, 2], [0, 11, 2]]), jnp.asarray([[True] * 3, [False, True, True]]))
  inputs, fns = Prefixed(prompt, TOKENS % 6), inter_head_fns(made)
  out = jax.jit(fns.apply)(weights, inputs)[0]
  for layers, logits in ((2, out.intervals.centre[:, :, 0]), (1, out.intervals.lens[:, :, 0])):
    shallow = drawing_fns(dataclasses.replace(config, num_layers=layers))
    expected = jax.jit(shallow.apply)(params, inputs)[0].logits
    np.testing.assert_allclose(logits[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(logits[1, 1:], expected[1, 1:], atol=1e-5)  # one position is padding
  np.testing.assert_allclose(out.intervals.radius, INITIAL_RADIUS, rtol=1e-6)
  assert jax.tree.structure(jax.eval_shape(fns.init, jax.random.key(0))) == jax.tree.structure(weights)


@pytest.mark.slow
def test_checkpoint_and_config(tmp_path):
  config, fns, params = edge(num_heads=2)
  checkpoints.save(tmp_path / "edge", config, params, meta={"calibration": {"thresholds": []}})
  loaded = checkpoints.load(tmp_path / "edge")
  assert loaded.config == config and loaded.fns is fns and loaded.family_name == "inter_head"
  assert loaded.config.vocab_size == 13 and loaded.config.grid == 4
  jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
  for bad in (dict(num_heads=0), dict(max_radius=0.0), dict(combination="sum")):
    with pytest.raises(ValueError, match="Must have"):
      InterHeadConfig(TARGET, **bad)
  with pytest.raises(ValueError, match="1 to 1 layers"):
    edge_from_cloud(TARGET, params["trunk"], 2, jax.random.key(0))
