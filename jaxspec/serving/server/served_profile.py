"""Profiles that a server offers: what it compiles for each, and how it describes each to edges."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxspec.core.types import AcceptFn, Draft, ModelFns, Verifier
from jaxspec.rules.greedy import greedy
from jaxspec.rules.sparse import lossless_sparse
from jaxspec.sampling.logit_processing import Warp
from jaxspec.serving.wire.arrays import no_distributions
from jaxspec.serving.wire.ciar_codec import CiarWire
from jaxspec.serving.wire.cloud import Profile, shown
from jaxspec.serving.wire.profiles import profile_of_wire, rule_of
from jaxspec.serving.wire.sqs_codec import PlainWire, SqsWire
from jaxspec.verifiers.chunk_target import ChunkVerifier


@dataclasses.dataclass(frozen=True)
class ServedProfile:
  """A profile; its index in the list of a server is the id of its `Profile`.

  Attributes:
    wire: codec of the frames. It also decides the acceptance rule.
    warp: static part of the logit processing.
  Raises:
    ValueError: for a codec that no server has.
  """

  wire: SqsWire | CiarWire | PlainWire
  warp: Warp = Warp()

  def __post_init__(self):
    profile_of_wire(self.wire)  # raises a ValueError for a codec that no server has

  @property
  def rule(self) -> str:
    """``exact``, or ``greedy`` for drafts without distributions."""
    return rule_of(self.wire)

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
    """Width of the interval features of a token; 0 where none are sent."""
    return self.wire.feature_width if isinstance(self.wire, CiarWire) else 0

  @property
  def may_request(self) -> bool:
    """Whether a call may take two parts (coding ``lazy``)."""
    return self.wire.may_request and self.window > 0

  def described(self, id: int, *, guided: bool, max_len: int) -> Profile:
    """Its description for edges.

    Args:
      guided: whether the target reads a guidance scale.
      max_len: most tokens of a row.
    """
    return profile_of_wire(self.wire, id, warp=self.warp, guided=guided, max_len=max_len)

  def check_decode_time(self, max_len: int, most_s: float) -> None:
    """Refuses frames that take long to read: reading one blocks the engine's thread.

    Args:
      max_len: most tokens of a row.
    Raises:
      ValueError: if the largest frame takes longer than ``most_s`` on this machine.
    """
    seconds = self.wire.reader(max_len).seconds() if most_s < math.inf else 0.0
    if seconds > most_s:
      what = shown(profile_of_wire(self.wire))
      raise ValueError(
        f"Must have frames that are read within {1000 * most_s:g} ms, we instead got {1000 * seconds:.1f} ms for {what}: "
        "smaller drafts, or a larger --max-decode-ms (max_decode_ms=)"
      )

  def verifier(self, model: ModelFns) -> Verifier:
    """The verifier of one pass; equal for equal choices."""
    return ChunkVerifier(model, self.accept_fn, warp=self.warp, returns_logits=self.may_request)

  def no_drafts(self, rows: int) -> Draft:
    """Empty drafts of ``rows`` rows, in the arrays that `Wire.decode_draft` fills, on the host."""
    shape = (rows, self.window)
    draft = Draft.chain(np.zeros(shape, np.int32), (), 0, 0)
    if self.rule == "greedy":
      return draft
    max_sent = self.wire.codec.max_sent if isinstance(self.wire, CiarWire) else self.wire.max_sent
    return draft._replace(proposal=no_distributions(shape, max_sent))
