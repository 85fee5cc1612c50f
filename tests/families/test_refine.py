"""The remaining steps of a decode with ``stop``, taken for all tokens at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import rng
from jaxspec.core.network import Network
from jaxspec.diffusion.chain import token_noise
from jaxspec.families.refine import refine_tokens
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.sampling import ContinuousSampling
from tests.helpers import random_params

CONFIG = CausalTokensConfig(
  num_tokens=4, latent_channels=3, num_classes=3, dim=8, num_layers=1, num_heads=2, diffloss_width=8, diffloss_depth=1
)
LABELS = ClassLabels(jnp.asarray([0, 2, 1]))


@pytest.mark.slow
def test_refined_tokens_take_the_steps_left_out():
  """One pass over all positions equals token by token from each prefix.

  The reference is one program, so that its hundreds of operations are not compiled one by one.
  """
  head = causal_token_fns(CONFIG)
  params = random_params(head.network, 0, scale=0.3)
  noisy = jax.random.normal(jax.random.key(1), (3, 4, 3))
  keys = jax.random.split(jax.random.key(3), 3)
  network, sampling = Network(head, params), ContinuousSampling(5, stop=2)
  clean = jax.jit(functools.partial(refine_tokens, head, sampling=sampling))(params, keys, noisy, LABELS)
  fns = ContinuousSampling(5).bind(head)

  @jax.jit
  def one_by_one(params, keys, noisy):
    own, tokens = rng.stream_keys(keys, rng.Stream.REFINE, 0), []
    for position in range(4):
      z = head.network.apply(params, Prefixed(LABELS, noisy[:, :position]))[0].features[:, -1:]
      noise = token_noise(own, np.full((1, 1), position), 2, head.token_dim)
      distribution, x = fns.distribution(params, z, np.full((1, 1), position)), noisy[:, position : position + 1]
      for step in (1, 0):
        at = distribution(np.int32(step), x)
        x = at.mean + (step > 0) * jnp.exp(0.5 * at.log_variance) * noise.steps[:, :, step]
      tokens.append(x[:, 0])
    return jnp.stack(tokens, axis=1)

  np.testing.assert_allclose(clean, one_by_one(params, keys, noisy), rtol=1e-4, atol=1e-4)
  assert network.is_guided and ContinuousSampling(5, stop=2, refine=True).signal() == 1 > sampling.signal()
  with pytest.raises(ValueError, match="stop early"):
    refine_tokens(head, params, keys, noisy, LABELS, sampling=ContinuousSampling(5))
