"""Settings of a decode: what the user says, else what the networks were trained for."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.cli.errors import UserError
from jaxspec.decode.assemble import check_sampling
from jaxspec.decode.compression import make_codec
from jaxspec.decode.methods import Method, MethodOptions, get_method
from jaxspec.models import precision

MAX_BATCH = 1024
MAX_PICTURES = 1024
DEFAULT_BATCH = 16

# The official settings of the released LlamaGen models, by model type.
LLAMAGEN_DEFAULTS = {"c2i": {"cfg_scale": 4.0, "top_k": 2000}, "t2i": {"cfg_scale": 7.5, "top_k": 1000}}


@dataclasses.dataclass(frozen=True)
class Settings(MethodOptions):
  """Everything besides networks and conditions that decides the tokens (the last two through rounding).

  ``matmul_precision`` is None until `resolve` has asked the machine.
  """

  method: str = "speculative"
  draft: str | None = None
  cfg_scale: float = 1.0
  cfg_interval: int = -1
  top_k: int = 0
  top_p: float = 1.0
  temperature: float = 1.0
  seed: int = 0
  dtype: str = "float32"
  matmul_precision: str | None = None

  def __post_init__(self):
    super().__post_init__()
    get_method(self.method)
    check_sampling(cfg_scale=self.cfg_scale, top_k=self.top_k, top_p=self.top_p, temperature=self.temperature)

  @property
  def parts(self) -> Method:
    """What the method is made of."""
    return get_method(self.method)

  def assembly(self) -> dict[str, Any]:
    """The keyword arguments of `jaxspec.decode.assemble.assemble`, ``method`` apart."""
    names = ("cfg_scale", "cfg_interval", "top_k", "top_p", "temperature", *MethodOptions.names())
    return {name: getattr(self, name) for name in names}


# What JSON may hold for a setting.
_DEFAULT_TYPES = {
  field.name: {"int": int, "float": int | float, "str": str, "bool": bool}[field.type.removesuffix(" | None")]
  for field in dataclasses.fields(Settings)
}


def resolve(chosen: dict[str, Any], defaults: dict[str, Any]) -> Settings:
  """`Settings` from the options the user gave (None where not) over the defaults of the networks.

  Raises:
    ValueError: for a value out of range.
  """
  fields = {field.name for field in dataclasses.fields(Settings)}
  known = {name: value for name, value in defaults.items() if name in fields and value is not None}
  for name, value in known.items():
    # A damaged file can hold any JSON where a number belongs.
    if not isinstance(value, _DEFAULT_TYPES.get(name, object)) or isinstance(value, bool):
      raise ValueError(f"Must have defaults that fit, we instead got {value!r} as {name}")
  settings = Settings(**(known | {name: value for name, value in chosen.items() if value is not None}))
  return dataclasses.replace(settings, matmul_precision=settings.matmul_precision or precision.preferred(settings.dtype))


def check_lengths(settings: Settings, num_tokens: int) -> None:
  """Refuses drafts longer than a picture: they cost compile time and memory for nothing."""
  if settings.parts.drafts_chain and settings.gamma >= num_tokens:
    raise UserError(f"Must have gamma below the {num_tokens} tokens of a picture, we instead got {settings.gamma}")
  longest = {"compressed": "max_drafts", "jacobi": "window", "eagle": "tree_depth", "interval": "gamma"}
  name = longest.get(settings.parts.drafter)
  if name is not None and getattr(settings, name) > num_tokens:
    value = getattr(settings, name)
    raise UserError(f"Must have {name} of at most the {num_tokens} tokens of a picture, we instead got {value}")


def unread(chosen: dict[str, Any], settings: Settings) -> list[str]:
  """Warnings about options that the user gave and the method does not read."""
  read = settings.parts.options + (("draft",) if settings.parts.draft_family is not None else ())
  given = [name for name in ("draft", *MethodOptions.names()) if chosen.get(name) is not None]
  options = ", ".join(f"--{name.replace('_', '-')}" for name in given if name not in read)
  return [f"Not read by --method {settings.method}: {options}"] if options else []


def with_support(settings: Settings, vocab_size: int) -> Settings:
  """The settings with their ``support`` filled in, where the method sends laws.

  Raises:
    ValueError: for a support that the vocabulary or the coding does not allow.
  """
  if settings.parts.drafter != "compressed":
    return settings
  return dataclasses.replace(settings, support=make_codec(settings, vocab_size).max_support)


def batch_rows(batch: int | None, num_pictures: int) -> int:
  """Rows of the compiled batch: ``batch`` at most, and no more than an even split of the pictures needs."""
  if num_pictures > MAX_PICTURES:
    raise UserError(f"Must have at most {MAX_PICTURES} pictures in one command, we instead got {num_pictures}")
  if batch is not None and not 1 <= batch <= MAX_BATCH:
    raise UserError(f"Must have a batch from 1 to {MAX_BATCH}, we instead got {batch}")
  limit = min(batch or DEFAULT_BATCH, num_pictures)
  num_batches = -(-num_pictures // limit)
  return -(-num_pictures // num_batches)
