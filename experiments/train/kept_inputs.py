"""Which tokens of an image a training step looks at, where not all of them are worth their time.

Most tokens of a scene are flat background, which a network predicts after a few hundred updates. The rest to learn is at the
beginning, inside and end of objects. Positions are inputs of a transformer, so a step may omit tokens; the others keep their
positions.
"""

from __future__ import annotations

import numpy as np

from jaxspec.evaluation.scenes.world import GRID, Scene


def kept_inputs(scene: Scene, num: int, generator: np.random.Generator) -> np.ndarray:
  """Indices ``[num]`` int32, in order, of the tokens that are read; each predicts the token after it.

  Tokens that objects lie on, or begin after, come first: objects in random order, as long as there is room. The rest are
  drawn from all others.

  Args:
    num: at most ``GRID * GRID - 1``, since nothing follows the last token.
    generator: the source of chance.
  """
  order = generator.random(GRID * GRID - 1)
  for one in scene.objects:
    turn = 1 + generator.random()
    for row in range(one.row, one.row + one.cells):
      # An object at the left edge begins after the last token of the row above.
      first = row * GRID + one.column
      cells = np.arange(max(first - 1, 0), min(first + one.cells, len(order)))
      order[cells] = np.maximum(order[cells], turn)
  return np.sort(np.argsort(-order, kind="stable")[:num]).astype(np.int32)
