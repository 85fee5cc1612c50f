"""The exact acceptance rule for continuous tokens: it couples the steps of the chains, not the tokens.

De Bortoli, Galashov, Gretton and Doucet (2025, arXiv 2501.05370) speculate over the denoising steps of one sample. A drafted
state is accepted or replaced so that it follows the target's step exactly (`jaxspec.rules.couplings`). This rule judges
whole drafted tokens of a sequence in the same way:

1. The first ``shared_steps`` steps of both chains use the same noise, each chain along its own path. This noise has the same
   distribution under both models, so the rest may be conditioned on it.
2. All other steps are coupled. The target describes its step at every drafted state in one pass of its head. The first
   coupled step starts from the target's own state. A later step only matters if all steps before it were accepted.
3. A token is accepted iff every coupled step of its chain is accepted, the last one included. It is then a sample of the
   target's chain, and equals the draft, on which later drafts depend, bit for bit.
4. The first token with a rejected step takes the corrected state at that step. From there the target's chain runs to its end
   on fresh noise. Later drafts are discarded. After full acceptance the target's chain draws one more token.

Given the committed past, every committed step follows the target's distribution, and so do the tokens: the rule is lossless
for any draft. A chain that ends in its mean cannot satisfy 3, because two means are never equal. The rule therefore needs
chains that end with noise. ``shared_steps = T - 1`` is then the published test without its Sigma product (`PathRatio` with
``sigma="none"``); ``shared_steps = 0`` couples the whole path.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, Key, Verdict
from jaxspec.diffusion import chain
from jaxspec.diffusion.chain import Chain, TokenNoise
from jaxspec.diffusion.token_chains import TargetChains, TokenReport, leading, report_at
from jaxspec.rules.coupled_steps import Coupler

# Separates the keys of the remaining steps from those of the couplings, in stream VERIFY.
_FINISH = 2


class DraftPath(NamedTuple):
  """`DraftedChains.chains`: the coupled steps of a drafted chain, the last step first; leaves ``[B, K, R, C]``.

  The shared steps are not stored: their noise is drawn again from the draft's keys.
  """

  state: Array  # input of each step
  mean: Array
  log_std: Array  # the temperature included
  noise: Array


@dataclasses.dataclass(frozen=True)
class PathCoupling:
  """The exact rule; a `jaxspec.diffusion.token_chains.TokenRule`.

  Attributes:
    shared_steps: number of leading steps on shared noise; None is all but the last one. Each shared step costs the target
      one sequential pass of its head. All other steps are coupled and have to be accepted.
    coupling: see `jaxspec.rules.coupled_steps.Coupler`, also for ``eta`` and ``max_tries``. `TokenReport.fallback` is True
      where ``max_tries`` is reached.
    eta: damping of ``maximal``.
    max_tries: cap on its proposals for a rejected step.
  Raises:
    ValueError: for a setting out of range.
  """

  shared_steps: int | None = None
  coupling: str = "maximal"
  eta: float = 0.99
  max_tries: int = 2000

  def __post_init__(self):
    if self.shared_steps is not None and self.shared_steps < 0:
      raise ValueError(f"Must have shared_steps of at least 0, we instead got {self.shared_steps}")
    Coupler(self.coupling, self.eta, self.max_tries)  # raises for the others

  @property
  def coupler(self) -> Coupler:
    """The coupling of one step."""
    return Coupler(self.coupling, self.eta, self.max_tries)

  def check(self, num_steps: int, noisy_end: bool) -> None:
    """See `TokenRule.check`."""
    if not noisy_end:
      raise ValueError("Must have chains that end with noise (stop) for the exact rule, we instead got an end in the mean")
    if self.num_coupled(num_steps) < 1:
      raise ValueError(f"Must have shared_steps below the {num_steps} steps of a chain, we instead got {self.shared_steps}")

  def num_coupled(self, num_steps: int) -> int:
    """Number ``R`` of coupled steps of a chain."""
    return 1 if self.shared_steps is None else num_steps - self.shared_steps

  def describe(self, drawn: Chain, noise: TokenNoise, temperature: Array) -> DraftPath:
    """See `TokenRule.describe`."""
    steps = self.num_coupled(noise.steps.shape[-2])
    of_chain = lambda leaf: jnp.moveaxis(leaf[:steps, :, 0], 0, 1)  # [T, B, 1, C] -> [B, R, C]
    states, distributions = drawn.recorded()
    log_std = 0.5 * of_chain(distributions.log_variance) + jnp.log(temperature)
    return DraftPath(of_chain(states), of_chain(distributions.mean), log_std, noise.steps[:, 0, :steps])

  def __call__(self, keys: Key, draft: Draft, target: TargetChains) -> Verdict:
    """See `TokenRule`."""
    rows, window = draft.tokens.shape[:2]
    steps = self.num_coupled(target.num_steps)
    noise = target.noise(keys, draft)
    distribution_fn = target.distribution(target.z, target.slot)
    # The target's own states after the shared steps, for all K + 1 tokens: the input of step R - 1.
    begin = chain.run(distribution_fn, noise, target.temperature, noisy_end=True, down_to=steps).token
    finish_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(_FINISH))
    finish = lambda position, x, left: self._finish(target.column(position), x, left, finish_keys)
    if window == 0:
      none = jnp.zeros((rows,), jnp.int32)
      token = finish(none, begin[:, 0], jnp.full((rows,), steps))
      return Verdict.one(none, token, metrics=report_at(0, none, TokenReport(none, none > 0, none)))

    path: DraftPath = draft.proposal.chains
    drafts = target._replace(z=target.z[:, :-1], slot=target.slot[:, :-1])
    states = jnp.concatenate([path.state[:, :, :-1], begin[:, :-1, None]], axis=2)  # [B, K, R, C]
    mean, log_std = self._target_steps(drafts, states)
    coupler = self.coupler
    normals = coupler.normals(keys, path.noise.shape)
    tested = coupler.couple(path, mean, log_std, normals, coupler.log_uniforms(keys, path.noise.shape[:-1]))
    num_accepted = leading(jnp.all(tested.accepted, axis=2), draft)
    rejected = num_accepted < draft.num_drafted

    # The first rejected step (the highest number) of the first rejected token.
    position = jnp.minimum(num_accepted, window - 1)
    flags = at_position(tested.accepted, position)  # [B, R]
    number = jnp.max(jnp.where(flags, -1, jnp.arange(steps)[None]), axis=1)  # [B]; -1 in rows that accept the token
    here = lambda leaf: at_position(at_position(leaf, position), jnp.maximum(number, 0))  # [B, K, R, C] -> [B, C]
    at_step = lambda tree: jax.tree.map(here, tree)
    refuse = jnp.where(rejected, jnp.inf, -jnp.inf)  # as log u: every draft is rejected, or every draft is accepted
    corrected = coupler.couple(at_step(path), here(mean), here(log_std), at_step(normals), refuse, keys)
    x = jnp.where(rejected[:, None], corrected.x, at_position(begin, num_accepted))
    next_token = finish(num_accepted, x, jnp.where(rejected, number, steps))
    tries, fallback = coupler.replacements(corrected, rejected)
    report = TokenReport(tries, fallback, steps=jnp.where(rejected, target.num_steps - 1 - number, 0))
    return Verdict.one(num_accepted, next_token, metrics=report_at(window, num_accepted, report))

  def _target_steps(self, drafts: TargetChains, states: Array) -> tuple[Array, Array]:
    """Mean and log deviation ``[B, K, R, C]`` of the target's steps from ``states [B, K, R, C]``, in one pass."""
    steps = states.shape[2]
    numbers = jnp.arange(steps, dtype=jnp.int32)[:, None, None, None]
    distribution = drafts.distribution(drafts.z, drafts.slot)(numbers, jnp.moveaxis(states, 2, 0))
    back = lambda leaf: jnp.moveaxis(leaf, 0, 2)
    return back(distribution.mean), 0.5 * back(distribution.log_variance) + jnp.log(drafts.temperature)

  def _finish(self, target: TargetChains, x: Array, left: Array, keys: Key) -> Array:
    """Tokens ``[B, C]`` from states ``x [B, C]`` of one position with ``left [B]`` steps to go, on fresh noise."""
    distribution_fn = target.distribution(target.z, target.slot)  # for states [B, 1, C]

    def flat(number: Array, x: Array):
      return jax.tree.map(lambda leaf: leaf[:, 0], distribution_fn(number, x[:, None]))

    return chain.finish(flat, x, left, keys, target.temperature, noisy_end=True)
