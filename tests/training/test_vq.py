"""Code usage and the restart of dead codes."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.training.vq_loss import CodeUsage, VQObjective, restart_dead_codes


def test_only_dead_codes_restart_and_only_when_due():
  objective = VQObjective(restart_every=5, restart_until=20, restart_below=0.5)
  restart = restart_dead_codes(objective)
  params = {"codebook": jnp.zeros((3, 2)), "other": jnp.ones(())}
  usage = CodeUsage(jnp.array([0.4, 0.6, 0.0]), jnp.ones((3, 2)))
  for step, due in ((4, True), (5, False), (19, True), (24, False)):
    new, after = restart(params, usage, jnp.int32(step), jax.random.key(0))
    changed = np.any(np.asarray(new["codebook"]) != 0, axis=1)
    np.testing.assert_array_equal(changed, [due, False, due])
    if due:
      np.testing.assert_allclose(new["codebook"][0], 1, atol=0.01)
      assert jnp.all(after.counts >= objective.restart_below)
    else:
      np.testing.assert_array_equal(after.counts, usage.counts)
    assert new["other"] == 1
