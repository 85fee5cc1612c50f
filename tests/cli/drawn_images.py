"""Images of converted networks, drawn on the command line by every kind of method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

PROMPTS = ("a red fox", "two cats on a mat", "é")
# A method for each kind of drafts with the options of a tiny network, and the folders of second networks. Rules and trees do
# not depend on how a family reads prompts or ends rows.
METHODS = {
  "ar": (),
  "speculative": ("--gamma", 2),
  "sjd": ("--window", 3),
  "eagle-chain": ("--gamma", 2),
  "ciar": ("--gamma", 2, "--tau", 0.1),
}
DRAFTS = {"speculative": "draft", "eagle-chain": "head", "ciar": "edge"}


def draw_by(
  run, sides: tuple[int, int], methods: Mapping[str, tuple] = METHODS, drafts: Mapping[str, str] = DRAFTS
) -> dict[str, np.ndarray]:
  """Tokens ``[3, N]`` of a batch by each method, drawn by the folder ``target``; all rows of a method differ.

  Args:
    run: the fixture of commands; files are written to the working directory.
    sides: height and width of an image in pixels, of which the written picture's are multiples.
    drafts: folders of second networks by method.
  """
  drawn = {}
  for method, options in methods.items():
    draft = ("--draft-model", drafts[method]) if method in drafts else ()
    options = (*options, "--model", "target", *draft, "--json", "f.json", "--out", "o.png", "--raw", "--heatmap", "h.png")
    outcome = run("generate", *PROMPTS, "--method", method, *options)
    assert outcome.exit_code == 0, (method, outcome.output, outcome.exception)
    document = json.loads(Path("f.json").read_text())
    tokens = drawn[method] = np.asarray([image[method]["tokens"] for image in document["images"]])
    assert len(tokens) == len({row.tobytes() for row in tokens}) == len(PROMPTS)
    with Image.open("o.png") as image, Image.open("h.png") as maps:
      assert image.height % sides[0] == 0 and image.width % sides[1] == 0 and maps.width > 400
  return drawn
