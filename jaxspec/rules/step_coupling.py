"""The exact rule for denoising steps as tokens (DiT).

De Bortoli, Galashov, Gretton and Doucet (2025, arXiv 2501.05370):

1. A row is one chain of Gaussian steps, and its tokens are the states. A draft is the next K states and their distributions.
2. The target describes its step from the newest state and from every drafted one, in one pass.
3. A drafted state is accepted or replaced by an exact coupling of the two steps from the state before it
   (`jaxspec.rules.coupled_steps`). The first replacement ends the round.
4. After full acceptance the target's step from the last drafted state is drawn.

Given the state before it, every committed state follows the target's step. The chain therefore has the target's distribution
for any draft. The largest possible acceptance of a step is ``1 - TV`` of the two steps: ``2 Phi(-|D| / 2)`` for equal
deviations, with D the distance of the means in deviations. A step that ends in its mean is never accepted, and the target
takes it.

`jaxspec.rules.path_coupling` is the rule for sequences of tokens with one chain each.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, Key, Verdict
from jaxspec.diffusion.step_payloads import TargetSteps
from jaxspec.diffusion.token_chains import leading, report_at
from jaxspec.rules.coupled_steps import Coupler


class StepReport(NamedTuple):
  """Metrics of the rule about denoising steps, leaves ``[B, N]``; 0 where a draft was accepted."""

  tries: Array  # int32, proposals drawn to replace a rejected state
  fallback: Array  # bool, no proposal was accepted within the cap, so that the last one was taken (not exact)


@dataclasses.dataclass(frozen=True)
class StepCoupling:
  """The rule; see the module docstring.

  Attributes:
    coupler: test and replacement of one step.
  """

  coupler: Coupler = Coupler()

  def __call__(self, keys: Key, draft: Draft, target: TargetSteps) -> Verdict:
    """Judges drafted steps, or draws one if ``K`` is 0.

    Args:
      keys: ``[B]`` of this verification; consumed.
      draft: states ``[B, K, C]`` with `DraftedSteps`. The first ``num_drafted`` of a row are judged; other slots are
        padding.
      target: of the same states.
    Returns:
      The accepted states of each row and one more, with `StepReport` as metrics.
    """
    rows, window, _ = draft.tokens.shape
    if window == 0:
      none = jnp.zeros((rows,), jnp.int32)
      return Verdict.one(none, _own(target, none), metrics=report_at(0, none, StepReport(none, none > 0)))
    coupler, drafted = self.coupler, draft.proposal
    mean, log_std = target.mean[:, :-1], target.log_std[:, :-1]
    normals = coupler.normals(keys, mean.shape)
    tested = coupler.couple(drafted, mean, log_std, normals, coupler.log_uniforms(keys, mean.shape[:-1]))
    num_accepted = leading(tested.accepted, draft)
    rejected = num_accepted < draft.num_drafted

    # The first rejected step again. Rows that need no replacement couple equal steps: a loop of proposals ends at once.
    at = jnp.minimum(num_accepted, window - 1)
    replaced = rejected & jnp.all(jnp.isfinite(at_position(log_std, at)), axis=1)
    here = lambda tree: jax.tree.map(lambda leaf: jnp.where(replaced[:, None], at_position(leaf, at), 0.0), tree)
    refuse = jnp.where(replaced, jnp.inf, -jnp.inf)  # as log u: every draft is rejected, or every draft is accepted
    corrected = coupler.couple(here(drafted), here(mean), here(log_std), here(normals), refuse, keys)
    next_token = jnp.where(replaced[:, None], corrected.x, _own(target, num_accepted))
    report = StepReport(*coupler.replacements(corrected, replaced))
    return Verdict.one(num_accepted, next_token, metrics=report_at(window, num_accepted, report))


def _own(target: TargetSteps, position: Array) -> Array:
  """The target's own draw ``[B, C]`` of the step at ``position [B]``."""
  mean, log_std, noise = (at_position(leaf, position) for leaf in target)
  return mean + jnp.exp(log_std) * noise
