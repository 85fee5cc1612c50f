"""Common part of drafters of denoising steps: drafts of states from predictions of their noise."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core.types import Array, Cursor, Draft, Key
from jaxspec.diffusion import chain
from jaxspec.diffusion.chain import StepDistribution
from jaxspec.diffusion.ddpm import PredictFn
from jaxspec.diffusion.step_payloads import drafted_steps
from jaxspec.models.dit.denoising_network import DenoisingNetwork


def draft_steps(
  network: DenoisingNetwork, predict_fn: PredictFn, keys: Key, cursor: Cursor, window: int, num_calls: int
) -> Draft:
  """The next ``window`` states of every row, each drawn by the step predicted at the previous state.

  Args:
    network: gives the schedule of the steps.
    predict_fn: for states ``[B, C]`` with an index ``[B, 1]``.
    keys: ``[B]`` of this round; consumed.
    num_calls: passes of the draft network.
  Returns:
    The draft with `DraftedSteps` as its proposal. Entries after a row's last step are garbage; the loop discards them.
  """
  (number,) = network.numbers(cursor.length, 1).T
  noise = chain.step_normals(keys, jnp.arange(window, dtype=jnp.int32)[None], network.state_dim)
  one = jnp.float32(1.0)

  def distribution(index: Array, x: Array) -> StepDistribution:
    return network.distribution(index, x, predict_fn(index, x))

  states, distributions = chain.follow(distribution, cursor.last, number, noise, one)
  return Draft.chain(states, drafted_steps(distributions, noise, one), window, num_calls)


def check_window(window: int) -> None:
  """Raises a ValueError if a draft window is not positive."""
  if window < 1:
    raise ValueError(f"Must have a draft window of at least 1, we instead got {window}")
