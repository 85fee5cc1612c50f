"""The codec of a decoding method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxspec.core.plugins import Registry
from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.methods.method import Method
from jaxspec.serving.wire.ciar_codec import CiarCodec
from jaxspec.serving.wire.round_codec import RoundCodec
from jaxspec.serving.wire.sqs_codec import PlainCodec, SqsCodec

# (method, vocab, feature_width) -> codec, see `codec_of`
MakeCodec = Callable[[Any, int, int], RoundCodec]


def _ciar_codec(method: Ciar, vocab: int, feature_width: int) -> CiarCodec:
  if method.verify == "lantern" or (method.verify == "exact" and not method.draws_sparse):
    raise ValueError(
      "Must have --verify greedy, or exact with sparse draws, to send messages: other distributions are not sent"
    )
  sent = method.codec(vocab) if method.verify == "exact" else None
  return CiarCodec(vocab, method.gamma, sent, 0 if method.inject == "none" else feature_width)


CODECS: Registry[MakeCodec] = Registry(
  "codec of a method",
  {
    Sqs.name: lambda method, vocab, feature_width: SqsCodec(
      method.codec(vocab), method.max_drafts, method.verify == "block", method.bonus
    ),
    Ciar.name: _ciar_codec,
    Plain.name: lambda method, vocab, feature_width: PlainCodec(vocab),
  },
)


def register(method: type[Method], make_codec: MakeCodec) -> None:
  """Adds the codec of the rounds of a method and of the classes that derive from it.

  Args:
    make_codec: ``(method, vocab, feature_width)`` to a codec, with the arguments of `codec_of`: a `SqsCodec`, `CiarCodec` or
      `PlainCodec` (servers describe no others).
  Raises:
    ValueError: for a method that has a codec.
  """
  CODECS.add(method.name, make_codec)


def has_messages(method: Method) -> bool:
  """Whether rounds of a method have messages."""
  return _maker(method) is not None


def codec_of(method: Method, vocab: int, *, feature_width: int = 0) -> RoundCodec:
  """The codec of the rounds of a method; equal at both ends for equal options.

  Args:
    vocab: tokens V.
    feature_width: numbers in the interval features of a token, for methods whose ``inject`` sends them.
  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  make_codec = _maker(method)
  if make_codec is None:
    raise ValueError(f"Must have a method that has messages ({', '.join(CODECS)}), we instead got {method.name}")
  return make_codec(method, vocab, feature_width)


def _maker(method: Method) -> MakeCodec | None:
  """The codec of the nearest class that a method derives from."""
  names = (getattr(cls, "name", "") for cls in type(method).__mro__)
  return next((CODECS[name] for name in names if name in CODECS), None)
