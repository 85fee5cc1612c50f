"""Schedules, masks and the two optimisers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxspec.training.optimizer import OptimizerConfig, decay_mask, is_hidden_matrix, make_optimizer, schedule

PARAMS = {
  "tok_embeddings": {"weight": jnp.ones((6, 4))},
  "layers_0": {"wo": {"weight": jnp.ones((4, 4))}, "norm": {"weight": jnp.ones((4,))}},
  "output": {"weight": jnp.ones((6, 4))},
}


def updates_of(optimizer, gradients, params):
  """The first update, in one program."""
  return jax.jit(lambda gradients, params: optimizer.update(gradients, optimizer.init(params), params)[0])(gradients, params)


def test_schedule():
  rate = schedule(1.0, 10, 110, 0.1)
  np.testing.assert_allclose([rate(0), rate(10), rate(60), rate(110), rate(500)], [0.1, 1.0, 0.55, 0.1, 0.1], rtol=1e-5)
  assert schedule(1.0, 100, 20)(10) == 1.0  # a warm-up longer than the run is shortened
  assert np.isfinite(schedule(1.0, 0, 1)(0))


def test_masks():
  assert decay_mask(PARAMS)["layers_0"] == {"wo": {"weight": True}, "norm": {"weight": False}}
  taken = jax.tree_util.tree_map_with_path(is_hidden_matrix, PARAMS)
  assert [name for name, tree in taken.items() if any(jax.tree.leaves(tree))] == ["layers_0"]
  assert taken["layers_0"]["norm"]["weight"] is False


def test_weight_decay_leaves_vectors_alone():
  config = OptimizerConfig(learning_rate=0.1, warmup_steps=0, weight_decay=0.5, clip_norm=0.0)
  optimizer = make_optimizer(config, 100)
  updates = updates_of(optimizer, jax.tree.map(jnp.zeros_like, PARAMS), PARAMS)
  np.testing.assert_allclose(updates["output"]["weight"], -0.05, rtol=1e-3)
  np.testing.assert_array_equal(updates["layers_0"]["norm"]["weight"], 0)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_optimizers_lower_the_loss(name):
  config = OptimizerConfig(name=name, learning_rate=0.05, warmup_steps=2, weight_decay=0.0, muon_learning_rate=0.1)
  optimizer = make_optimizer(config, 40)
  goal = jax.tree.map(lambda x: x + jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), PARAMS)
  loss = lambda p: sum(jnp.sum(jnp.square(a - b)) for a, b in zip(jax.tree.leaves(p), jax.tree.leaves(goal)))

  @jax.jit
  def step(params, state):
    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state

  params, state = PARAMS, optimizer.init(PARAMS)
  for _ in range(40):
    params, state = step(params, state)
  assert loss(params) < 0.5 * loss(PARAMS)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_frozen_parameters_stay_and_do_not_count_for_clipping(name):
  kwargs = dict(name=name, learning_rate=0.1, warmup_steps=0, weight_decay=0.5, clip_norm=1.0)
  gradients = {**jax.tree.map(lambda x: 0.01 * x, PARAMS), "output": {"weight": jnp.full((6, 4), 1e6)}}
  found = {}
  for frozen in ((), ("output",)):
    optimizer = make_optimizer(OptimizerConfig(**kwargs, frozen=frozen), 100)
    found[frozen] = updates_of(optimizer, gradients, PARAMS)
  np.testing.assert_array_equal(found["output",]["output"]["weight"], 0)
  assert (found[()]["output"]["weight"] != 0).all()
  alone = make_optimizer(OptimizerConfig(**kwargs), 100)
  rest = {key: part for key, part in PARAMS.items() if key != "output"}
  updates = updates_of(alone, {key: gradients[key] for key in rest}, rest)
  for key in rest:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found["output",][key], updates[key])
  for wrong in ("outptu", "out", "output/bias", "output/weight/0"):
    with pytest.raises(ValueError, match=f"'{wrong}'"):
      make_optimizer(OptimizerConfig(frozen=(wrong,)), 100).init(PARAMS)


def test_frozen_paths_reach_into_parameters():
  params = {
    "target": {name: {"weight": jnp.ones((2, 2))} for name in ("layers_0", "layers_11", "output")},
    "text": jnp.ones(3),
  }
  optimizer = make_optimizer(OptimizerConfig(warmup_steps=0, frozen=("target/layers_*", "text")), 100)
  moved = jax.tree.map(lambda update: bool((update != 0).all()), updates_of(optimizer, params, params))
  assert moved == {
    "target": {"layers_0": {"weight": False}, "layers_11": {"weight": False}, "output": {"weight": True}}, "text": False
  }  # fmt: skip


def test_muon_orthogonalises_hidden_matrices_only():
  config = OptimizerConfig(name="muon", warmup_steps=0, weight_decay=0.0, clip_norm=0.0)
  optimizer = make_optimizer(config, 100)
  grads = jax.tree.map(lambda x: jax.random.normal(jax.random.key(0), x.shape), PARAMS)
  updates = updates_of(optimizer, grads, PARAMS)
  singular = np.linalg.svd(updates["layers_0"]["wo"]["weight"], compute_uv=False)
  assert singular.max() / singular.min() < 3
  np.testing.assert_allclose(  # the first step of Adam is the sign, up to a factor
    updates["output"]["weight"] / updates["output"]["weight"][0, 0],
    jnp.sign(grads["output"]["weight"] * grads["output"]["weight"][0, 0]),
    rtol=1e-3,
  )


def test_bad_configs_are_errors():
  with pytest.raises(ValueError, match="'adamw' or 'muon'"):
    OptimizerConfig(name="sgd")
  with pytest.raises(ValueError, match="positive learning rate"):
    OptimizerConfig(learning_rate=0.0)
