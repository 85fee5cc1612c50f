"""Figures as standard JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


def interval_fields(value: Any) -> Any:
  """A figure with an interval as ``value``, ``low`` and ``high``; other values are unchanged."""
  return {name: getattr(value, name) for name in ("value", "low", "high")} if hasattr(value, "low") else value


def finite(value: Any) -> Any:
  """Plain Python values; numbers that are not finite, such as an infinite budget, become None."""
  if isinstance(value, dict):
    return {key: finite(entry) for key, entry in value.items()}
  if isinstance(value, list | tuple):
    return [finite(entry) for entry in value]
  if isinstance(value, np.generic):
    value = value.item()
  return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(document: dict[str, Any]) -> str:
  """A document of figures as standard JSON."""
  text = json.dumps(finite(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
  try:
    text.encode()
  except UnicodeEncodeError:  # a file name that is not UTF-8
    text = json.dumps(finite(document), indent=2, allow_nan=False) + "\n"
  return text
