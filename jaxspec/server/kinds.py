"""Kinds of streams: what a server compiles for each, and what it tells edges about it."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxspec.link.arrays import no_distributions
from jaxspec.link.ciar_wire import CiarWire
from jaxspec.link.cloud import Profile
from jaxspec.link.opening import Agreement
from jaxspec.link.sqs_wire import PlainWire, SqsWire
from jaxspec.models.sampling import Warp
from jaxspec.types import AcceptFn, Draft, ModelFns, Verifier
from jaxspec.verifiers.chunk import chunk_target
from jaxspec.verifiers.greedy import greedy
from jaxspec.verifiers.sparse import lossless_sparse

_METHODS = {SqsWire: "sqs", CiarWire: "ciar", PlainWire: "plain"}


@dataclasses.dataclass(frozen=True)
class StreamKind:
  """One kind of stream; its place in the list of a server is the id of its `Profile`.

  Attributes:
    wire: what rounds look like as bytes. It also says which acceptance rule judges them.
    warp: static part of the logit processing.
  Raises:
    ValueError: for a wire without a server.
  """

  wire: SqsWire | CiarWire | PlainWire
  warp: Warp = Warp()

  def __post_init__(self):
    if type(self.wire) not in _METHODS:
      raise ValueError(f"Must have a wire of {', '.join(_METHODS.values())}, we instead got {type(self.wire).__name__}")

  @property
  def method(self) -> str:
    """``sqs``, ``ciar``, or ``plain`` for an edge without drafts."""
    return _METHODS[type(self.wire)]

  @property
  def rule(self) -> str:
    """``exact``, or ``greedy`` where drafts come without distributions."""
    return "greedy" if isinstance(self.wire, CiarWire) and self.wire.codec is None else "exact"

  @property
  def accept_fn(self) -> AcceptFn:
    """The acceptance rule."""
    return greedy if self.rule == "greedy" else lossless_sparse

  @property
  def window(self) -> int:
    """Most drafts of a call."""
    return self.wire.limits.max_drafts

  @property
  def vocab(self) -> int:
    """Tokens V."""
    return self.wire.limits.vocab

  @property
  def feature_width(self) -> int:
    """Numbers in the interval features of a token; 0: none are sent."""
    return self.wire.feature_width if isinstance(self.wire, CiarWire) else 0

  @property
  def may_request(self) -> bool:
    """Whether a call may take two parts (coding ``lazy``)."""
    return self.wire.may_request and self.window > 0

  def profile(self, id: int, *, guided: bool, max_len: int) -> Profile:
    """What an edge is told.

    Args:
      guided: whether the target reads a guidance scale.
      max_len: most tokens of a row.
    """
    sends_distributions = not isinstance(self.wire, PlainWire) and self.wire.codec is not None
    limits = self.wire.limits
    sizes = (limits.coding, limits.ell, limits.max_support, limits.sends_size) if sends_distributions else ("", 0, 0, False)
    coding, ell, max_support, sends_size = sizes
    return Profile(
      id=id,
      method=self.method,
      rule=self.rule,
      window=self.window,
      coding=coding,
      ell=ell,
      max_support=max_support,
      sends_size=sends_size,
      top_k=self.warp.top_k,
      nucleus=self.warp.nucleus,
      guided=guided,
      feature_width=self.feature_width,
      max_frame=self.wire.max_frame_bytes(Agreement(1, max_len)),
    )

  def verifier(self, model: ModelFns) -> Verifier:
    """The judge of one pass; the same object for equal choices."""
    return chunk_target(model, self.accept_fn, warp=self.warp, returns_logits=self.may_request)

  def no_drafts(self, rows: int) -> Draft:
    """Drafts of ``rows`` rows that have none, in the arrays that `Wire.decode_draft` fills, on the host."""
    shape = (rows, self.window)
    draft = Draft(np.zeros(shape, np.int32), (), np.zeros(rows, np.int32))
    if self.rule == "greedy":
      return draft
    max_sent = self.wire.codec.max_sent if isinstance(self.wire, CiarWire) else self.wire.max_sent
    return draft._replace(proposal=no_distributions(shape, max_sent))
