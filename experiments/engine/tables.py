"""Renders the JSON document of a table as Markdown.

`experiments.engine.kinds` has the columns of each ``kind`` of documents, the sentence above the table and the lines below
it.

Rendering needs no networks and no measurements: ``python -m experiments.run --render`` renders every committed table.

Empty columns are left out. Below every table is the smallest detectable difference (`experiments.engine.statistics`).
"""

from __future__ import annotations

from experiments.engine.cells import Document, Kind, markdown
from experiments.engine.kinds import (
  classes,
  hosts,
  imposed,
  links,
  memory,
  official,
  parts,
  scenes,
  speed,
)

_MODULES = (scenes, classes, speed, links, parts, imposed, memory, official, hosts)
KINDS: dict[str, Kind] = {name: kind for module in _MODULES for name, kind in module.KINDS.items()}


def render(document: Document) -> str:
  """The table of a document, ending in a newline.

  Raises:
    ValueError: for an unknown kind.
  """
  if document.get("kind") not in KINDS:
    raise ValueError(f"Must have a document of kind {', '.join(KINDS)}, we instead got {document.get('kind')!r}")
  kind = KINDS[document["kind"]]
  columns, rows = kind.columns(document), kind.rows(document)
  cells = [[column.cell(row, document) for column in columns] for row in rows]
  shown = [index for index in range(len(columns)) if index == 0 or any(row[index] for row in cells)]
  head = [columns[index].head for index in shown]
  sections = [
    f"# {document['title']}",
    f"{commands(document)}: {kind.intro(document)} {origin(document)}",
    markdown(head, [[row[index] for index in shown] for row in cells]),
    *kind.below(document),
    *document.get("notes", ()),
    *document.get("left_out", ()),
  ]
  return "\n\n".join(section for section in sections if section) + "\n"


def commands(document: Document) -> str:
  """The command, or those of the parts of a combined table."""
  found = document["command"]
  return ", ".join(f"`{command}`" for command in ([found] if isinstance(found, str) else found))


def origin(document: Document) -> str:
  """Machine and versions, if recorded."""
  machine, versions = document.get("machine", {}), document.get("versions", {})
  words = [f"{name} {versions[name]}" for name in ("jax", "torch") if name in versions]
  words += [str(machine["kind"])] if "kind" in machine else []
  words += [f"{machine['cpus']} cores"] if "cpus" in machine else []
  return f"({', '.join(words)})" if words else ""
