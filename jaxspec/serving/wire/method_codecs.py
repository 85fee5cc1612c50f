"""The codec of a decoding method."""

from __future__ import annotations

from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.methods.method import Method
from jaxspec.serving.wire.ciar_codec import CiarCodec
from jaxspec.serving.wire.round_codec import RoundCodec
from jaxspec.serving.wire.sqs_codec import PlainCodec, SqsCodec


def codec_of(method: Method, vocab: int, *, feature_width: int = 0) -> RoundCodec:
  """The codec of the rounds of a method; equal at both ends for equal options.

  Args:
    vocab: tokens V.
    feature_width: numbers in the interval features of a token, for methods whose ``inject`` sends them.
  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  if isinstance(method, Sqs):
    return SqsCodec(method.codec(vocab), method.max_drafts)
  if isinstance(method, Plain):
    return PlainCodec(vocab)
  if not isinstance(method, Ciar):
    raise ValueError(f"Must have a method that has messages (sqs, ciar, ar), we instead got {method.name}")
  if method.verify == "lantern" or (method.verify == "exact" and not method.draws_sparse):
    raise ValueError(
      "Must have --verify greedy, or exact with sparse draws, to send messages: other distributions are not sent"
    )
  sent = method.codec(vocab) if method.verify == "exact" else None
  return CiarCodec(vocab, method.gamma, sent, 0 if method.inject == "none" else feature_width)
