"""The fields of a frozen config as a tree."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.text import Text
from rich.tree import Tree


def settings_tree(tree: Tree, config: Any) -> Tree:
  """Adds the fields of a dataclass to a tree; nested dataclasses are branches."""
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if dataclasses.is_dataclass(value):
      settings_tree(tree.add(Text(field.name, style="cyan")), value)
    else:
      tree.add(Text.assemble((f"{field.name}  ", "dim"), str(value)))
  return tree
