"""The exact rule for vector tokens: couple the steps of the chains, not the tokens.

De Bortoli, Galashov, Gretton and Doucet (2025, arXiv 2501.05370) speculate over the denoising steps of one sample: a
drafted state is kept or replaced so that it follows the target's step exactly (`jaxspec.verifiers.couplings`). Here this
judges whole drafted tokens of a sequence:

1. The first ``shared_steps`` steps of both chains run on one noise, each chain along its own path. This noise has the same
   law under both models, so everything that follows may be conditioned on it.
2. All other steps are coupled. The target describes its step at every drafted state in one pass of its head; the first
   coupled step starts from the target's own state, later ones only matter where all before were kept.
3. A token is kept iff every coupled step of its chain is, the last one included: it is then a sample of the target's chain
   and at the same time, bit for bit, the draft that later prefixes were made of.
4. The first token with a refused step takes the corrected state there, and the target's chain goes on from it to the end, on
   fresh noise; later drafts are discarded. After full acceptance the target's chain draws one more token.

Given the committed past every step that is committed follows the target's law, hence so do the tokens: the rule is lossless
for any draft. A chain that ends in its mean cannot satisfy 3 (two means are never equal), so the rule asks for chains that
end with noise; ``shared_steps = T - 1`` then is the published test without its Sigma product (`PathRatio` with
``sigma="none"``), and ``shared_steps = 0`` couples the whole path.
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
# Offsets of the keys of one verification in stream VERIFY.
_TEST, _SPLIT, _FINISH = 0, 1, 2


class DraftPath(NamedTuple):
  """`Draft.proposal`: the steps of a drafted chain that are coupled, number 0 the last one; leaves ``[B, K, R, C]``.

  Sharing the leading steps needs no memory: their noise is drawn again from the draft's keys.
  """

  state: Array  # what enters each step
  mean: Array
  log_std: Array  # the temperature included
  noise: Array


class _Normals(NamedTuple):
  """Randomness of the split coupling, ``[..., C]``."""

  w: Array
  xi: Array


@dataclasses.dataclass(frozen=True)
class PathCoupling:
  """The rule; a `jaxspec.verifiers.token_rule.TokenRule`.

  Attributes:
    shared_steps: leading steps on shared noise; None is all but the last one. More of them cost the target as many
      passes of its head one after another, fewer must be coupled one by one.
    coupling: of steps whose deviations differ: ``maximal`` keeps most and replaces by rejection sampling, ``split`` needs
      no loop; they are the same where deviations agree.
    eta: damping of ``maximal`` in (0, 1]; below 1 the cap is reached with probability ``eta^max_tries`` at most.
    max_tries: cap on the proposals of ``maximal`` for a refused step; reaching it is reported.
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
    log_std = 0.5 * of_chain(drawn.laws.log_variance) + jnp.log(temperature)
    return DraftPath(of_chain(drawn.states), of_chain(drawn.laws.mean), log_std, noise.steps[:, 0, :steps])

  def __call__(self, keys: Key, draft: Draft, target: TargetChains) -> Verdict:
    """See `TokenRule`."""
    rows, window = draft.tokens.shape[:2]
    steps = self.num_coupled(target.num_steps)
    noise = target.noise(keys, draft)
    law_fn = target.law(target.z, target.slot)
    # The target's own state behind the shared steps, of all K + 1 tokens: what enters step R - 1.
    begin = chain.run(law_fn, noise, target.temperature, noisy_end=True, down_to=steps).token
    finish_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(_FINISH))
    finish = lambda place, x, left: self._finish(target.column(place), x, left, finish_keys)
    if window == 0:
      none = jnp.zeros((rows,), jnp.int32)
      token = finish(none, begin[:, 0], jnp.full((rows,), steps))
      return Verdict(none, token, metrics=report_at(0, none, TokenReport(none, none > 0, none)))

    path: DraftPath = draft.proposal
    drafts = target._replace(z=target.z[:, :-1], slot=target.slot[:, :-1])
    states = jnp.concatenate([path.state[:, :, :-1], begin[:, :-1, None]], axis=2)  # [B, K, R, C]
    mean, log_std = self._target_steps(drafts, states)
    normals = self._normals(keys, path.noise.shape)
    log_u = self._log_uniforms(keys, path.noise.shape[:-1])
    tested = self._couple(path, mean, log_std, normals, log_u)
    num_accepted = leading(jnp.all(tested.accepted, axis=2), draft)
    refused = num_accepted < draft.num_drafted

    # The first refused step (the highest number) of the first refused token.
    place = jnp.minimum(num_accepted, window - 1)
    flags = column(tested.accepted, place)  # [B, R]
    number = jnp.max(jnp.where(flags, -1, jnp.arange(steps)[None]), axis=1)  # [B]; -1 in rows that keep the token
    here = lambda leaf: column(column(leaf, place), jnp.maximum(number, 0))  # [B, K, R, C] -> [B, C]
    at_step = lambda tree: jax.tree.map(here, tree)
    refuse = jnp.where(refused, jnp.inf, -jnp.inf)  # no draft passes, or every one does
    corrected = self._couple(at_step(path), here(mean), here(log_std), at_step(normals), refuse, keys)
    x = jnp.where(refused[:, None], corrected.x, column(begin, num_accepted))
    next_token = finish(num_accepted, x, jnp.where(refused, number, steps))
    tries = jnp.zeros((rows,), jnp.int32) if corrected.num_tries is None else corrected.num_tries
    report = TokenReport(
      tries=jnp.where(refused, jnp.where(tries < 0, self.max_tries, tries), 0),
      fallback=refused & (tries < 0),
      steps=jnp.where(refused, target.num_steps - 1 - number, 0),
    )
    return Verdict(num_accepted, next_token, metrics=report_at(window, num_accepted, report))

  def _target_steps(self, drafts: TargetChains, states: Array) -> tuple[Array, Array]:
    """Mean and log deviation ``[B, K, R, C]`` of the target's steps from ``states [B, K, R, C]``, in one pass."""
    steps = states.shape[2]
    numbers = jnp.arange(steps, dtype=jnp.int32)[:, None, None, None]
    law = drafts.law(drafts.z, drafts.slot)(numbers, jnp.moveaxis(states, 2, 0))
    back = lambda leaf: jnp.moveaxis(leaf, 0, 2)
    return back(law.mean), 0.5 * back(law.log_variance) + jnp.log(drafts.temperature)

  def _couple(
    self, path: DraftPath, mean: Array, log_std: Array, normals: _Normals | None, log_u: Array, keys: Key | None = None
  ) -> Coupled:
    """The coupling; with ``keys [B]`` and leaves ``[B, C]`` rejected drafts of ``maximal`` are replaced too."""
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
    """Tokens ``[B, C]`` of chains of one place with ``left [B]`` steps to go."""
    law_fn = target.law(target.z, target.slot)  # of states [B, 1, C]

    def flat(number: Array, x: Array):
      return jax.tree.map(lambda leaf: leaf[:, 0], law_fn(number, x[:, None]))

    return chain.finish(flat, x, left, keys, target.temperature, noisy_end=True)
