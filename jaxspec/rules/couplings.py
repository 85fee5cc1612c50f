"""Exact couplings of two Gaussians: a draft from one becomes a sample of the other, often unchanged.

A draft ``y = mu_q + sd_q z`` from ``q = N(mu_q, diag sd_q^2)`` is judged against ``p = N(mu_p, diag sd_p^2)``. The output
follows p exactly, and equals y where y is accepted. There are three constructions:

* `reflect`: equal deviations; the reflection-maximal coupling (Bou-Rabee, Eberle and Zimmer 2020, arXiv 1805.00452; for
  diffusion drafts De Bortoli et al. 2025, arXiv 2501.05370). Accepted with probability ``2 Phi(-|D| / 2)``, the maximum.
* `split`: different deviations; both distributions are split into a part of common width, which is reflected, and an
  independent rest. It needs no loop and no cap, but accepts less than the maximum.
* `maximal`: different deviations; accepted with probability ``1 - TV(p, q)``, the maximum. After a rejection a loop samples
  the residual ``[p - q]+`` by proposals from p. Their number has mean 1, but a heavy tail where the distributions are close,
  so it is capped. Damping by ``eta < 1`` keeps the distribution exact and leaves at most ``eta^max_tries`` of the rows
  unfinished.

Everything is elementwise over leading axes ``...`` (tokens, denoising steps). Uniforms come as logarithms. Noise must not be
reused after a decision has depended on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array


class Coupled(NamedTuple):
  """Result of a coupling."""

  x: Array  # [..., C] a sample of p
  accepted: Array  # [...] bool, x is the draft
  log_ratio: Array  # [...] log p(y) / q(y) at the point y that was tested
  num_tries: Array | None = None  # [...] int32 proposals drawn; -1 where the cap was reached. None: no loop


def reflect(mu_q: Array, mu_p: Array, sd: Array, z: Array, log_u: Array) -> Coupled:
  """Reflection coupling of two Gaussians of equal deviation.

  ``log A = -(z.D + |D|^2 / 2)`` with ``D = (mu_q - mu_p) / sd``; a rejected draft is mirrored: ``mu_p + sd (z - 2 e (e.z))``
  with ``e = D / |D|``.

  Args:
    mu_q: ``[..., C]``, as are mu_p, sd and z (the draft's standard normal).
    log_u: ``[...]`` logarithms of uniforms.
  """
  distance = (mu_q - mu_p) / sd
  squared = jnp.sum(jnp.square(distance), axis=-1)
  along = jnp.sum(distance * z, axis=-1)
  log_ratio = -(along + 0.5 * squared)
  accepted = (log_u < log_ratio) | (squared == 0)
  # 2 e (e.z) = 2 D (D.z) / |D|^2. With equal means every draft is accepted; the division must be safe.
  factor = 2.0 * along / jnp.where(squared == 0, 1.0, squared)
  mirrored = mu_p + sd * (z - factor[..., None] * distance)
  return Coupled(jnp.where(accepted[..., None], mu_q + sd * z, mirrored), accepted, log_ratio)


def split(mu_q: Array, sd_q: Array, mu_p: Array, sd_p: Array, z: Array, w: Array, xi_p: Array, log_u: Array) -> Coupled:
  """Split reflection coupling of Gaussians of different deviations, without a loop.

  With ``s = min(sd_q, sd_p)`` and ``a^2 = sd^2 - s^2`` elementwise, the draft's noise is the sum of two independent parts,
  ``sd_q z = a_q xi + s zeta``; zeta is reflected between the means ``mu_q + a_q xi`` and ``mu_p + a_p xi_p``.

  Args:
    mu_q: ``[..., C]``, as are sd_q, mu_p, sd_p and z.
    w: ``[..., C]`` auxiliary normals that split z.
    xi_p: ``[..., C]`` normals of the target's own part.
    log_u: ``[...]`` logarithms of uniforms.
  """
  s = jnp.minimum(sd_q, sd_p)
  # Computed as (a - b)(a + b), because squares of close deviations would cancel.
  rest = lambda sd: jnp.sqrt((sd - s) * (sd + s))
  a_q, a_p = rest(sd_q), rest(sd_p)
  xi = (a_q * z + s * w) / sd_q
  zeta = (s * z - a_q * w) / sd_q
  coupled = reflect(mu_q + a_q * xi, mu_p + a_p * xi_p, s, zeta, log_u)
  # The draft itself is returned, not the sum of its parts: an accepted sample equals the draft bit for bit.
  return coupled._replace(x=jnp.where(coupled.accepted[..., None], mu_q + sd_q * z, coupled.x))


def _log_ratio(z_p: Array, log_sd_p: Array, z_q: Array, log_sd_q: Array) -> Array:
  """``log p / q [...]`` of a point with deviates z ``[..., C]`` from each mean.

  Differences of components are summed, because the difference of two log densities of thousands of components would lose
  most digits.
  """
  return jnp.sum(0.5 * (z_q - z_p) * (z_q + z_p) + (log_sd_q - log_sd_p), axis=-1)


# Trip k = 0, 1, ... of the loop -> normals [..., C] and log uniforms [...].
ProposalFn = Callable[[Array], tuple[Array, Array]]


def maximal(
  mu_q: Array,
  sd_q: Array,
  mu_p: Array,
  sd_p: Array,
  z: Array,
  log_u: Array,
  proposal_fn: ProposalFn,
  *,
  eta: float = 1.0,
  max_tries: int = 200,
) -> Coupled:
  """Maximal coupling with rejection sampling of the residual.

  Accept iff ``u < eta p(y) / q(y)``; else propose ``x ~ p`` until ``v < 1 - min(eta, q(x) / p(x))``.

  Args:
    mu_q: ``[..., C]``, as are sd_q, mu_p, sd_p and z.
    log_u: ``[...]`` logarithms of uniforms.
    proposal_fn: fresh randomness of each iteration of the loop.
    eta: damping in (0, 1]; 1 accepts most.
    max_tries: static cap; a row that reaches it takes its last proposal, and `Coupled.num_tries` is -1.
  """
  log_eta = jnp.log(jnp.float32(eta))
  log_sd_q, log_sd_p = jnp.log(sd_q), jnp.log(sd_p)
  log_ratio_at = lambda x: _log_ratio((x - mu_p) / sd_p, log_sd_p, (x - mu_q) / sd_q, log_sd_q)
  draft = mu_q + sd_q * z
  log_ratio = log_ratio_at(draft)
  accepted = log_u < log_eta + log_ratio

  def open_rows(state: tuple[Array, ...]) -> Array:
    _, finished, _, tries = state
    return ~jnp.all(finished) & (tries < max_tries)

  def round_(state: tuple[Array, ...]) -> tuple[Array, ...]:
    x, finished, used, tries = state
    normals, log_v = proposal_fn(tries)
    proposal = mu_p + sd_p * normals
    # 1 - min(eta, q/p), in logarithms.
    keep = log_v < jnp.log(-jnp.expm1(jnp.minimum(-log_ratio_at(proposal), log_eta)))
    x = jnp.where(finished[..., None], x, proposal)
    return x, finished | keep, used + (~finished).astype(jnp.int32), tries + 1

  start = (draft, accepted, jnp.zeros(accepted.shape, jnp.int32), jnp.int32(0))
  x, finished, used, _ = jax.lax.while_loop(open_rows, round_, start)
  return Coupled(x, accepted, log_ratio, jnp.where(finished, used, -1))
