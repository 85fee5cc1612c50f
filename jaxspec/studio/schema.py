"""Requests of the page: their fields and limits, checked before anything is computed."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from jaxspec.core.options import MAX_SEED, options_of
from jaxspec.methods import get_method
from jaxspec.run.decode_options import DecodeOptions, declarations

MAX_ENTRANTS = 3
MAX_PROMPTS = 4
MAX_PROMPT_LETTERS = 400
MAX_TEXT_TOKENS = 256


class ComparisonRequest(NamedTuple):
  """A request for a comparison.

  Attributes:
    prompts: one for each row, as typed.
    entrants: methods with their options and the sampling settings of all.
    seed: of the decode; equal for all entrants.
    max_tokens: most tokens of a text; None uses the network's length.
    audit: also compute the exact distribution of every token.
    whole: also decode each entrant in one program, and measure its time.
    messages: also decode each entrant that has messages through them, and count their bytes.
  """

  prompts: list[str]
  entrants: list[DecodeOptions]
  seed: int = 0
  max_tokens: int | None = None
  audit: bool = False
  whole: bool = False
  messages: bool = False


def read(body: Any) -> ComparisonRequest:
  """A request from JSON.

  Raises:
    ValueError: in one line, for the first invalid field.
  """
  if not isinstance(body, dict):
    raise ValueError("Must have an object with prompts and entrants, we instead got something else")
  if unknown := sorted(body.keys() - {*ComparisonRequest._fields, "sampling"}):
    raise ValueError(f"Must have fields of a race, we instead got {unknown[0][:40]!r}")
  sampling = _object(body.get("sampling", {}), "sampling")
  entrants = body.get("entrants")
  if not isinstance(entrants, list) or not 1 <= len(entrants) <= MAX_ENTRANTS:
    raise ValueError(f"Must have 1 to {MAX_ENTRANTS} methods, we instead got {_size(entrants)}")
  switches = {name: body.get(name, False) for name in ("audit", "whole", "messages")}
  if wrong := [name for name, value in switches.items() if not isinstance(value, bool)]:
    raise ValueError(f"Must have true or false as {wrong[0]}, we instead got {switches[wrong[0]]!r:.40}")
  return ComparisonRequest(
    _prompts(body.get("prompts")),
    [_entrant(entrant, sampling) for entrant in entrants],
    _whole_number("seed", body.get("seed", 0), 0, MAX_SEED),
    None if body.get("max_tokens") is None else _whole_number("max_tokens", body["max_tokens"], 1, MAX_TEXT_TOKENS),
    **switches,
  )


def _prompts(prompts: Any) -> list[str]:
  if not isinstance(prompts, list) or not all(isinstance(prompt, str) for prompt in prompts):
    raise ValueError("Must have a list of texts as prompts, we instead got something else")
  prompts = [prompt for prompt in prompts if prompt.strip()]
  if not 1 <= len(prompts) <= MAX_PROMPTS:
    raise ValueError(f"Must have 1 to {MAX_PROMPTS} prompts, we instead got {len(prompts)}")
  for number, prompt in enumerate(prompts, 1):
    if len(prompt) > MAX_PROMPT_LETTERS:
      raise ValueError(f"Must have prompts of at most {MAX_PROMPT_LETTERS} characters, prompt {number} has {len(prompt)}")
    if any(ord(character) < 32 for character in prompt):
      raise ValueError(f"Must have prompts of one line, prompt {number} has control characters")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in prompt):  # JSON can escape them, files cannot hold them
      raise ValueError(f"Must have prompts of whole characters, prompt {number} has half of a surrogate pair")
  return prompts


def _entrant(entrant: Any, sampling: dict[str, Any]) -> DecodeOptions:
  entrant = _object(entrant, "a method")
  name, draft = entrant.get("method"), entrant.get("draft")
  if not isinstance(name, str) or not (draft is None or isinstance(draft, str)):
    raise ValueError("Must have the name of a method, and that of a draft or none, we instead got something else")
  cls, options = get_method(name[:40]), _object(entrant.get("options", {}), "options")
  if unknown := sorted(options.keys() - options_of(cls).keys()):
    raise ValueError(f"Must have options that method {cls.name} declares, we instead got {unknown[0][:40]!r}")
  if unknown := sorted(sampling.keys() - declarations().keys()):
    raise ValueError(f"Must have sampling settings, we instead got {unknown[0][:40]!r}")
  given = {key: _number(value) for key, value in {**sampling, **options}.items() if value is not None}
  for key, value in given.items():
    if not isinstance(value, (bool, int, float, str)) or len(str(value)) > 200:
      raise ValueError(f"Must have a number or a word as {key}, we instead got something else")
  decoding = DecodeOptions(cls.name, draft, given)
  decoding.check()
  return decoding


def _number(value: Any) -> Any:
  """A value of JSON, where infinity is the word ``inf``."""
  return math.inf if value == "inf" else value


def _whole_number(name: str, value: Any, low: int, high: int) -> int:
  if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
    raise ValueError(f"Must have a whole number from {low} to {high} as {name}, we instead got {value!r:.40}")
  return value


def _object(value: Any, name: str) -> dict[str, Any]:
  if not isinstance(value, dict):
    raise ValueError(f"Must have an object as {name}, we instead got something else")
  return value


def _size(value: Any) -> str:
  return str(len(value)) if isinstance(value, list) else "something else"
