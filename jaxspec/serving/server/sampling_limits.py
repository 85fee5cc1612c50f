"""Limits of the sampling settings of a stream. Neither protobuf nor JAX."""

from __future__ import annotations

from typing import NamedTuple, Protocol

_MOST_TEMPERATURE, _MOST_SCALE = 100.0, 1000.0


class Requirement(NamedTuple):
  """A requirement of one setting."""

  holds: bool
  field: str
  limit: str


class Settings(Protocol):
  """A handshake, or a message that becomes one."""

  @property
  def temperature(self) -> float: ...

  @property
  def top_p(self) -> float: ...

  @property
  def cfg_scale(self) -> float: ...


def sampling_requirements(settings: Settings, *, guided: bool, nucleus: bool) -> tuple[Requirement, ...]:
  """The requirements of the settings of a stream.

  Args:
    guided: whether the target reads a guidance scale.
    nucleus: whether the profile reads a top-p.
  """
  temperature, top_p, scale = settings.temperature, settings.top_p, settings.cfg_scale
  return (  # NaN fulfils none of them
    Requirement(0 <= temperature <= _MOST_TEMPERATURE, "temperature", f"0 to {_MOST_TEMPERATURE:g}"),
    Requirement(0 < top_p <= 1, "top_p", "above 0, and at most 1"),
    Requirement(0 <= scale <= _MOST_SCALE, "cfg_scale", f"0 to {_MOST_SCALE:g}"),
    Requirement(nucleus or top_p == 1, "top_p", "1 in a profile without nucleus"),
    Requirement(guided or scale == 1, "cfg_scale", "1 without guidance"),
  )
