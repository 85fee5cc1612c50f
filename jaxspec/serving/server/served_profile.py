"""The profiles of a server: what it compiles for each, and how it describes each to edges."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import AcceptFn, Draft, ModelFns, Verifier
from jaxspec.rules.block_rule import block_sparse
from jaxspec.rules.greedy import greedy
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.sampling.logit_processing import Warp
from jaxspec.serving.wire.arrays import host_array, no_distributions
from jaxspec.serving.wire.cloud import Profile, shown
from jaxspec.serving.wire.decode_time import decode_seconds
from jaxspec.serving.wire.profiles import NO_BONUS, profile_of, rule_of
from jaxspec.serving.wire.round_codec import RoundCodec
from jaxspec.verifiers.chunk_target import ChunkVerifier


@dataclasses.dataclass(frozen=True)
class ServedProfile:
  """A profile; its index in the list of a server is the id of its `Profile`.

  Attributes:
    codec: of the frames. It also decides the acceptance rule.
    warp: static part of the logit processing.
  """

  codec: RoundCodec
  warp: Warp = Warp()

  @property
  def rule(self) -> str:
    """See `jaxspec.serving.wire.profiles.rule_of`."""
    return rule_of(self.codec)

  @property
  def accept_fn(self) -> AcceptFn:
    """The acceptance rule."""
    rules: dict[str, AcceptFn] = {"exact": lossless_sparse, "block": block_sparse, "greedy": greedy}
    return rules[self.rule.removesuffix(NO_BONUS)]

  @property
  def window(self) -> int:
    """Most drafts of a call."""
    return self.codec.limits.max_drafts

  @property
  def vocab(self) -> int:
    """Tokens V."""
    return self.codec.limits.vocab

  @property
  def feature_width(self) -> int:
    """Numbers in the interval features of a token; 0 if none are sent."""
    return self.codec.feature_width

  @property
  def may_request(self) -> bool:
    """Whether a call may take two parts (coding ``lazy``)."""
    return self.codec.may_request and self.window > 0

  def described(self, id: int, *, guided: bool, max_len: int) -> Profile:
    """Its description for edges.

    Args:
      guided: whether the target reads a guidance scale.
      max_len: most tokens of a row.
    """
    return profile_of(self.codec, id, warp=self.warp, guided=guided, max_len=max_len)

  def check_decode_time(self, max_len: int, most_s: float) -> None:
    """Refuses frames that take long to decode, because decoding blocks the engine's thread.

    Args:
      max_len: most tokens of a row.
    Raises:
      ValueError: if the largest frame takes longer than ``most_s`` on this machine, or ``most_s`` is not positive.
    """
    if not most_s > 0:
      raise ValueError(f"Must have a positive max_decode_ms, we instead got {1000 * most_s:g}")
    seconds = decode_seconds(self.codec, max_len) if most_s < math.inf else 0.0
    if seconds > most_s:
      what = shown(profile_of(self.codec))
      raise ValueError(
        f"Must have frames that are decoded within {1000 * most_s:g} ms, we instead got {1000 * seconds:.1f} ms for {what}: "
        "smaller drafts, or a larger --max-decode-ms (max_decode_ms=)"
      )

  def verifier(self, model: ModelFns) -> Verifier:
    """The verifier of one pass; equal for equal choices."""
    return ChunkVerifier(model, self.accept_fn, warp=self.warp, returns_logits=self.may_request, bonus=self.codec.bonus)

  def no_drafts(self, rows: int) -> Draft:
    """Empty drafts of ``rows`` rows on the host, with the shapes of `RoundCodec.decode_draft`."""
    shape, max_sent = (rows, self.window), self.codec.max_sent
    proposal = no_distributions(shape, max_sent) if max_sent else ()
    return Draft.chain(host_array(np.zeros(shape, np.int32)), proposal, 0, 0)

  def no_requested(self, rows: int) -> SparseDistribution:
    """Empty requested distributions of ``rows`` rows on the host.

    Raises:
      ValueError: for a codec without distributions.
    """
    if self.codec.distribution_codec is None:
      raise ValueError("Must have a codec of distributions to request one, we instead got tokens alone")
    return no_distributions((rows,), self.codec.distribution_codec.max_sent)
