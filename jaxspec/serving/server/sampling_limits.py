"""Limits of the sampling settings of a stream. Neither protobuf nor JAX."""

from __future__ import annotations

from typing import NamedTuple, Protocol

_MOST_TEMPERATURE, _MOST_SCALE = 100.0, 1000.0


class Condition(NamedTuple):
  """One condition."""

  holds: bool
  field: str
  limit: str


class Settings(Protocol):
  """An opening, or a message that becomes one."""

  temperature: float
  top_p: float
  cfg_scale: float


def sampling_conditions(settings: Settings, *, guided: bool, nucleus: bool) -> tuple[Condition, ...]:
  """The conditions of the settings of a stream.

  Args:
    guided: whether the target reads a guidance scale.
    nucleus: whether the profile reads a top-p.
  """
  temperature, top_p, scale = settings.temperature, settings.top_p, settings.cfg_scale
  return (  # none of them holds for NaN
    Condition(0 <= temperature <= _MOST_TEMPERATURE, "temperature", f"0 to {_MOST_TEMPERATURE:g}"),
    Condition(0 < top_p <= 1, "top_p", "above 0, and at most 1"),
    Condition(0 <= scale <= _MOST_SCALE, "cfg_scale", f"0 to {_MOST_SCALE:g}"),
    Condition(nucleus or top_p == 1, "top_p", "1 in a profile without nucleus"),
    Condition(guided or scale == 1, "cfg_scale", "1 without guidance"),
  )
