"""The exact acceptance rule for vector tokens: it couples the steps of the chains, not the tokens.

De Bortoli, Galashov, Gretton and Doucet (2025, arXiv 2501.05370) speculate over the denoising steps of one sample. A drafted
state is accepted or replaced so that it follows the target's step exactly (`jaxspec.verifiers.couplings`). This rule judges
whole drafted tokens of a sequence in the same way:

1. The first ``shared_steps`` steps of both chains use the same noise, each chain along its own path. This noise has the same
   distribution under both models, so everything that follows may be conditioned on it.
2. All other steps are coupled. The target describes its step at every drafted state in one pass of its head. The first
   coupled step starts from the target's own state. A later step only matters if all steps before it were accepted.
3. A token is accepted iff every coupled step of its chain is accepted, the last one included. It is then a sample of the
   target's chain, and bit for bit the draft that later drafts were conditioned on.
4. The first token with a rejected step takes the corrected state at that step. From there the target's chain runs to its end
   on fresh noise. Later drafts are discarded. After full acceptance the target's chain draws one more token.

Given the committed past, every committed step follows the target's distribution, and so do the tokens: the rule is lossless
for any draft. A chain that ends in its mean cannot satisfy 3, because two means are never equal. The rule therefore needs
chains that end with noise. ``shared_steps = T - 1`` is then the published test without its Sigma product (`PathRatio` with
``sigma="none"``); ``shared_steps = 0`` couples the whole path.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.diffusion import chain
from jaxspec.diffusion.chain import Chain, TokenNoise
from jaxspec.types import Array, Draft, Key, Verdict
from jaxspec.verifiers import couplings
from jaxspec.verifiers.couplings import Coupled
from jaxspec.verifiers.token_rule import TargetChains, TokenReport, column, leading, report_at

COUPLINGS = ("maximal", "split")
# Numbers that separate the keys of one verification in stream VERIFY.
_TEST, _SPLIT, _FINISH = 0, 1, 2


class DraftPath(NamedTuple):
  """`DraftedChains.chains`: the coupled steps of a drafted chain, the last step first; leaves ``[B, K, R, C]``.

  The shared steps are not stored: their noise is drawn again from the draft's keys.
  """

  state: Array  # input of each step
  mean: Array
  log_std: Array  # the temperature included
  noise: Array


class _Normals(NamedTuple):
  """Randomness of the split coupling, ``[..., C]``."""

  w: Array
  xi: Array


@dataclasses.dataclass(frozen=True)
class PathCoupling:
  """The exact rule; a `jaxspec.verifiers.token_rule.TokenRule`.

  Attributes:
    shared_steps: number of leading steps on shared noise; None is all but the last one. Each shared step costs the target a
      pass of its head, one after another. Each other step must be coupled, and all of them must be accepted.
    coupling: how steps are coupled whose deviations differ: ``maximal`` accepts most and replaces by rejection sampling,
      ``split`` needs no loop. Both are the same where deviations agree.
    eta: damping of ``maximal`` in (0, 1]; below 1 the cap is reached with probability ``eta^max_tries`` at most.
    max_tries: cap on the proposals of ``maximal`` for a rejected step; `TokenReport.fallback` is True where it is reached.
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
    if self.coupling not in COUPLINGS:
      raise ValueError(f"Must have a coupling in {', '.join(COUPLINGS)}, we instead got {self.coupling!r}")
    if not (math.isfinite(self.eta) and 0 < self.eta <= 1):
      raise ValueError(f"Must have eta above 0 and at most 1, we instead got {self.eta}")
    if self.max_tries < 1:
      raise ValueError(f"Must have max_tries of at least 1, we instead got {self.max_tries}")

  def check(self, num_steps: int, noisy_end: bool) -> None:
    """See `TokenRule.check`."""
    if not noisy_end:
      raise ValueError("Must have chains that end with noise (stop) for the exact rule, we instead got an end in the mean")
    if self.num_coupled(num_steps) < 1:
      raise ValueError(f"Must have shared_steps below the {num_steps} steps of a chain, we instead got {self.shared_steps}")

  def num_coupled(self, num_steps: int) -> int:
    """Steps ``R`` of a chain that are coupled."""
    return 1 if self.shared_steps is None else num_steps - self.shared_steps

  def describe(self, drawn: Chain, noise: TokenNoise, temperature: Array) -> DraftPath:
    """See `TokenRule.describe`."""
    steps = self.num_coupled(noise.steps.shape[-2])
    of_chain = lambda leaf: jnp.moveaxis(leaf[:steps, :, 0], 0, 1)  # [T, B, 1, C] -> [B, R, C]
    log_std = 0.5 * of_chain(drawn.distributions.log_variance) + jnp.log(temperature)
    return DraftPath(of_chain(drawn.states), of_chain(drawn.distributions.mean), log_std, noise.steps[:, 0, :steps])

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
      return Verdict(none, token, metrics=report_at(0, none, TokenReport(none, none > 0, none)))

    path: DraftPath = draft.proposal.chains
    drafts = target._replace(z=target.z[:, :-1], slot=target.slot[:, :-1])
    states = jnp.concatenate([path.state[:, :, :-1], begin[:, :-1, None]], axis=2)  # [B, K, R, C]
    mean, log_std = self._target_steps(drafts, states)
    normals = self._normals(keys, path.noise.shape)
    log_u = self._log_uniforms(keys, path.noise.shape[:-1])
    tested = self._couple(path, mean, log_std, normals, log_u)
    num_accepted = leading(jnp.all(tested.accepted, axis=2), draft)
    rejected = num_accepted < draft.num_drafted

    # The first rejected step (the highest number) of the first rejected token.
    position = jnp.minimum(num_accepted, window - 1)
    flags = column(tested.accepted, position)  # [B, R]
    number = jnp.max(jnp.where(flags, -1, jnp.arange(steps)[None]), axis=1)  # [B]; -1 in rows that accept the token
    here = lambda leaf: column(column(leaf, position), jnp.maximum(number, 0))  # [B, K, R, C] -> [B, C]
    at_step = lambda tree: jax.tree.map(here, tree)
    refuse = jnp.where(rejected, jnp.inf, -jnp.inf)  # as log u: every draft is rejected, or every draft is accepted
    corrected = self._couple(at_step(path), here(mean), here(log_std), at_step(normals), refuse, keys)
    x = jnp.where(rejected[:, None], corrected.x, column(begin, num_accepted))
    next_token = finish(num_accepted, x, jnp.where(rejected, number, steps))
    tries = jnp.zeros((rows,), jnp.int32) if corrected.num_tries is None else corrected.num_tries
    report = TokenReport(
      tries=jnp.where(rejected, jnp.where(tries < 0, self.max_tries, tries), 0),
      fallback=rejected & (tries < 0),
      steps=jnp.where(rejected, target.num_steps - 1 - number, 0),
    )
    return Verdict(num_accepted, next_token, metrics=report_at(window, num_accepted, report))

  def _target_steps(self, drafts: TargetChains, states: Array) -> tuple[Array, Array]:
    """Mean and log deviation ``[B, K, R, C]`` of the target's steps from ``states [B, K, R, C]``, in one pass."""
    steps = states.shape[2]
    numbers = jnp.arange(steps, dtype=jnp.int32)[:, None, None, None]
    distribution = drafts.distribution(drafts.z, drafts.slot)(numbers, jnp.moveaxis(states, 2, 0))
    back = lambda leaf: jnp.moveaxis(leaf, 0, 2)
    return back(distribution.mean), 0.5 * back(distribution.log_variance) + jnp.log(drafts.temperature)

  def _couple(
    self, path: DraftPath, mean: Array, log_std: Array, normals: _Normals | None, log_u: Array, keys: Key | None = None
  ) -> Coupled:
    """Couples steps; ``maximal`` replaces rejected drafts only if it gets ``keys [B]``, with leaves ``[B, C]``."""
    sd_q, sd_p = jnp.exp(path.log_std), jnp.exp(log_std)
    if self.coupling == "split":
      return couplings.split(path.mean, sd_q, mean, sd_p, path.noise, *normals, log_u)

    def proposals(number: Array) -> tuple[Array, Array]:
      if keys is None:
        return jnp.zeros(mean.shape), jnp.zeros(mean.shape[:-1])
      round_keys = rng.stream_keys(keys, rng.Stream.RESIDUAL, number)
      draw = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 0), mean.shape[1:]))
      uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1)))
      return draw(round_keys), jnp.log(uniform(round_keys))

    max_tries = 0 if keys is None else self.max_tries
    kwargs = dict(eta=self.eta, max_tries=max_tries)
    return couplings.maximal(path.mean, sd_q, mean, sd_p, path.noise, log_u, proposals, **kwargs)

  def _normals(self, keys: Key, shape: tuple[int, ...]) -> _Normals | tuple:
    """Normals ``[B, K, R, C]`` that the split coupling needs."""
    if self.coupling != "split":
      return ()
    split_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(_SPLIT))
    draw = lambda offset: jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, offset), shape[1:]))(split_keys)
    return _Normals(draw(0), draw(1))

  def _log_uniforms(self, keys: Key, shape: tuple[int, ...]) -> Array:
    """Logarithms ``[B, K, R]`` of the uniforms of all tests."""
    test_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(_TEST))
    return jnp.log(jax.vmap(lambda key: jax.random.uniform(key, shape[1:]))(test_keys))

  def _finish(self, target: TargetChains, x: Array, left: Array, keys: Key) -> Array:
    """Tokens ``[B, C]`` from states ``x [B, C]`` of one position with ``left [B]`` steps to go, on fresh noise."""
    distribution_fn = target.distribution(target.z, target.slot)  # for states [B, 1, C]

    def flat(number: Array, x: Array):
      return jax.tree.map(lambda leaf: leaf[:, 0], distribution_fn(number, x[:, None]))

    return chain.finish(flat, x, left, keys, target.temperature, noisy_end=True)
