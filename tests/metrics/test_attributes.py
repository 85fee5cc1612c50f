"""Attribute checks succeed exactly where the painted image agrees with the prompt."""

import numpy as np

from jaxspec.data import BACKGROUNDS, paint
from jaxspec.data.prompts import PromptParts
from jaxspec.metrics.attributes import check_attributes


def _drawing():
  rows, columns = np.mgrid[:64, :64] - 31.5
  rgba = np.zeros((64, 64, 4), np.uint8)
  rgba[rows**2 + columns**2 < 900] = (20, 90, 60, 255)
  return rgba


def test_every_attribute_and_every_other_one():
  """For all pairs of a painted image and a prompt: True where they agree, False elsewhere."""
  wanted = [PromptParts("disc", None, background, small) for background in BACKGROUNDS for small in (False, True)]
  painted = [paint(_drawing(), prompt.background, "small" if prompt.small else "normal") for prompt in wanted]
  for shift in range(len(wanted)):
    asked = wanted[shift:] + wanted[:shift]
    checks = check_attributes(np.stack(painted), asked)
    np.testing.assert_array_equal(checks.background, [a.background == b.background for a, b in zip(wanted, asked)])
    np.testing.assert_array_equal(checks.size, [a.small == b.small for a, b in zip(wanted, asked)])
