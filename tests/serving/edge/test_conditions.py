"""Messages of conditions, from edge to server."""

import numpy as np
import pytest

from jaxspec.models.conditions import Caption, ClassLabels, OrderedLabels, Prompt
from jaxspec.serving.server.stream_condition import reader_like
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.edge_condition import sent_condition

VOCAB, LONGEST = 11, 4
LABELS = ClassLabels(np.full(1, 9, np.int32))
PROMPT = Prompt(np.zeros((1, LONGEST), np.int32), np.ones((1, LONGEST), bool))
CAPTION = Caption(np.zeros((1, 3, 2), np.float32), np.ones((1, 3), bool))


def test_labels_and_prompts_come_back():
  for label in (0, 9):
    assert reader_like(LABELS, VOCAB)(sent_condition(ClassLabels(np.full(1, label, np.int32)))) == ClassLabels(label)
  padded = Prompt(np.array([[7, 0, 10, 3, 5]], np.int32), np.array([[False, True, True, True, False]]))
  sent = sent_condition(padded)
  assert sent == (0, 10, 3) and all(type(token) is int for token in sent)
  read = reader_like(PROMPT, VOCAB)(sent)
  assert read.tokens.tolist() == [[0, 10, 3]] and read.mask.all() and read.tokens.dtype == np.int32
  assert sent_condition(CAPTION, "two cats") == sent_condition(PROMPT, "two cats") == "two cats"


def test_what_cannot_be_sent():
  for condition, caption, words in (
    (CAPTION, None, "the text of a caption"),
    (LABELS, "two cats", "a Caption or a Prompt"),
    (OrderedLabels(LABELS.labels, np.zeros((1, 2), np.int32)), None, "we instead got OrderedLabels"),
  ):
    with pytest.raises(ValueError, match=words):
      sent_condition(condition, caption)


@pytest.mark.parametrize(
  "example, sent, reason",
  [
    (LABELS, -1, "range"), (LABELS, 10, "range"), (LABELS, (1,), "kind"), (LABELS, "one", "kind"),
    (PROMPT, (), "range"), (PROMPT, (1,) * 5, "range"), (PROMPT, (VOCAB,), "range"), (PROMPT, (-1,), "range"),
    (PROMPT, 1, "kind"), (PROMPT, "one", "kind"), (CAPTION, "two cats", "kind"), (CAPTION, 1, "kind"),
  ],
)  # fmt: skip
def test_a_server_reads_what_its_target_has(example, sent, reason):
  with pytest.raises(MessageError) as caught:
    reader_like(example, VOCAB)(sent)
  assert caught.value.reason == reason and "\n" not in str(caught.value)
