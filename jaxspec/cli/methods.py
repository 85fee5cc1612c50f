"""``jaxspec methods``: the decoding methods and their declared options."""

from __future__ import annotations

import json
import re
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of all methods or of one.")
def methods(name: str | None, as_json: bool) -> None:
  """List the decoding methods, or explain the method NAME with all of its options."""
  from jaxspec.methods import METHODS, get_method
  from jaxspec.run.json_values import finite
  from jaxspec.run.method_schema import method_schema, option_schemas
  from jaxspec.sampling import SAMPLING_TYPES

  if name is not None:
    found = method_schema(get_method(name))
  else:
    sampling = {kind: option_schemas(cls) for kind, cls in SAMPLING_TYPES.items()}
    found = {"methods": {name: method_schema(cls) for name, cls in METHODS.items()}, "sampling": sampling}
  if as_json:
    click.echo(json.dumps(finite(found), indent=2, ensure_ascii=False))
    return
  console = Console(highlight=False)
  if name is not None:
    _print_method(console, found)
  else:
    _print_all(console, list(found["methods"].values()))


def _print_all(console: Console, found: list[dict[str, Any]]) -> None:
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  for title in ("method", "description", "exact", "drafts from"):
    table.add_column(title, no_wrap=title != "description", overflow="fold")
  words = {True: "yes", False: "no", "option": "option"}
  sections = list(dict.fromkeys(map(_tokens, found)))
  shown = set()
  for method in sorted(found, key=lambda method: sections.index(_tokens(method))):
    if (tokens := _tokens(method)) not in shown:
      table.add_row(Text("\n" * bool(shown) + f"{tokens}:", style="dim"))
      shown.add(tokens)
    exact = Text(words[method["exact"]], style="green" if method["exact"] is True else "")
    drafts = method["drafts_by"].removeprefix("a network of the family ").removeprefix("a ").removeprefix("the ")
    drafts = drafts.partition(" or ")[0].removesuffix(" itself")  # `jaxspec methods NAME` lists all of them
    table.add_row(Text(method["name"], style="bold"), method["title"], exact, drafts)
  console.print(table)
  console.print()
  console.print("jaxspec methods NAME explains a method and its options.", style="dim", soft_wrap=True)


def _tokens(method: dict[str, Any]) -> str:
  """The kinds of tokens that a method draws."""
  from jaxspec.core.token_kinds import KINDS, noun

  return "any tokens" if len(method["tokens"]) == len(KINDS) else " or ".join(map(noun, method["tokens"]))


def _print_method(console: Console, method: dict[str, Any]) -> None:
  words = {True: "exact", False: "not exact", "option": "exact with --exact"}[method["exact"]]
  console.print(Text.assemble((method["name"], "bold"), f"  {method['title']}"))
  console.print(f"{words}; drafts from {method['drafts_by']}; draws {_tokens(method)}", style="dim")
  if method["source"]:
    console.print(Text(method["source"], style="dim"))
  for paragraph in _paragraphs(method["about"]):
    console.print()
    console.print(Text(paragraph))
  if not method["options"]:
    return
  from jaxspec.run.method_schema import range_text

  console.print()
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  for title in ("option", "default", "meaning and values"):
    table.add_column(title, no_wrap=title != "meaning and values")
  for option in method["options"].values():
    typed = option["flag"].replace("--", "--[no-]", 1) if option["type"] == "bool" else option["flag"]
    values = range_text(option)
    meaning = Text.assemble(option["help"], (f"  {values}", "dim") if values else "")
    table.add_row(Text(typed, style="cyan"), value_word(option["default"]), meaning)
  console.print(table)


def _paragraphs(text: str) -> list[str]:
  """A docstring as paragraphs, without line breaks and marks; list items stay separate."""
  text = re.sub(r"``(.+?)``|`(.+?)`", lambda match: match[1] or match[2], text)
  parts = [part for block in text.split("\n\n") for part in re.split(r"\n(?=\* )", block)]
  return [" ".join(part.split()) for part in parts]


def value_word(value: Any) -> str:
  if isinstance(value, bool) or value is None:
    return {True: "yes", False: "no", None: "none"}[value]
  if isinstance(value, tuple):
    return ",".join(map(value_word, value)) or "none"
  return f"{value:,.10g}" if isinstance(value, float) else str(value)
