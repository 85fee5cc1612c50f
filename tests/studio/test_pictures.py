"""Images of the studio while they are drawn."""

import numpy as np

from jaxspec.studio.row_images import veiled


def test_tokens_that_are_not_there_yet_are_grey():
  image = np.full((4, 6, 3), 7, np.uint8)
  shown = veiled(image, np.array([True, True, False, False]), (2, 2))
  assert shown.dtype == np.uint8 and (shown[:2] == 7).all() and (shown[2:] == 128).all()
  assert veiled(image, np.zeros(6, bool), (2, 3)).max() == 128
  assert veiled(image, np.zeros(5, bool), (1, 5)) is image  # 5 columns do not divide it
