"""The settings of an edge: draft network, codec, and how rows are decoded."""

from __future__ import annotations

import dataclasses

from jaxspec.core.loop import EndTokens, end_tuple
from jaxspec.core.options import MAX_PIPELINE
from jaxspec.core.rounds import prefix_rounds
from jaxspec.core.types import Drafter, PyTree
from jaxspec.serving.edge.link_times import TableFn
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.round_codec import RoundCodec


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeSettings:
  """Settings of the draft side of decodes over a cloud.

  Attributes:
    params: the draft's parameters.
    drafter: source of proposals.
    codec: of the rounds; equal to that of the cloud's profile.
    max_len: tokens N of a row.
    profile: id of the cloud's profile; None finds the first one that goes with the codec and the sampling.
    end_token: as in `jaxspec.speculate`.
    target_prefix: leading tokens that the cloud draws alone. After token 0 each is a call without drafts.
    temperature, top_p, cfg_scale: the target's sampling.
    need_numerics: required digest of the cloud's numerics; empty accepts all.
    pipeline: most drafts that wait for their replies. Above 1 the next drafts are sent ahead, which needs a codec without
      ``bonus`` that requests no distributions.
    table_of: the times of rounds by what was measured, for a drafter that chooses lengths; None: those of ``params``.
    agreement: limits of a row, from ``max_len`` and ``end_token``.
    num_prefix_rounds: rounds of the prefix.
  Raises:
    ValueError: for a drafter that does not go with the codec, or settings out of range.
  """

  params: PyTree
  drafter: Drafter
  codec: RoundCodec
  max_len: int
  profile: int | None = None
  end_token: EndTokens = None
  target_prefix: int = 0
  temperature: float = 1.0
  top_p: float = 1.0
  cfg_scale: float = 1.0
  need_numerics: bytes = b""
  pipeline: int = 1
  table_of: TableFn | None = None
  agreement: Agreement = dataclasses.field(init=False, repr=False)
  num_prefix_rounds: int = dataclasses.field(init=False, repr=False)

  def __post_init__(self):
    self.codec.check_drafter(self.drafter)
    if not 1 <= self.pipeline <= MAX_PIPELINE:
      raise ValueError(f"Must have a pipeline of 1 to {MAX_PIPELINE} drafts, we instead got {self.pipeline}")
    if self.pipeline > 1 and (self.codec.bonus or self.codec.may_request):
      found = "coding 'lazy'" if self.codec.may_request else "a bonus token"
      raise ValueError(f"Must have a codec without bonus tokens and requests to send drafts ahead, we instead got {found}")
    if self.table_of is not None and not getattr(self.drafter, "chooses_length", False):
      raise ValueError("Must have a drafter that chooses lengths for measured times, we instead got one of a fixed length")
    object.__setattr__(self, "agreement", Agreement(self.max_len, end_tuple(self.end_token)))
    object.__setattr__(self, "num_prefix_rounds", prefix_rounds(self.target_prefix, self.max_len))
