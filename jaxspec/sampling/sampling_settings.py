"""Common part of the sampling settings of all kinds of tokens."""

from __future__ import annotations

from typing import Any

from jaxspec.core.network import Network
from jaxspec.core.options import check_options
from jaxspec.diffusion.schedule import kept_steps
from jaxspec.errors import OptionError


class Guidance:
  """Checked options and guidance; no dataclass, so that each kind of settings orders its own fields."""

  cfg_scale: float

  def __post_init__(self):
    check_options(self)

  @property
  def is_guided(self) -> bool:
    """Whether networks run with classifier-free guidance."""
    return self.cfg_scale > 1


def check_network(network: Network, fns_type: type, tokens: str) -> None:
  """Raises a ValueError for a network of another kind of tokens."""
  if not isinstance(network.fns, fns_type):
    wanted, found = fns_type.__name__, type(network.fns).__name__
    raise ValueError(f"Must have a network of {tokens} ({wanted}) as {network.name}, we instead got {found}")


def check_steps(settings: Any) -> int:
  """Number of diffusion steps of settings with ``steps``.

  A plain number of steps is converted to an integer, so that equal settings share compiled programs.

  Raises:
    OptionError: if there are fewer than 2.
  """
  if isinstance(settings.steps, str) and settings.steps.isdecimal():
    object.__setattr__(settings, "steps", int(settings.steps))
  if not str(settings.steps).strip():
    raise OptionError("Must have diffusion steps such as 100 or 10,10,20, we instead got none")
  if (number := len(kept_steps(str(settings.steps)))) < 2:
    raise OptionError(f"Must have at least 2 diffusion steps, we instead got {settings.steps}")
  return number
