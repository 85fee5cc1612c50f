"""Couplings of drafted Gaussian steps with the target's, with random numbers addressed by row keys.

`jaxspec.rules.couplings` has the mathematics of one step. Here a rule tests many drafted steps at once. Then it couples the
first rejected step again, on the same numbers, for its replacement.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.types import Array, Key
from jaxspec.rules import couplings
from jaxspec.rules.couplings import Coupled

COUPLINGS = ("maximal", "split")
# Numbers that separate the keys of one verification in stream VERIFY.
_TEST, _SPLIT = 0, 1


class Drafted(Protocol):
  """Drafted Gaussian steps; the temperature is included."""

  @property
  def mean(self) -> Array:
    """``[..., C]`` float32."""
    ...

  @property
  def log_std(self) -> Array:
    """``[..., C]`` float32."""
    ...

  @property
  def noise(self) -> Array:
    """``[..., C]`` float32, the standard normals of the draft."""
    ...


class SplitNormals(NamedTuple):
  """Randomness of the split coupling, ``[..., C]``."""

  w: Array
  xi: Array


@dataclasses.dataclass(frozen=True)
class Coupler:
  """Test and replacement of a drafted step; the output follows the target's step exactly.

  Attributes:
    coupling: construction for different deviations: ``maximal`` has the largest acceptance and replaces by rejection
      sampling, ``split`` needs no loop. For equal deviations both have the same acceptance, apart from ``eta``.
    eta: damping of ``maximal`` in (0, 1]; below 1 the cap is reached with probability ``eta^max_tries`` at most.
    max_tries: cap on the proposals of ``maximal`` for a rejected step.
  Raises:
    ValueError: for a setting out of range.
  """

  coupling: str = "maximal"
  eta: float = 0.99
  max_tries: int = 2000

  def __post_init__(self):
    if self.coupling not in COUPLINGS:
      raise ValueError(f"Must have a coupling in {', '.join(COUPLINGS)}, we instead got {self.coupling!r}")
    if not (math.isfinite(self.eta) and 0 < self.eta <= 1):
      raise ValueError(f"Must have eta above 0 and at most 1, we instead got {self.eta}")
    if self.max_tries < 1:
      raise ValueError(f"Must have max_tries of at least 1, we instead got {self.max_tries}")

  def normals(self, keys: Key, shape: tuple[int, ...]) -> SplitNormals | None:
    """Normals of `couple` for steps of a shape ``[B, ..., C]``."""
    if self.coupling != "split":
      return None
    split_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(_SPLIT))
    draw = lambda offset: jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, offset), shape[1:]))(split_keys)
    return SplitNormals(draw(0), draw(1))

  def log_uniforms(self, keys: Key, shape: tuple[int, ...]) -> Array:
    """Logarithms ``[B, ...]`` of the uniforms of all tests."""
    test_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(_TEST))
    return jnp.log(jax.vmap(lambda key: jax.random.uniform(key, shape[1:]))(test_keys))

  def couple(
    self, drafted: Drafted, mean: Array, log_std: Array, normals: SplitNormals | None, log_u: Array, keys: Key | None = None
  ) -> Coupled:
    """Couples steps with the target's.

    Args:
      drafted: leaves ``[B, ..., C]``.
      mean: of the target's steps, ``[B, ..., C]``, as is log_std.
      normals: from `normals`, for the same steps; read by the split coupling.
      log_u: ``[B, ...]``; inf rejects a draft and -inf accepts it.
      keys: ``[B]``, for leaves ``[B, C]``; without them ``maximal`` does not replace rejected drafts.
    """
    sd_q, sd_p = jnp.exp(drafted.log_std), jnp.exp(log_std)
    if normals is not None:
      return couplings.split(drafted.mean, sd_q, mean, sd_p, drafted.noise, normals.w, normals.xi, log_u)

    def proposals(number: Array) -> tuple[Array, Array]:
      if keys is None:
        return jnp.zeros(mean.shape), jnp.zeros(mean.shape[:-1])
      round_keys = rng.stream_keys(keys, rng.Stream.RESIDUAL, number)
      draw = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 0), mean.shape[1:]))
      uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1)))
      return draw(round_keys), jnp.log(uniform(round_keys))

    max_tries = 0 if keys is None else self.max_tries
    return couplings.maximal(
      drafted.mean, sd_q, mean, sd_p, drafted.noise, log_u, proposals, eta=self.eta, max_tries=max_tries
    )

  def replacements(self, coupled: Coupled, rejected: Array) -> tuple[Array, Array]:
    """Proposals drawn ``[B]`` int32 in rejected rows, and ``[B]`` bool, rows that reached the cap."""
    tries = jnp.zeros(rejected.shape, jnp.int32) if coupled.num_tries is None else coupled.num_tries
    return jnp.where(rejected, jnp.where(tries < 0, self.max_tries, tries), 0), rejected & (tries < 0)
