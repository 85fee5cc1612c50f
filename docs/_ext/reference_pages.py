"""The reference: one page for each group of public names, written while the site is built from what docstrings say.

Fields of named tuples are explained by comments in the code, and options of methods by their declarations. Both become
attributes of the class here, so that nothing is written twice.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from navigation import GROUPS
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

import jaxspec
from jaxspec.core.options import Option, options_of
from jaxspec.methods import METHODS


def names_of(group: str) -> list[tuple[str, str]]:
  """Module and name of everything on a page, in its order: of a submodule methods first, and constants last."""
  listed = GROUPS[group][2]
  if not listed.startswith("jaxspec."):
    found = (f"jaxspec.{name}".rpartition(".") for name in listed.split())
    return [(module, name) for module, _, name in found]
  module = getattr(jaxspec, listed.removeprefix("jaxspec."))
  registry = list(METHODS.values())

  def rank(name: str) -> int:
    value = getattr(module, name)
    if value in registry:
      return registry.index(value)
    return len(registry) + (0 if callable(value) else 1)

  return [(listed, name) for name in sorted(module.__all__, key=rank)]


def write_pages(app: Sphinx) -> None:
  """Writes the pages of the reference into `docs/reference`."""
  folder = Path(app.srcdir) / "reference"
  folder.mkdir(exist_ok=True)
  lines = ["# Reference", "", "The public names of the library, by group, as their docstrings explain them.", ""]
  for group, (title, about, _) in GROUPS.items():
    names = names_of(group)
    found = ", ".join(f"{{py:obj}}`~{module}.{name}`" for module, name in names)
    lines += [f"## [{title}]({group}.md)", "", about, "", found, ""]
    _write(folder / f"{group}.md", "\n".join(_page(title, about, names)))
  _write(folder / "index.md", "\n".join(lines))


def _page(title: str, about: str, names: list[tuple[str, str]]) -> Iterator[str]:
  yield f"# {title}\n\n{about}\n"
  yield "```{eval-rst}"
  yield f".. currentmodule:: {names[0][0]}\n"
  for module, name in names:
    yield _directive(module, name)
  yield "```"


def _directive(module: str, name: str) -> str:
  value = getattr(__import__(module, fromlist=[name]), name)
  if inspect.isclass(value):
    kind = "exception" if issubclass(value, Exception) else "class"
    return f".. auto{kind}:: {module}.{name}\n   :members:\n"
  if type(value).__module__ == "builtins" and not callable(value):
    shown = f"   :value: {value!r}\n" if isinstance(value, str | int) else ""
    return f".. py:data:: {module}.{name}\n{shown}"
  if hasattr(value, "__name__"):
    return f".. autofunction:: {module}.{name}\n"
  return f".. autodata:: {module}.{name}\n   :no-value:\n"


def _write(path: Path, text: str) -> None:
  if not path.exists() or path.read_text() != text:
    path.write_text(text)


def is_named_tuple(value: Any) -> bool:
  return inspect.isclass(value) and issubclass(value, tuple) and hasattr(value, "_fields")


def field_comments(cls: type) -> dict[str, str]:
  """What the comments beside or above the fields of a class say about them."""
  source = textwrap.dedent(inspect.getsource(cls))
  lines, found = source.splitlines(), {}
  for node in ast.parse(source).body[0].body:
    if not isinstance(node, ast.AnnAssign):
      continue
    beside = lines[node.end_lineno - 1][node.end_col_offset :].strip()
    above, number = [], node.lineno - 2
    while number >= 0 and lines[number].strip().startswith("#"):
      above.insert(0, lines[number].strip())
      number -= 1
    comment = " ".join(part.lstrip("# ") for part in [*above, beside] if part)
    if comment:
      found[node.target.id] = _shapes_as_code(comment)
  return found


def _shapes_as_code(comment: str) -> str:
  """``[B, K]`` as code, also where the comment has no quotes around it."""
  parts = re.split(r"(``.*?``)", comment)
  return "".join(part if part.startswith("``") else re.sub(r"(\[[A-Z][^\]]*\])(?!\+)", r"``\1``", part) for part in parts)


def option_text(option: Option) -> str:
  choices = f" One of {', '.join(option.spec.choices)}." if option.spec.choices else ""
  return f"{option.spec.help}{choices} Default: ``{option.default}``."


def keep_sentence(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
  """Keeps napoleon from reading the first sentence of data, where it has a colon, as a type and its meaning."""
  if what == "data" and lines:
    lines[0] = lines[0].replace(": ", " -- ", 1)


def add_fields(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
  """Adds the fields of named tuples and the options of methods to their docstrings, as napoleon reads them."""
  if what != "class" or any(line.strip() == "Attributes:" for line in lines):
    return
  if is_named_tuple(value):
    fields = field_comments(value)
  elif hasattr(value, "__dataclass_fields__"):
    fields = {name: option_text(option) for name, option in options_of(value).items()}
  else:
    return
  if fields:
    lines += ["", "Attributes:", *(f"  {name}: {text}" for name, text in fields.items()), ""]


def skip_member(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
  """Leaves out fields of named tuples, which stand among the attributes, and overrides that only point to their base."""
  doc = getattr(value, "__doc__", None) or ""
  if type(value).__name__ == "_tuplegetter" or doc.startswith("See `") and len(doc) < 60:
    return True
  return None


def setup(app: Sphinx) -> dict[str, bool]:
  for field in PyObject.doc_field_types:
    if field.name == "variable":
      field.label = "Attributes"
  app.connect("builder-inited", write_pages, priority=400)
  app.connect("autodoc-process-docstring", keep_sentence, priority=90)
  app.connect("autodoc-process-docstring", add_fields, priority=100)
  app.connect("autodoc-skip-member", skip_member)
  return {"parallel_read_safe": True, "parallel_write_safe": True}
