"""The text of HTML, without tags and comments and with character references resolved.

The result equals that of Beautiful Soup (``html.parser``), which cleaned the captions of released networks.
"""

from __future__ import annotations

import html
import re
from html.entities import html5
from html.parser import HTMLParser

# Tags whose content is not text.
_HIDDEN = frozenset({"script", "style", "template", "rt", "rp"})
# Tags without an end tag.
_EMPTY = frozenset(
  "area base basefont bgsound br col command embed frame hr image img input isindex keygen link menuitem meta nextid param "
  "source spacer track wbr".split()
)
_SPACES = frozenset(" \t\n\r\f")
_NUMBER = re.compile(r"x[0-9a-f]+|[0-9]+", re.IGNORECASE)


class _Text(HTMLParser):
  def __init__(self):
    super().__init__(convert_charrefs=False)
    self.pieces: list[str] = []
    self._piece = ""
    self._open: list[str] = []  # tags around the current place

  def end_piece(self) -> None:
    """Ends a piece of text between two tags; a blank piece becomes a single space."""
    piece, self._piece = self._piece, ""
    if piece and not set(piece) - _SPACES:
      piece = "\n" if "\n" in piece else " "
    if not _HIDDEN.intersection(self._open):
      self.pieces.append(piece)

  def handle_starttag(self, tag, attrs):
    self.end_piece()
    if tag not in _EMPTY:
      self._open.append(tag)

  def handle_startendtag(self, tag, attrs):
    self.end_piece()

  def handle_endtag(self, tag):
    self.end_piece()
    if tag in self._open:
      while self._open.pop() != tag:
        pass

  def handle_data(self, data):
    self._piece += data

  def handle_charref(self, name):
    number = _NUMBER.match(name)
    self._piece += html.unescape(f"&#{number[0]};") + name[number.end() :] if number else name

  def handle_entityref(self, name):
    self._piece += html5.get(f"{name};", f"&{name}")

  def handle_comment(self, data):
    self.end_piece()

  handle_pi = handle_comment

  def handle_decl(self, decl):
    self.end_piece()

  def unknown_decl(self, data):
    self.end_piece()
    if data[:6].upper() == "CDATA[":
      self.pieces.append(data[6:])


def plain_text(text: str) -> str:
  """The text that a browser would show; text without HTML is unchanged."""
  parser = _Text()
  try:
    parser.feed(text)
    parser.close()
  except AssertionError:  # the parser of the standard library rejects some declarations
    return text
  parser.end_piece()
  return "".join(parser.pieces)
