"""Settings of a decode: what the user says, else what the networks were trained for."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.cli.errors import UserError
from jaxspec.decode.assemble import check_settings

MAX_BATCH = 1024
MAX_PICTURES = 1024
DEFAULT_BATCH = 16

TREE = ("tree_size", "tree_top_k", "tree_depth")
# Family of the draft network of each method that has one.
DRAFT_FAMILY = {"speculative": "llamagen", "eagle": "eagle"}

# The official settings of the released LlamaGen models, by model type.
LLAMAGEN_DEFAULTS = {"c2i": {"cfg_scale": 4.0, "top_k": 2000}, "t2i": {"cfg_scale": 7.5, "top_k": 1000}}


@dataclasses.dataclass(frozen=True)
class Settings:
  """Everything besides networks and conditions that decides the tokens (``dtype`` through rounding)."""

  method: str = "speculative"
  draft: str | None = None
  gamma: int = 4
  tree_size: int = 15
  tree_top_k: int = 4
  tree_depth: int = 3
  cfg_scale: float = 1.0
  cfg_interval: int = -1
  top_k: int = 0
  top_p: float = 1.0
  temperature: float = 1.0
  seed: int = 0
  dtype: str = "float32"

  def assembly(self) -> dict[str, Any]:
    """The keyword arguments of `jaxspec.decode.assemble.assemble`, ``method`` apart."""
    names = ("gamma", "cfg_scale", "cfg_interval", "top_k", "top_p", "temperature", *TREE)
    return {name: getattr(self, name) for name in names}


def resolve(chosen: dict[str, Any], defaults: dict[str, Any]) -> Settings:
  """`Settings` from the options the user gave (None where not) over the defaults of the networks.

  Raises:
    ValueError: for a value out of range.
  """
  fields = {field.name for field in dataclasses.fields(Settings)}
  known = {name: value for name, value in defaults.items() if name in fields and value is not None}
  settings = Settings(**(known | {name: value for name, value in chosen.items() if value is not None}))
  names = ("gamma", "cfg_scale", "top_k", "top_p", "temperature", "method", *TREE)
  check_settings(**{name: getattr(settings, name) for name in names})
  return settings


def check_gamma(gamma: int, num_tokens: int) -> None:
  """Refuses a draft longer than a picture."""
  if gamma >= num_tokens:
    raise UserError(f"Must have gamma below the {num_tokens} tokens of a picture, we instead got {gamma}")


def batch_rows(batch: int | None, num_pictures: int) -> int:
  """Rows of the compiled batch: ``batch`` at most, and no more than an even split of the pictures needs."""
  if num_pictures > MAX_PICTURES:
    raise UserError(f"Must have at most {MAX_PICTURES} pictures in one command, we instead got {num_pictures}")
  if batch is not None and not 1 <= batch <= MAX_BATCH:
    raise UserError(f"Must have a batch from 1 to {MAX_BATCH}, we instead got {batch}")
  limit = min(batch or DEFAULT_BATCH, num_pictures)
  num_batches = -(-num_pictures // limit)
  return -(-num_pictures // num_batches)
