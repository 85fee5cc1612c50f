"""Sequence diagram of edge and server, for the page on serving.

    python -m experiments.figures.exchange

Writes ``docs/images/exchange.svg``: time goes down, with the edge on the left and the server on the right. Colours follow
the page, or the reader's system setting of light and dark.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import click

from jaxspec.core.command_line import PATH, script

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "exchange.svg"
EDGE, SERVER, WIDTH = 150, 490, 680  # pixels: the two lines, and the whole
TOP, ARROW, HEAD, SLOPE = 46, 34, 34, 8  # heights: before the first step, and of each kind; drop of an arrow
STYLE = """
.exchange-text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--color-foreground-primary,#1f2328)}
.exchange-small{font-size:12px}
.exchange-name{font-size:15px;font-weight:600}
.exchange-head{font-weight:600}
.exchange-life{stroke:var(--color-foreground-muted,#6b7280);stroke-width:1.5;stroke-dasharray:2 4}
.exchange-rule{stroke:var(--color-foreground-muted,#6b7280);stroke-width:.8}
.exchange-up{stroke:#2f80c8;stroke-width:2;fill:none}
.exchange-down{stroke:#e0741b;stroke-width:2;fill:none}
.exchange-up-tip{fill:#2f80c8}
.exchange-down-tip{fill:#e0741b}
.exchange-lost{stroke:#c0392b;stroke-width:2.4;stroke-linecap:round;fill:none}
.exchange-work{fill:#8a8f98;fill-opacity:.55}
@media (prefers-color-scheme:dark){
.exchange-text{fill:var(--color-foreground-primary,#e6e6e6)}
.exchange-life,.exchange-rule{stroke:var(--color-foreground-muted,#9aa0a8)}
}
""".strip()


class Up(NamedTuple):
  """A message to the server; a lost one ends halfway. ``then`` is the server's action."""

  text: str
  then: str = ""
  is_lost: bool = False


class Down(NamedTuple):
  """A message to the edge. ``then`` is the edge's action."""

  text: str
  then: str = ""
  is_lost: bool = False


class Head(NamedTuple):
  """Heading of the steps below."""

  text: str


STEPS = (
  Head("A stream is opened"),
  Up("Open: name, key, condition", "reads the condition"),
  Down("first token", "drafts"),
  Head("A round"),
  Up("Verify 1: drafts and what they were drawn from", "one step, with other rows"),
  Down("how many are accepted, and the next token", "commits, drafts"),
  Head("A round in coding lazy"),
  Up("Verify 2: drafts and their counts", "one step: rejects a draft"),
  Down("wants the distribution of that draft"),
  Up("Verify 2, part 1: the distribution", "draws the next token"),
  Down("the next token", "commits, drafts"),
  Head("A reply is lost"),
  Up("Verify 3: drafts", "one step; keeps the reply"),
  Down("", "waits, then asks again", is_lost=True),
  Up("Verify 3: the same bytes", "computes nothing"),
  Down("the kept reply", "commits, drafts"),
  Head("Its server was killed, and another one is there"),
  Up("Verify 4: drafts", "knows no such stream"),
  Down("NOT_FOUND"),
  Up("Open: name, key, condition, tokens so far", "reads them all"),
  Down("goes on at call 4"),
  Up("Verify 4: the same bytes", "one step"),
  Down("the same reply as the first server's", "commits"),
  Head("The row is finished"),
  Up("Close", "forgets the stream"),
)


def render() -> str:
  """The picture, as text of an SVG file."""
  body, y = [], TOP
  for step in STEPS:
    if isinstance(step, Head):
      y += 14
      body.append(f'<path class="exchange-rule" d="M10 {y}H{WIDTH - 10}"/>')
      body.append(_text(step.text, (EDGE + SERVER) / 2, y + 18, "exchange-head", "middle"))
      y += HEAD
    else:
      body.append(_message(step, y))
      y += ARROW
  y += 16
  life = "".join(f'<path class="exchange-life" d="M{x} {TOP - 8}V{y}"/>' for x in (EDGE, SERVER))
  names = "".join(_text(name, x, 24, "exchange-name", "middle") for name, x in (("Edge", EDGE), ("Server", SERVER)))
  words = escape("What edge and server say to each other: " + "; ".join(s.text for s in STEPS if isinstance(s, Head)))
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" role="img" aria-label="{words}">'
    f"\n<style>\n{STYLE}\n</style>\n{life}{names}\n" + "\n".join(body) + "\n</svg>\n"
  )


def _message(step: Up | Down, y: float) -> str:
  """An arrow with its text above, and the action of the other end beside it."""
  is_up = isinstance(step, Up)
  css, start, end = ("up", EDGE, SERVER) if is_up else ("down", SERVER, EDGE)
  sign = 1 if is_up else -1
  y0, y1 = y + 14, y + 14 + SLOPE
  found = [_text(step.text, (EDGE + SERVER) / 2, y + 10, "exchange-small", "middle")] if step.text else []
  if step.is_lost:
    x, middle = (start + end) / 2, (y0 + y1) / 2
    found.append(f'<path class="exchange-{css}" d="M{start} {y0}L{x - sign * 8:g} {middle:g}"/>')
    found.append(f'<path class="exchange-lost" d="M{x - 6:g} {middle - 6:g}l12 12m0 -12l-12 12"/>')
  else:
    found.append(f'<path class="exchange-{css}" d="M{start} {y0}L{end - sign * 7} {y1}"/>')
    found.append(f'<path class="exchange-{css}-tip" d="M{end} {y1}l{-sign * 10} -5v10z"/>')
  if step.then:
    found.append(f'<rect class="exchange-work" x="{end - 3}" y="{y1}" width="6" height="{ARROW - SLOPE}" rx="3"/>')
    at, anchor = (SERVER + 10, "start") if is_up else (EDGE - 10, "end")
    found.append(_text(step.then, at, y1 + 16, "exchange-small", anchor))
  return "".join(found)


def _text(text: str, x: float, y: float, css: str, anchor: str = "start") -> str:
  return f'<text class="exchange-text {css}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


@script(__doc__)
@click.option("--image", type=PATH, default=IMAGE, help="Picture to write.")
def main(image: Path) -> None:
  image.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
  main()
