"""How calls are cut into passes."""

import numpy as np
import pytest

from jaxspec.serving.server.chunking import cuts_in_chunks, cuts_of_call, cuts_of_history, narrowest


@pytest.mark.parametrize("window, widths", [(0, (8,)), (3, (8,)), (6, (8, 16)), (14, (8, 16))])
def test_the_passes_of_a_call(window, widths):
  """They follow each other, every one fits, and the last holds all drafts and the committed token before them."""
  for drafted in range(window + 1):
    for unread in range(1, 60):
      cuts = cuts_of_call(5, unread + drafted, window, widths)
      assert [cut.start for cut in cuts] == [5 + sum(cut.size for cut in cuts[:at]) for at in range(len(cuts))]
      assert sum(cut.size for cut in cuts) == unread + drafted and cuts[-1].size > drafted
      assert all(1 <= cut.size <= cut.width == narrowest(cut.size, widths) for cut in cuts)


def test_a_history_is_cut_as_its_calls_were():
  """A replay begins where each pass began, with its width, and reads every committed token but the newest."""
  generator, window, widths = np.random.default_rng(0), 3, (8, 16)
  for _ in range(300):
    calls, wanted, length = [], [], 1
    for _ in range(generator.integers(1, 8)):
      unread, drafted = int(generator.integers(1, 40)), int(generator.integers(0, window + 1))
      gained = unread + int(generator.integers(0, drafted + 1))
      calls.append((gained, unread + drafted))
      wanted += [(cut.start, cut.width) for cut in cuts_of_call(length - 1, unread + drafted, window, widths)]
      length += gained
    cuts = cuts_of_history(calls, window, widths)
    assert [(cut.start, cut.width) for cut in cuts] == wanted and all(cut.size >= 1 for cut in cuts)
    assert {position for cut in cuts for position in range(cut.start, cut.start + cut.size)} == set(range(length - 1))


def test_chunks():
  assert cuts_in_chunks(0, (8, 16)) == []
  assert cuts_in_chunks(35, (8, 16)) == [(0, 16, 16), (16, 16, 16), (32, 3, 8)]
