"""One picture of a round for every method, for the pages of the methods.

    python -m experiments.figures.rounds

Writes ``docs/images/rounds/NAME.svg``. A picture has a strip of tokens for each step of a round; equal columns are equal
positions. Colours of text and lines come from the page, or follow the reader's system setting of light and dark.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import click

from jaxspec.core.command_line import PATH, script

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "rounds"
LEFT, CELL, SIZE, LINE = 10, 42, 32, 22  # pixels: margin, pitch of columns, side of a token, height of a line of text
COLUMNS = 10
WIDTH = 2 * LEFT + COLUMNS * CELL

# One letter for each kind of token in the strips below; the order is that of the legend.
KINDS = {
  "c": "committed before",
  "m": "not known yet",
  "d": "draft",
  "s": "draft of a sparse distribution",
  "i": "initial draft, from no pass",
  "?": "draft, uncertain",
  "L": "accepted locally",
  "V": "passes its test",
  "G": "passes with near tokens",
  "X": "rejected",
  "-": "not tested",
  "A": "accepted draft",
  "T": "drawn by the target",
}
STYLE = """
.round-text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--color-foreground-primary,#1f2328)}
.round-small{font-size:12px}
.round-line{fill:none;stroke:var(--color-foreground-muted,#6b7280);stroke-width:1.5}
.round-mark{fill:none;stroke:var(--color-foreground-primary,#1f2328);stroke-width:2.2;stroke-linecap:round}
.round-old{fill:#8a8f98;stroke:#8a8f98}
.round-draft{fill:#2f80c8;fill-opacity:.12;stroke:#2f80c8;stroke-width:1.8}
.round-first{fill:none;stroke:#2f80c8;stroke-width:1.8;stroke-dasharray:3 3}
.round-kept{fill:#2f80c8;stroke:#2f80c8}
.round-target{fill:#e0741b;stroke:#e0741b}
.round-local{fill:#1a9e77;stroke:#1a9e77}
.round-faint{fill:none;stroke:#8a8f98;stroke-width:1.2;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){
.round-text{fill:var(--color-foreground-primary,#e6e6e6)}
.round-line{stroke:var(--color-foreground-muted,#9aa0a8)}
.round-mark{stroke:var(--color-foreground-primary,#e6e6e6)}
}
""".strip()
_CLASS = {
  "c": "old", "m": "faint", "d": "draft", "s": "draft", "i": "first", "?": "draft", "L": "local", "V": "draft", "G": "draft",
  "X": "draft", "-": "faint", "A": "kept", "T": "target",
}  # fmt: skip


class Strip(NamedTuple):
  """One step: its text and its tokens; a second line of tokens is a second branch of a tree."""

  text: str
  tokens: str
  branch: str = ""


class Picture(NamedTuple):
  """The steps of a round. ``links`` join tokens of trees: (column, line) of a node and of its child."""

  steps: tuple[Strip, ...]
  links: tuple[tuple[int, int, int, int], ...] = ()
  vectors: bool = False


_TREE = ((2, 0, 3, 0), (2, 0, 3, 1), (3, 0, 4, 0), (3, 0, 4, 1), (4, 0, 5, 0), (4, 1, 5, 1))
_COMMITTED = "Committed: accepted drafts, and one token of the target"
PICTURES = {
  "ar": Picture(
    (Strip("Known so far", "ccc"), Strip("One pass of the target draws one token", "cccT")),
  ),
  "speculative": Picture((
    Strip("The draft network draws a chain", "cccdddd"),
    Strip("One pass of the target tests each draft: min(1, p/q)", "cccVVX-"),
    Strip(_COMMITTED, "cccAAT"),
  )),
  "sqs": Picture((
    Strip("Edge: draws drafts within the budget of bits", "cccsss"),
    Strip("Cloud: one pass tests them: min(1, p/q)", "cccVVX"),
    Strip(_COMMITTED, "cccAAT"),
  )),
  "lantern": Picture((
    Strip("The draft network draws a chain", "cccdddd"),
    Strip("Each draft borrows the probability of similar codes", "cccVGX-"),
    Strip(_COMMITTED, "cccAAT"),
  )),
  "sjd": Picture((
    Strip("The window: drafts from the last pass", "cccdddd"),
    Strip("One pass of the target tests them: min(1, p/q)", "cccVX--"),
    Strip(_COMMITTED, "cccAT"),
    Strip("The next window: drafts from this pass", "cccccdddi"),
  )),
  "ngram": Picture((
    Strip("The newest tokens occur earlier: what followed is copied", "ccccdddd"),
    Strip("One pass of the target tests each copy: p(x)", "ccccVVX-"),
    Strip(_COMMITTED, "ccccAAT"),
  )),
  "gsd": Picture((
    Strip("The window: drafts from the last pass", "cccdddd"),
    Strip("A draft is tested by the mass of its group", "cccVGX-"),
    Strip(_COMMITTED, "cccAAT"),
    Strip("The next window: drafts from this pass", "ccccccddii"),
  )),
  "scaled": Picture((
    Strip("The window: drafts from the last pass", "cccdddd"),
    Strip("One pass tests them by a raised ratio: min(1, f p/q)", "cccVVX-"),
    Strip(_COMMITTED, "cccAAT"),
    Strip("The next window: drafts from this pass", "ccccccddii"),
  )),
  "eagle-chain": Picture((
    Strip("A head continues the target's features: a chain", "cccdddd"),
    Strip("One pass of the target tests each draft: min(1, p/q)", "cccVVVX"),
    Strip(_COMMITTED, "cccAAAT"),
  )),
  "spatial": Picture((
    Strip("Heads draft to the right, and downward from the row above", "cccccccccc", "cccdddd"),
    Strip("One pass of the target tests each draft: min(1, p/q)", "cccVVX-"),
    Strip(_COMMITTED, "cccAAT"),
  )),
  "eagle": Picture(
    (
      Strip("A head continues the target's features: a tree", "cccddd", "...ddd"),
      Strip("One pass scores all nodes; siblings are tested in turn", "cccVX-", "...-VV"),
      Strip(_COMMITTED, "cccAAAT"),
    ),
    _TREE,
  ),
  "eagle-lantern": Picture(
    (
      Strip("A head continues the target's features: a tree", "cccddd", "...ddd"),
      Strip("Each candidate borrows from similar codes", "cccGX-", "...-VG"),
      Strip(_COMMITTED, "cccAAAT"),
    ),
    _TREE,
  ),
  "block-head": Picture((
    Strip("One pass of a head gives a row for every draft", "cccdddd"),
    Strip("One pass of the target tests each draft: min(1, p/q)", "cccVVX-"),
    Strip(_COMMITTED, "cccAAT"),
  )),
  "ciar": Picture((
    Strip("Edge: accepts certain tokens, drafts from the first other", "cccLLL?dd"),
    Strip("Cloud: one pass reads all, and tests the window", "cccLLLVX-"),
    Strip("Committed: local tokens, accepted drafts, and the cloud's", "cccLLLAT"),
  )),
  "cspd": Picture(
    (
      Strip("The draft network draws tokens by diffusion", "cccdddd"),
      Strip("The target runs its own chains, and tests each draft", "cccVVX-"),
      Strip("Committed: accepted drafts, and one token of the target", "cccAAT"),
    ),
    vectors=True,
  ),
  "parallel": Picture(
    (
      Strip("Some positions of the image are known", "cmmcmmcmmm"),
      Strip("One iteration draws several positions at once", "cTmcTmcmTm"),
    ),
    vectors=True,
  ),
  "rows": Picture(
    (
      Strip("Two rows of an image are open, the lower one behind", "cccccmmmmm", "ccmmmmmmmm"),
      Strip("One pass of the target draws the next token of each", "cccccTmmmm", "ccTmmmmmmm"),
    ),
  ),
  "scale-speculative": Picture((
    Strip("The draft network draws whole scales", "cccddd"),
    Strip("One pass of the target tests each scale: min(1, P/Q)", "cccVVX"),
    Strip("Committed: accepted scales, and one of the target", "cccAAT"),
  )),
  "scale-ciar": Picture((
    Strip("Edge: accepts certain scales, drafts from the first other", "cccLL?dd"),
    Strip("Cloud: one pass reads all, and tests the window", "cccLLVX-"),
    Strip("Committed: local scales, accepted drafts, and the cloud's", "cccLLAT"),
  )),
  "step-ciar": Picture(
    (
      Strip("Edge: takes certain steps locally", "cccLLL?"),
      Strip("Cloud: takes the first other, from the newest state", "cccLLL?"),
      Strip("Committed: local steps, and one of the cloud", "cccLLLT"),
    ),
    vectors=True,
  ),
  "step-speculative": Picture(
    (
      Strip("The draft network drafts denoising steps", "cccdddd"),
      Strip("One pass of the target couples its steps with them", "cccVVX-"),
      Strip("Committed: accepted steps, and one of the target", "cccAAT"),
    ),
    vectors=True,
  ),
}  # fmt: skip


def render(name: str) -> str:
  """The picture of a method, as text of an SVG file."""
  picture = PICTURES[name]
  body, top = [], 4
  for step in picture.steps:
    body.append(f'<text class="round-text" x="{LEFT}" y="{top + 14}">{escape(step.text)}</text>')
    top += LINE
    lines = [line for line in (step.tokens, step.branch) if line]
    if len(lines) > 1:
      body += [_link(picture.links[i], top) for i in range(len(picture.links))]
    for number, line in enumerate(lines):
      for column, kind in enumerate(line):
        if kind != ".":
          body.append(_token(kind, LEFT + column * CELL, top + number * CELL, picture.vectors))
    top += len(lines) * CELL + 6
  legend = [kind for kind in KINDS if any(kind in step.tokens + step.branch for step in picture.steps)]
  top += 4
  for number, kind in enumerate(legend):
    x, y = LEFT + number % 2 * (WIDTH - 2 * LEFT) // 2, top + number // 2 * 24
    body.append(f'<g transform="translate({x},{y}) scale(.5)">{_token(kind, 0, 0, picture.vectors)}</g>')
    body.append(f'<text class="round-text round-small" x="{x + 24}" y="{y + 13}">{KINDS[kind]}</text>')
  height = top + (len(legend) + 1) // 2 * 24
  title = escape(f"One round of {name}: " + "; ".join(step.text for step in picture.steps))
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
    f"\n<style>\n{STYLE}\n</style>\n" + "\n".join(body) + "\n</svg>\n"
  )


def _link(link: tuple[int, int, int, int], top: int) -> str:
  """A line from the right side of a node to the left side of its child."""
  column, line, next_column, next_line = link
  x, y = LEFT + column * CELL + SIZE, top + line * CELL + SIZE / 2
  return f'<path class="round-line" d="M{x} {y:g}L{LEFT + next_column * CELL} {top + next_line * CELL + SIZE / 2:g}"/>'


def _shape(css: str, x: float, y: float, vectors: bool) -> str:
  """A square for a discrete token, a circle for a continuous one."""
  half = SIZE / 2
  if vectors:
    return f'<circle class="round-{css}" cx="{x + half:g}" cy="{y + half:g}" r="{half - 1:g}"/>'
  return f'<rect class="round-{css}" x="{x + 1:g}" y="{y + 1:g}" width="{SIZE - 2}" height="{SIZE - 2}" rx="5"/>'


def _token(kind: str, x: float, y: float, vectors: bool) -> str:
  drawn = _shape(_CLASS[kind], x, y, vectors)
  if kind == "G":
    drawn = _shape("draft", x + 6, y - 5, vectors) + _shape("draft", x + 3, y - 2.5, vectors) + drawn
  if kind in "VG":
    return drawn + f'<path class="round-mark" d="M{x + 9:g} {y + 17:g}l5 6 9-13"/>'
  if kind == "X":
    return drawn + f'<path class="round-mark" d="M{x + 10:g} {y + 10:g}l12 12m0-12l-12 12"/>'
  if kind == "?":
    return drawn + f'<text class="round-text" x="{x + 16:g}" y="{y + 21:g}" text-anchor="middle">?</text>'
  if kind == "s":
    bars = "".join(f"M{x + 8 + 6 * i:g} {y + 25:g}v-{height}" for i, height in enumerate((14, 8, 4)))
    return drawn + f'<path class="round-mark" d="{bars}"/>'
  return drawn


@script(__doc__)
@click.option("--images", type=PATH, default=IMAGES, help="Folder to write to.")
def main(images: Path) -> None:
  images.mkdir(parents=True, exist_ok=True)
  for name in PICTURES:
    (images / f"{name}.svg").write_text(render(name), encoding="utf-8")


if __name__ == "__main__":
  main()
