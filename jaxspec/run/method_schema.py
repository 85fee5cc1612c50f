"""Methods and their options as data, for command lines, pages and forms."""

from __future__ import annotations

import inspect
from typing import Any

from jaxspec.core.options import options_of
from jaxspec.core.token_kinds import KINDS
from jaxspec.methods import SAME_FAMILY
from jaxspec.run.decode_options import flag


def method_schema(cls: type) -> dict[str, Any]:
  """A method as JSON values."""
  exact = "option" if "exact" in options_of(cls) else bool(cls.exact)
  if cls.draft_family is None:
    drafts = "the target itself" if cls().drafts_per_round() else "nothing"
  else:
    drafts = "a smaller network" if cls.draft_family == SAME_FAMILY else f"a network of the family {cls.draft_family}"
    drafts = drafts if cls.free_draft is None else f"the target itself or {drafts}"
  return {
    "name": cls.name,
    "title": cls.title,
    "exact": exact,
    "drafts_by": drafts,
    "draft_family": cls.draft_family,
    "tokens": [kind for kind in KINDS if cls.fits(kind)],
    "source": cls.source,
    "about": inspect.getdoc(cls) or "",
    "options": option_schemas(cls),
  }


def option_schemas(cls: type) -> dict[str, dict[str, Any]]:
  """Every declared option with its flag, type, default, range and help."""
  return {
    name: {
      "flag": flag(name),
      "type": option.kind.__name__,
      "optional": option.optional,
      "many": option.many,
      "default": option.default,
      **{bound: getattr(option.spec, bound) for bound in ("ge", "gt", "le", "lt")},
      "choices": option.spec.choices and list(option.spec.choices),
      "words": list(option.spec.words),
      "infinite": option.spec.infinite,
      "help": option.spec.help,
    }
    for name, option in options_of(cls).items()
  }


def range_text(option: dict[str, Any]) -> str:
  """The range of an option in words."""
  if option["choices"]:
    return ", ".join(option["choices"])
  if option["type"] in ("bool", "str"):
    return ""
  low = next(
    (f"{words} {option[name]:,.10g}" for name, words in (("ge", "from"), ("gt", "above")) if option[name] is not None), ""
  )
  high = next(
    (f"{words} {option[name]:,.10g}" for name, words in (("le", "to"), ("lt", "below")) if option[name] is not None), ""
  )
  kind = {"int": "whole number", "float": "number"}[option["type"]] + "s" * option["many"]
  infinite = " (inf too)" if option["infinite"] else ""
  words = "".join(f", or {word}" for word in option["words"])
  return f"{kind} {low} {high}".strip().replace("  ", " ") + infinite + words
