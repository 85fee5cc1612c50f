"""How tokens are drawn: the settings that every method to be compared shares.

`SamplingConfig` is for ids (guidance and logit processing), `VectorSampling` for vectors (guidance and the chain of a
diffusion head), `MapSampling` for maps of ids, `StateSampling` for the states of one image's chain. Both sides of a decode
get the same settings: the target's processed distribution is the one that exact methods reproduce.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import jax.numpy as jnp
import numpy as np

from jaxspec.decode.unmasking import GuidanceFn, linear_guidance
from jaxspec.diffusion.schedule import diffusion_tables, kept_steps
from jaxspec.models import guidance
from jaxspec.models.dit import DiTFns
from jaxspec.models.guidance import Guided
from jaxspec.models.mar import MARFns
from jaxspec.models.masked_network import masked_network
from jaxspec.models.sampling import ModelParams, Sampling, Warp, sampling_params
from jaxspec.models.scale_network import ScaleNetwork, ScaleSide, scale_sampling
from jaxspec.models.state_network import StateNetwork, StateSide
from jaxspec.models.token_fns import HeadFns, TokenFns, diffusion_tokens, guided_tokens
from jaxspec.network import Network
from jaxspec.options import LARGEST, check_options, option
from jaxspec.token_kinds import IDS, MAPS, STATES, VECTORS
from jaxspec.types import ModelFns


class Guidance:
  """What the settings of all kinds of tokens share; no dataclass, so that each of them orders its own fields."""

  cfg_scale: float

  def __post_init__(self):
    check_options(self)

  @property
  def is_guided(self) -> bool:
    """Whether networks run with classifier-free guidance."""
    return self.cfg_scale > 1


@dataclasses.dataclass(frozen=True)
class SamplingConfig(Guidance):
  """Guidance and logit processing of ids.

  Logits are guided, divided by the temperature, then cut by top-k and top-p. Guidance is active iff ``cfg_scale > 1``, the
  nucleus iff ``top_p < 1``; these two and ``top_k`` change the compiled program, the other numbers do not.
  """

  cfg_scale: float = option(1.0, "Scale of classifier-free guidance; 1 switches guidance off.", ge=1, le=LARGEST)
  cfg_interval: int = option(-1, "Guide only this many tokens and two more; -1 guides all.", ge=-1, le=2**30)
  top_k: int = option(0, "Keep the k likeliest tokens; 0 keeps all.", ge=0)
  top_p: float = option(1.0, "Keep the likeliest tokens of this total probability.", gt=0, le=1)
  temperature: float = option(1.0, "Divisor of the logits; 0 is greedy.", ge=0, le=LARGEST)

  tokens: ClassVar[str] = IDS

  def warp(self) -> Warp:
    """The static part of the logit processing."""
    return Warp(top_k=self.top_k, nucleus=self.top_p < 1)

  def params(self) -> Sampling:
    """The traced part of the logit processing."""
    return sampling_params(self.temperature, self.top_p)

  def row_tokens(self, network: Network) -> None:
    """Tokens of a row of a network: rows of ids end at a length that a host says, or at an end token."""
    return None

  def side(self, network: Network, *, features: str = "both", guided: bool | None = None) -> tuple[ModelFns, ModelParams]:
    """A network as one side of a decode: its functions and its traced parameters.

    Args:
      features: what a guided network returns as features, see `jaxspec.guided`.
      guided: whether the network takes part in guidance; None: as it says (`Network.is_guided`). A draft that learned
        guided targets runs without guidance, at half the cost.
    Raises:
      ValueError: if guidance is on and the network has no unconditional condition.
    """
    is_on = self.is_guided and (network.is_guided if guided is None else guided)
    fns, params = network.fns, network.params
    if is_on:
      fns = guidance.guided(fns, interval=self.cfg_interval, features=features)
      params = Guided(params, jnp.float32(self.cfg_scale))
    return fns, ModelParams(params, self.params())


@dataclasses.dataclass(frozen=True)
class VectorSampling(Guidance):
  """How vector tokens are drawn by a diffusion head.

  Attributes:
    guidance_fn: how the guidance scale depends on the token (`jaxspec.decode.unmasking`); not an option.
  """

  steps: int | str = option(100, "Diffusion steps of a token: a number, or one per section (10,10,20).")
  stop: int | None = option(None, "End tokens with the noise of this step; none is an end in a mean.", ge=0)
  temperature: float = option(1.0, "Factor of the noise of every diffusion step but the first state.", gt=0, le=LARGEST)
  cfg_scale: float = option(1.0, "Scale of classifier-free guidance; 1 switches guidance off.", ge=1, le=LARGEST)
  refine: bool = option(False, "Take the steps that stop leaves out in the end, all tokens at once.")
  guidance_fn: GuidanceFn = linear_guidance

  tokens: ClassVar[str] = VECTORS

  def __post_init__(self):
    super().__post_init__()
    steps = _check_steps(self)
    if self.stop is not None and not self.stop < steps - 1:
      raise ValueError(f"Must have stop from 0 to {steps - 2}, we instead got {self.stop}")

  def _tables(self):
    return diffusion_tables(str(self.steps))

  @property
  def is_refined(self) -> bool:
    """Whether steps are left out and taken in the end (`jaxspec.hosts.refine`)."""
    return self.refine and bool(self.stop)

  def bind(self, head: HeadFns) -> TokenFns:
    """The network with the chain of these settings."""
    kwargs = dict(num_steps=str(self.steps), stop=self.stop)
    return guided_tokens(head, self.guidance_fn, **kwargs) if self.is_guided else diffusion_tokens(head, **kwargs)

  def side(self, network: Network) -> ModelParams:
    """Traced parameters of one side of a decode; the weights are `Guided` iff guidance is on."""
    params = Guided(network.params, jnp.float32(self.cfg_scale)) if self.is_guided else network.params
    return ModelParams(params, sampling_params(self.temperature))

  def row_tokens(self, network: Network) -> int:
    """Tokens of a row of a network."""
    return head_fns(network).num_tokens

  def signal(self) -> float:
    """``sqrt(A)`` of the tokens: 1, or less where chains stop early and nothing is refined."""
    if self.stop is None or self.is_refined:
      return 1.0
    return float(self._tables().alphas_cumprod_prev[self.stop] ** 0.5)

  def respaced(self, steps: int | str) -> Self:
    """The same settings with other steps; ``stop`` moves so that tokens carry most nearly the same noise.

    Networks that read noisy tokens were trained for one noise.
    """
    if self.stop is None:
      return dataclasses.replace(self, steps=steps)
    return dataclasses.replace(self, steps=steps, stop=nearest_stop(steps, self.steps, self.stop))


@dataclasses.dataclass(frozen=True)
class MapSampling(Guidance):
  """How the maps of an image are drawn, scale by scale (VAR, arXiv 2404.02905).

  Logits are guided, cut by top-k and top-p, then divided by the temperature. What the official code calls ``cfg`` is
  ``cfg_scale - 1`` here.
  """

  cfg_scale: float = option(1.0, "Scale of classifier-free guidance at the last map; it grows from 1 on.", ge=1, le=LARGEST)
  top_k: int = option(0, "Keep the k likeliest tokens; 0 keeps all.", ge=0)
  top_p: float = option(1.0, "Keep the likeliest tokens of this total probability.", gt=0, le=1)
  temperature: float = option(1.0, "Divisor of the logits; 0 is greedy.", ge=0, le=LARGEST)

  tokens: ClassVar[str] = MAPS

  def bind(self, network: Network) -> ScaleNetwork:
    """The network with the static part of these settings.

    Raises:
      ValueError: for a network of other tokens.
    """
    if not isinstance(network.fns, ScaleNetwork):
      kind = type(network.fns).__name__
      raise ValueError(f"Must have a network of maps (ScaleNetwork) as {network.name}, we instead got {kind}")
    return dataclasses.replace(network.fns, top_k=self.top_k)

  def side(self, network: Network) -> ScaleSide:
    """Traced parameters of one side of a decode."""
    sampling = scale_sampling(
      len(network.fns.sizes),
      cfg=self.cfg_scale - 1 if self.is_guided else None,
      top_p=self.top_p if self.top_p < 1 else None,
      temperature=self.temperature,
    )
    return ScaleSide(network.params, sampling)

  def row_tokens(self, network: Network) -> int:
    """Tokens of a row of a network: the maps of an image."""
    return len(self.bind(network).sizes)


@dataclasses.dataclass(frozen=True)
class StateSampling(Guidance):
  """How the states of an image's chain are drawn (DiT, arXiv 2212.09748): by ancestral sampling, DDPM.

  A row has as many tokens as the chain has steps. The first state is standard normal, and the last step ends in its mean.
  """

  steps: int | str = option(250, "Diffusion steps of a chain: a number, or one per section (10,10,20).")
  cfg_scale: float = option(1.0, "Scale of classifier-free guidance; 1 switches guidance off.", ge=1, le=LARGEST)

  tokens: ClassVar[str] = STATES

  def __post_init__(self):
    super().__post_init__()
    if str(self.steps).startswith("ddim"):
      raise ValueError(
        "Must have steps of DDPM, such as 250 or 10,10,20 (a step of DDIM has no noise, so no draft of it can be accepted "
        f"or corrected), we instead got {self.steps!r}"
      )
    _check_steps(self)

  def bind(self, network: Network) -> StateNetwork:
    """The network with the steps of these settings.

    Raises:
      ValueError: for a network of other tokens.
    """
    if not isinstance(network.fns, DiTFns):
      kind = type(network.fns).__name__
      raise ValueError(f"Must have a network of states (DiTFns) as {network.name}, we instead got {kind}")
    return StateNetwork(network.fns, str(self.steps))

  def side(self, network: Network) -> StateSide:
    """Traced parameters of one side of a decode."""
    return StateSide(network.params, jnp.float32(self.cfg_scale) if self.is_guided else None)

  def row_tokens(self, network: Network) -> int:
    """Tokens of a row: the steps of a chain."""
    return self.bind(network).num_steps


AnySampling = SamplingConfig | VectorSampling | MapSampling | StateSampling
# By the kind of tokens that they are about.
SAMPLING_TYPES: dict[str, type[AnySampling]] = {
  cls.tokens: cls for cls in (SamplingConfig, VectorSampling, MapSampling, StateSampling)
}


def nearest_stop(steps: int | str, trained_steps: int | str, trained_stop: int) -> int:
  """The ``stop`` of another respacing whose tokens carry most nearly the noise that networks were trained to read."""
  kept = diffusion_tables(str(steps)).alphas_cumprod_prev[:-1]
  wanted = diffusion_tables(str(trained_steps)).alphas_cumprod_prev[trained_stop]
  return int(np.argmin(np.abs(np.asarray(kept) ** 0.5 - wanted**0.5)))


def head_fns(network: Network) -> HeadFns:
  """A network of vector tokens as drafters and verifiers see it; a masked one is read in its generation order.

  Raises:
    ValueError: for a network of ids.
  """
  if isinstance(network.fns, MARFns):
    return masked_network(network.fns)
  if not isinstance(network.fns, HeadFns):
    kind = type(network.fns).__name__
    raise ValueError(f"Must have a network of vector tokens (HeadFns, MARFns) as {network.name}, we instead got {kind}")
  return network.fns


def _check_steps(settings: VectorSampling | StateSampling) -> int:
  """How many diffusion steps there are; writes a plain number of them in one way, so that equal settings share programs.

  Raises:
    ValueError: if there are fewer than 2.
  """
  if isinstance(settings.steps, str) and settings.steps.isdecimal():
    object.__setattr__(settings, "steps", int(settings.steps))
  if (number := len(kept_steps(str(settings.steps)))) < 2:
    raise ValueError(f"Must have at least 2 diffusion steps, we instead got {settings.steps}")
  return number
