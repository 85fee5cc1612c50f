"""Pictures of rounds stand in the page itself, so that they take its colours, light or dark."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

FOLDER = "images/rounds/"


def inline(app: Sphinx, doctree: nodes.document, docname: str) -> None:
  """Replaces the pictures of a page by their text."""
  for image in list(doctree.findall(nodes.image)):
    if image["uri"].startswith(FOLDER):
      text = (Path(app.srcdir) / image["uri"]).read_text()
      image.replace_self(nodes.raw("", f'<div class="round">{text}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
  app.connect("doctree-resolved", inline)
  return {"parallel_read_safe": True, "parallel_write_safe": True}
