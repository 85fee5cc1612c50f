"""Pages of the repository as pages of the site: their order, and their links.

Pages link to tables, model cards and other files by relative paths, as they do on a code host. Markdown files outside of
`docs` are copied into `docs/copied` while the site is built, under the path that they have in the repository, and links to
them are turned. Links to other files become downloads.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from navigation import COPIED, FOLDERS, NAVIGATION, ORDERED
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PATTERNS = ("CHANGELOG.md", "checkpoints/**/README.md", "experiments/results/*.md")

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def outside() -> list[Path]:
  """The Markdown files outside of `docs` that are pages of the site."""
  return sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))


def copy_pages(app: Sphinx) -> None:
  """Copies these files; what did not change is not written again. A page without a heading gets its name."""
  for path in outside():
    text = path.read_text(encoding="utf-8")
    text = text if text.startswith("# ") else f"# {path.stem}\n\n{text}"
    copy = Path(app.srcdir) / COPIED / path.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.exists() or copy.read_text(encoding="utf-8") != text:
      copy.write_text(text, encoding="utf-8")


def home(docname: str) -> str:
  """The folder of a page in the repository."""
  path = docname.removeprefix(f"{COPIED}/") if docname.startswith(f"{COPIED}/") else f"docs/{docname}"
  return posixpath.dirname(path)


def turned(target: str, docname: str) -> str:
  """Where a link of a page leads in the site: pages by their path below `docs`, other files relative to the page."""
  if "://" in target or target.startswith("mailto:"):
    return target
  path = posixpath.normpath(posixpath.join(home(docname), target))
  if path.startswith("docs/"):
    return "/" + path.removeprefix("docs/")
  if ROOT / path in outside():
    return f"/{COPIED}/{path}"
  return "/../" + path


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
  """Turns the links of a page, and gives pages that stand for a folder its pages."""
  if not docname.startswith("reference/"):
    source[0] = _LINK.sub(lambda m: m[1] + turned(m[2], docname) + (m[3] or "") + m[4], source[0])
  if docname == "index":
    for caption, pages in NAVIGATION.items():
      source[0] += _toctree(pages, caption=caption)
  elif docname in FOLDERS:
    source[0] += _toctree(pages_of(docname, app.env.found_docs))


def pages_of(docname: str, known: set[str]) -> list[str]:
  """The pages of the folder that a page stands for, but those that have a place of their own."""
  folder = FOLDERS[docname].removesuffix("*")
  placed = {docname, *(name for pages in NAVIGATION.values() for name in pages)}
  found = [name for name in sorted(known) if name.startswith(folder) and name not in placed]
  order = [folder + name for name in ORDERED.get(docname, ())]
  return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def _toctree(pages, caption: str = "") -> str:
  head = f":caption: {caption}\n" if caption else ""
  lines = "\n".join(f"/{page}" for page in pages)
  return f"\n\n```{{toctree}}\n:hidden:\n{head}\n{lines}\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
  app.connect("builder-inited", copy_pages, priority=400)
  app.connect("source-read", read_source)
  return {"parallel_read_safe": True, "parallel_write_safe": True}
