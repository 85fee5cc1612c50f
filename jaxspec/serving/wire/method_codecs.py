"""The wire of a decoding method: what its rounds look like as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxspec.core.plugins import Registry
from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.methods.method import Method
from jaxspec.serving.wire.ciar_codec import CiarWire
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.sqs_codec import PlainWire, SqsWire

# (method, vocab, feature_width) -> wire, see `wire_of`
MakeWire = Callable[[Any, int, int], Wire]


def _ciar_wire(method: Ciar, vocab: int, feature_width: int) -> CiarWire:
  if method.verify == "lantern" or (method.verify == "exact" and not method.draws_sparse):
    raise ValueError(
      "Must have --verify greedy, or exact with sparse draws, to send messages: other distributions are not sent"
    )
  codec = method.codec(vocab) if method.verify == "exact" else None
  return CiarWire(vocab, method.gamma, codec, 0 if method.inject == "none" else feature_width)


WIRES: Registry[MakeWire] = Registry(
  "wire of a method",
  {
    Sqs.name: lambda method, vocab, feature_width: SqsWire(method.codec(vocab), method.max_drafts),
    Ciar.name: _ciar_wire,
    Plain.name: lambda method, vocab, feature_width: PlainWire(vocab),
  },
)


def register(method: type[Method], make_wire: MakeWire) -> None:
  """Says what rounds of a method look like as bytes; those of a class that derives from it, too.

  Args:
    make_wire: ``(method, vocab, feature_width)`` to a wire, with the arguments of `wire_of`: a `SqsWire`, `CiarWire` or
      `PlainWire` (servers describe no others).
  Raises:
    ValueError: for a method that has a wire of its own.
  """
  WIRES.add(method.name, make_wire)


def has_wire(method: Method) -> bool:
  """Whether rounds of a method have messages."""
  return _maker(method) is not None


def wire_of(method: Method, vocab: int, *, feature_width: int = 0) -> Wire:
  """What rounds of a method look like as bytes; the same at both ends for the same options.

  Args:
    vocab: tokens V.
    feature_width: numbers in the interval features of a token, where ``inject`` sends some.
  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  make_wire = _maker(method)
  if make_wire is None:
    raise ValueError(f"Must have a method that has messages ({', '.join(WIRES)}), we instead got {method.name}")
  return make_wire(method, vocab, feature_width)


def _maker(method: Method) -> MakeWire | None:
  """The nearest one of the classes that a method derives from."""
  names = (getattr(cls, "name", "") for cls in type(method).__mro__)
  return next((WIRES[name] for name in names if name in WIRES), None)
