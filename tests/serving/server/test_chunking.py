"""The passes of a call."""

import numpy as np
import pytest

from jaxspec.serving.server.chunking import fewest_spans, narrowest, spans_of_call, spans_of_history


@pytest.mark.parametrize("window, widths", [(0, (8,)), (3, (8,)), (6, (8, 16)), (14, (8, 16))])
def test_the_passes_of_a_call(window, widths):
  """They follow each other, every one fits, and the last holds all drafts and the committed token before them."""
  for drafted in range(window + 1):
    for unread in range(1, 60):
      spans = spans_of_call(5, unread + drafted, window, widths)
      assert [span.start for span in spans] == [5 + sum(span.size for span in spans[:at]) for at in range(len(spans))]
      assert sum(span.size for span in spans) == unread + drafted and spans[-1].size > drafted
      assert all(1 <= span.size <= span.width == narrowest(span.size, widths) for span in spans)


def test_a_history_is_cut_as_its_calls_were():
  """A replay begins where each pass began, with its width, and reads every committed token but the newest."""
  generator, window, widths = np.random.default_rng(0), 3, (8, 16)
  for _ in range(300):
    calls, wanted, length = [], [], 1
    for _ in range(generator.integers(1, 8)):
      unread, drafted = int(generator.integers(1, 40)), int(generator.integers(0, window + 1))
      gained = unread + int(generator.integers(0, drafted + 1))
      calls.append((gained, unread + drafted))
      wanted += [(span.start, span.width) for span in spans_of_call(length - 1, unread + drafted, window, widths)]
      length += gained
    spans = spans_of_history(calls, window, widths)
    assert [(span.start, span.width) for span in spans] == wanted and all(span.size >= 1 for span in spans)
    assert {position for span in spans for position in range(span.start, span.start + span.size)} == set(range(length - 1))


def test_chunks():
  assert fewest_spans(0, (8, 16)) == []
  assert fewest_spans(35, (8, 16)) == [(0, 16, 16), (16, 16, 16), (32, 3, 8)]
