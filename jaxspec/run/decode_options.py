"""Options of a decode by name: those declared by its method and sampling settings, and the resulting job.

The declarations check the values (`jaxspec.core.options`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jaxspec.core.options import Option, options_of
from jaxspec.methods import METHODS, Method, get_method
from jaxspec.sampling import SAMPLING_TYPES

if TYPE_CHECKING:
  from jaxspec.families.family import Encoded
  from jaxspec.run.job import Job
  from jaxspec.run.pipeline import Pipeline


class DecodeOptions(NamedTuple):
  """The given method, draft network and options of a decode; others have defaults."""

  method: str | None
  draft: str | None
  options: dict[str, Any]  # declared by methods, by sampling settings, or by both

  @classmethod
  def of(cls, params: dict[str, Any]) -> DecodeOptions:
    """The options among the parameters of a command."""
    given = {name: params[name] for name in declarations() if params.get(name) is not None}
    return cls(params.get("method"), params.get("draft"), given)

  def check(self) -> None:
    """Checks the options before loading.

    Raises:
      ValueError: in one line, for an unknown method or a value that no declaration allows.
    """
    cls = None if self.method is None else get_method(self.method)
    for name, value in self.options.items():
      declared = declarations()[name]
      if cls is not None and name in options_of(cls):
        declared = [options_of(cls)[name]]
      check_one_of(declared, value)

  def for_method(self, cls: type[Method]) -> dict[str, Any]:
    """The given options that a method declares, and the draft if it has one."""
    draft = {} if self.draft is None or cls.draft_family is None else {"draft": self.draft}
    return draft | _read(options_of(cls), self.options)

  def for_sampling(self, cls: type) -> dict[str, Any]:
    """The given options that sampling settings declare."""
    return _read(options_of(cls), self.options)

  def unread(self, method: type[Method], sampling: type) -> list[str]:
    """Warnings about given options that neither the method nor the sampling settings declare."""
    read = options_of(method).keys() | options_of(sampling).keys()
    names = [] if self.draft is None or method.draft_family is not None else ["draft"]
    names += [name for name in self.options if name not in read]
    return [f"Not read by --method {method.name}: {', '.join(map(flag, names))}"] if names else []

  def job(self, pipeline: Pipeline, prompts: Encoded, *, seed: int, max_len: int | None = None) -> Job:
    """The job of these options, with warnings about unread ones.

    Args:
      prompts: result of `Pipeline.encode`.
    Raises:
      ValueError: in one line, for a mismatch.
    """
    cls = get_method(self.method or pipeline.default_method)
    method = pipeline.method(cls.name, **self.for_method(cls))
    sampling = pipeline.sampling(**self.for_sampling(pipeline.family.sampling_type))
    found = pipeline.job(prompts, method=method, sampling=sampling, max_len=max_len, seed=seed)
    found.warnings[:0] = self.unread(cls, type(sampling))
    return found


def flag(name: str) -> str:
  """The command-line form of an option's name."""
  return f"--{name.replace('_', '-')}"


def declarations() -> dict[str, list[Option]]:
  """Every option that a method or sampling settings declare, by name, with all of its declarations."""
  found: dict[str, list[Option]] = {}
  for cls in (*SAMPLING_TYPES.values(), *METHODS.values()):
    for declared in options_of(cls).values():
      found.setdefault(declared.name, []).append(declared)
  return found


def check_one_of(declared: list[Option], value: Any) -> None:
  """Raises the ValueError of the first declaration if none allows a value."""
  errors = []
  for option in declared:
    try:
      return option.check(fitting(option, value))
    except ValueError as error:
      errors.append(error)
  raise errors[0]


def fitting(option: Option, value: Any) -> Any:
  """A value of the command line: a whole number as an integer if integers are declared, ``1,2`` as a tuple.

  Raises:
    ValueError: for an item of a numeric tuple that is not a number.
  """
  if option.many and isinstance(value, str):
    try:
      return tuple(option.kind(item) for item in value.split(","))
    except ValueError as error:
      form = f"{option.kind.__name__} items with commas between"
      raise ValueError(f"Must have {form} as {flag(option.name)}, we instead got {value!r}") from error
  return int(value) if option.kind is int and isinstance(value, float) and value.is_integer() else value


def _read(options: dict[str, Option], given: dict[str, Any]) -> dict[str, Any]:
  """The given values of declared options."""
  return {name: fitting(options[name], value) for name, value in given.items() if name in options}
