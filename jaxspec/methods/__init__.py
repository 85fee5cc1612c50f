"""Decoding methods as values: one class in one file each, and the registry of their names.

A method is a frozen dataclass of declared options (`jaxspec.methods.method`) that builds the parts of a decode. Options are
keyword arguments: ``Speculative(gamma=4)``. `make_method` makes a method from its name and JSON options. A method of
another package is added by `register`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from jaxspec.core.options import suggestion
from jaxspec.core.plugins import Registry
from jaxspec.errors import OptionError
from jaxspec.methods.ar import Plain
from jaxspec.methods.block_head import BlockHead
from jaxspec.methods.ciar import Ciar
from jaxspec.methods.cspd import Cspd
from jaxspec.methods.eagle import Eagle, EagleChain, EagleLantern
from jaxspec.methods.gsd import Gsd
from jaxspec.methods.lantern import Lantern
from jaxspec.methods.method import (
  CONTINUOUS,
  DENOISING_STEPS,
  DISCRETE,
  SAME_FAMILY,
  SCALES,
  BuildContext,
  DraftingMethod,
  Method,
  Option,
  OptionSpec,
  Parts,
  option,
  options_of,
)
from jaxspec.methods.ngram import Ngram
from jaxspec.methods.parallel import Parallel
from jaxspec.methods.rows import Rows
from jaxspec.methods.scale_ciar import ScaleCiar
from jaxspec.methods.scale_speculative import ScaleSpeculative
from jaxspec.methods.scaled import Scaled
from jaxspec.methods.sjd import Sjd
from jaxspec.methods.spatial import Spatial
from jaxspec.methods.speculative import Speculative
from jaxspec.methods.sqs import Sqs
from jaxspec.methods.step_ciar import StepCiar
from jaxspec.methods.step_speculative import StepSpeculative

__all__ = [
  "DISCRETE",
  "SCALES",
  "METHODS",
  "SAME_FAMILY",
  "DENOISING_STEPS",
  "CONTINUOUS",
  "BlockHead",
  "BuildContext",
  "Ciar",
  "Cspd",
  "DraftingMethod",
  "Eagle",
  "EagleChain",
  "EagleLantern",
  "Gsd",
  "Lantern",
  "ScaleCiar",
  "ScaleSpeculative",
  "Method",
  "Ngram",
  "Option",
  "OptionSpec",
  "Parallel",
  "Parts",
  "Plain",
  "Rows",
  "Scaled",
  "Sjd",
  "Spatial",
  "Speculative",
  "Sqs",
  "StepCiar",
  "StepSpeculative",
  "all_options",
  "get_method",
  "make_method",
  "option",
  "options_of",
  "register",
]

AnyMethod = TypeVar("AnyMethod", bound=Method)

_OF_LIBRARY = (
  Plain,
  Speculative,
  Sqs,
  Lantern,
  Sjd,
  Ngram,
  Gsd,
  Scaled,
  Rows,
  Eagle,
  EagleChain,
  EagleLantern,
  BlockHead,
  Spatial,
  Ciar,
  Cspd,
  Parallel,
  ScaleSpeculative,
  StepSpeculative,
  ScaleCiar,
  StepCiar,
)


def _check(name: str, method: object, methods: Mapping[str, type[Method]]) -> None:
  if not (isinstance(method, type) and issubclass(method, Method) and "__dataclass_params__" in vars(method)):
    raise ValueError(f"Must have a frozen dataclass that derives from Method as {name}, we instead got {method!r}")
  if not isinstance(getattr(method, "title", None), str):
    raise ValueError(f"Must have a title of method {name}, {method.__name__} has none")


METHODS: Registry[type[Method]] = Registry("method", {method.name: method for method in _OF_LIBRARY}, _check)


def register(method: type[AnyMethod]) -> type[AnyMethod]:
  """Adds a method of your own to `METHODS`, by its ``name``, for as long as the process runs; a decorator.

  Raises:
    ValueError: for a name that is taken, or a class that is no method.
  """
  METHODS.add(getattr(method, "name", repr(method)), method)
  return method


def get_method(name: object) -> type[Method]:
  """The method of a name.

  Raises:
    OptionError: for an unknown name.
  """
  if not isinstance(name, str) or name not in METHODS:
    hint = suggestion(str(name), METHODS) or ": jaxspec methods lists them"
    raise OptionError(f"Must have a method in {', '.join(METHODS)}, we instead got {name!r}{hint}")
  return METHODS[name]


def make_method(name: str, **options: Any) -> Method:
  """A method from its name and options; ``draft`` is an option of methods with a draft network.

  Raises:
    OptionError: for an unknown method or option, or a value out of range.
  """
  cls = get_method(name)
  known = [field.name for field in dataclasses.fields(cls)]
  if unknown := [given for given in options if given not in known]:
    has = f"options {', '.join(known)}" if known else "no options"
    hint = suggestion(unknown[0], known)
    raise OptionError(f"Must have {has} for method {name}, we instead got {', '.join(unknown)}{hint}")
  return cls(**options)


def all_options() -> dict[str, list[tuple[str, Option]]]:
  """Every declared option by name, with the methods that have it, in the order of the registry."""
  found: dict[str, list[tuple[str, Option]]] = {}
  for name, cls in METHODS.items():
    for declared in options_of(cls).values():
      found.setdefault(declared.name, []).append((name, declared))
  return found
