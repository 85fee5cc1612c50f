r"""Cleans captions as in the training data of LlamaGen's released text networks.

The rules are those of DeepFloyd IF and PixArt. They are a list of substitutions whose order matters, and a caption runs
through the list twice. In an ordinary prompt they change only capital letters, brackets and runs of punctuation.

One step repairs text of the wrong encoding with the package ``ftfy``. It leaves plain ASCII unchanged, so the package is
only needed for captions with other characters.
"""

from __future__ import annotations

import html
import re
import string
from urllib.parse import unquote_plus

from jaxspec.io.text.plain_text import plain_text

# In text with only these characters ftfy changes only line ends; at that step there is no "&" left.
_PLAIN = frozenset(string.printable) - frozenset("\x0b\x0c&")

_DOMAINS = "com|co|ru|net|org|edu|gov|it"
_SUFFIXES = "png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4"
_SITE = rf"[a-zA-Z0-9.\-]+[.](?:{_DOMAINS})[\w/-]*\b/?(?!@)"
_IDEOGRAPHS = ("31c0-31ef", "31f0-31ff", "3200-32ff", "3300-33ff", "3400-4dbf", "4dc0-4dff", "4e00-9fff")
_DASHES = (
  "\u002d\u058a\u05be\u1400\u1806\u2010-\u2015\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u301c\u3030\u30a0\ufe31\ufe32\ufe58\ufe63"
)


def _table(*rows: tuple[str, str]) -> tuple[tuple[re.Pattern, str], ...]:
  return tuple((re.compile(pattern), replacement) for pattern, replacement in rows)


_LINKS = _table(
  ("<person>", "person"),
  (rf"\b(?:https?:(?:/{{1,3}}|[a-zA-Z0-9%])|{_SITE})", ""),
  (rf"\b(?:www:(?:/{{1,3}}|[a-zA-Z0-9%])|{_SITE})", ""),
)

_SIGNS = _table(
  (r"@\w+\b", ""),
  ("[" + "".join(rf"\u{first}-\u{last}" for first, last in (block.split("-") for block in _IDEOGRAPHS)) + "]+", ""),
  (f"[\\{_DASHES}\uff0d]+", "-"),
  ("[`´«»“”¨]", '"'),
  ("[‘’]", "'"),
  ("&quot;?", ""),
  ("&amp", ""),
  (r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}", " "),  # IP addresses
  (r"\d:\d\d\s+$", ""),  # times at the end
  (r"\\n", " "),
  (r"#\d{1,3}\b", ""),
  (r"#\d{5,}\b", ""),
  (r"\b\d{6,}\b", ""),
  (rf"\S+\.(?:{_SUFFIXES})", ""),  # file names
  (r"[\"']{2,}", '"'),
  (r"\.{2,}", " "),
  (r"[#®•©™&@·º½¾¿¡§~()\[\]{}|\\/*]+", " "),
  (r"\s+\.\s+", " "),
)

_JOINTS = re.compile("[-_]")
_MAX_JOINTS = 3  # with more, hyphens and underscores are spaces

_WORDS = _table(
  (r"\b[a-zA-Z]{1,3}\d{3,15}\b", ""),
  (r"\b[a-zA-Z]+\d+[a-zA-Z]+\b", ""),
  (r"\b\d+[a-zA-Z]+\d+\b", ""),
  (r"(worldwide\s+)?(free\s+)?shipping", ""),
  (r"(free\s)?download(\sfree)?", ""),
  (r"\bclick\b\s(?:for|on)\s\w+", ""),
  (rf"\b(?:{_SUFFIXES})(\simages?)?", ""),
  (r"\bpage\s+\d+\b", ""),
  (r"\b\d*[a-zA-Z]+\d+[a-zA-Z]+\d+[a-zA-Z\d]*\b", " "),
  (r"\b\d+\.?\d*[xх×]\d+\.?\d*\b", ""),  # sizes, with a Latin or a Cyrillic letter
  (r"\b\s+:\s+", ": "),
  (r"(\D[,./])\b", r"\1 "),
  (r"\s+", " "),
  (r"^[\"']([\w\W]+)[\"']$", r"\1"),
  (r"^['_,\-:;]", ""),
  (r"['_,\-:+]$", ""),
  (r"^\.\S+$", ""),
)


def clean_caption(text: str) -> str:
  """A caption in the form of the released networks' training data; it may be empty.

  Raises:
    ValueError: if ftfy is needed and missing.
  """
  return _clean(_clean(text))


def _clean(text: str) -> str:
  text = _substitute(_LINKS, unquote_plus(text).strip().lower())
  text = _substitute(_SIGNS, plain_text(text))
  if len(_JOINTS.findall(text)) > _MAX_JOINTS:
    text = _JOINTS.sub(" ", text)
  text = html.unescape(html.unescape(_repair(text))).strip()
  return _substitute(_WORDS, text).strip()


def _substitute(table: tuple[tuple[re.Pattern, str], ...], text: str) -> str:
  for pattern, replacement in table:
    text = pattern.sub(replacement, text)
  return text


def _repair(text: str) -> str:
  """Repairs text of the wrong encoding, of full width, or with ligatures."""
  if not (strange := sorted(set(text) - _PLAIN)):
    return text.replace("\r\n", "\n").replace("\r", "\n")
  try:
    import ftfy
  except ImportError as error:
    raise ValueError(
      f"Must have the package ftfy to clean captions with characters such as {strange[0]!r}: "
      "pip install 'jaxspec-decoding[t5]'"
    ) from error
  return ftfy.fix_text(text)
