"""English text from the glosses of WordNet: one line per sense, ``words: definition; "example"``.

The data files are those of WordNet 3.1 (Princeton University; free use with the notice). A line holds the number of words of
the sense as two hexadecimal digits, the words, and after a bar the gloss (WordNet's wndb(5WN)).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_MARKERS = ("(a)", "(p)", "(ip)")  # possible positions of an adjective


def read_lines(folder: str | Path) -> list[str]:
  """Lines of every data file in a ``dict`` folder.

  Raises:
    ValueError: if a file is missing.
  """
  lines = []
  for name in FILES:
    file = Path(folder) / name
    if not file.is_file():
      raise ValueError(f"Must have {', '.join(FILES)} in {folder}, {name} is missing")
    lines += parse(file.read_text(encoding="latin-1").splitlines())
  return lines


def parse(lines: Iterable[str]) -> Iterator[str]:
  """Text lines of the senses in a data file; its notice is left out."""
  for line in lines:
    head, bar, gloss = line.partition("|")
    if line.startswith("  ") or not bar:
      continue
    fields = head.split()
    words = [_plain(fields[4 + 2 * i]) for i in range(int(fields[3], 16))]
    yield f"{', '.join(words)}: {' '.join(gloss.split())}"


def _plain(word: str) -> str:
  for marker in _MARKERS:
    word = word.removesuffix(marker)
  return word.replace("_", " ")


def is_held_out(line: str) -> bool:
  """Whether a line is for evaluation: one line in twenty, chosen by a hash of its first word."""
  word = line.split(":")[0].split(",")[0].lower()
  return int.from_bytes(hashlib.sha256(f"split:{word}".encode()).digest()[:8], "big") % 20 == 0
