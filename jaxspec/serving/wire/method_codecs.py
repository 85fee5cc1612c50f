"""The wire of a decoding method: what its rounds look like as bytes."""

from __future__ import annotations

from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.methods.method import Method
from jaxspec.serving.wire.ciar_codec import CiarWire
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.sqs_codec import PlainWire, SqsWire


def wire_of(method: Method, vocab: int, *, feature_width: int = 0) -> Wire:
  """What rounds of a method look like as bytes; the same at both ends for the same options.

  Args:
    vocab: tokens V.
    feature_width: numbers in the interval features of a token, where ``inject`` sends some.
  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  if isinstance(method, Sqs):
    return SqsWire(method.codec(vocab), method.max_drafts)
  if isinstance(method, Plain):
    return PlainWire(vocab)
  if not isinstance(method, Ciar):
    raise ValueError(f"Must have a method that has messages (sqs, ciar, ar), we instead got {method.name}")
  if method.verify == "lantern" or (method.verify == "exact" and not method.draws_sparse):
    raise ValueError(
      "Must have --verify greedy, or exact with sparse draws, to send messages: other distributions are not sent"
    )
  codec = method.codec(vocab) if method.verify == "exact" else None
  return CiarWire(vocab, method.gamma, codec, 0 if method.inject == "none" else feature_width)
