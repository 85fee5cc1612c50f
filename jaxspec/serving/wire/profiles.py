"""Profiles: how a server describes each served method, and whether an edge's method is one of them.

Both ends must read the same frames by the same rule. So an edge compares the settings of its codec with the profile before
its first call.
"""

from __future__ import annotations

from jaxspec.sampling.logit_processing import Warp
from jaxspec.serving.wire.cloud import Description, Profile, shown
from jaxspec.serving.wire.round_codec import RoundCodec

NO_BONUS = ", no bonus"
_OF_CODEC = ("method", "rule", "window", "coding", "ell", "max_support", "sends_size", "feature_width")


def profile_of(codec: RoundCodec, id: int = 0, *, warp: Warp = Warp(), guided: bool = False, max_len: int = 1) -> Profile:
  """The description of a codec for edges.

  Args:
    warp: the static part of the target's logit processing.
    guided: whether the target reads a guidance scale.
    max_len: most tokens of a row.
  """
  limits, has_distributions = codec.limits, codec.distribution_codec is not None
  return Profile(
    id=id,
    method=codec.method,
    rule=rule_of(codec),
    window=limits.max_drafts,
    coding=limits.coding if has_distributions else "",
    ell=limits.ell if has_distributions else 0,
    max_support=limits.max_support if has_distributions else 0,
    sends_size=limits.sends_size and has_distributions,
    top_k=warp.top_k,
    nucleus=warp.nucleus,
    guided=guided,
    feature_width=codec.feature_width,
    max_frame=codec.max_frame_bytes(max_len),
  )


def rule_of(codec: RoundCodec) -> str:
  """``exact``, ``block`` if the drafts of a round are tested together, or ``greedy`` if they have no distributions; with
  `NO_BONUS` after it for a cloud that draws no token after full acceptance."""
  rule = "greedy" if not codec.max_sent else "block" if codec.block else "exact"
  return rule if codec.bonus else rule + NO_BONUS


def check_profile(
  served: Description, id: int, codec: RoundCodec, *, max_len: int, top_p: float = 1.0, cfg_scale: float = 1.0
) -> None:
  """Refuses a cloud whose profile differs from the edge's settings.

  Args:
    id: of the profile.
    codec: the edge's; the other arguments are those of its stream.
  Raises:
    ValueError: in one line with both values of every setting that differs.
  """
  theirs = next((each for each in served.profiles if each.id == id), None)
  if theirs is None:
    raise ValueError(f"Must have a profile of the cloud ({_all(served)}), we instead got number {id}")
  differing = _differing(theirs, codec, top_p=top_p, cfg_scale=cfg_scale)
  if codec.limits.vocab != served.vocab:
    differing["vocab"] = (codec.limits.vocab, served.vocab)
  if differing:
    found = ", ".join(f"{name} {own!r} where the cloud has {other!r}" for name, (own, other) in differing.items())
    raise ValueError(f"Must have the cloud's method and settings, we instead got {found}")
  if max_len > served.max_len:
    raise ValueError(f"Must have at most {served.max_len} tokens, which the cloud has, we instead got {max_len}")


def find_profile(
  served: Description, codec: RoundCodec, *, top_k: int | None = None, top_p: float = 1.0, cfg_scale: float = 1.0
) -> Profile:
  """The first profile of the cloud that goes with the edge's settings.

  Args:
    top_k: of the target's logit processing; None accepts any.
  Raises:
    ValueError: if there is none, with the profiles of the cloud.
  """
  for profile in served.profiles:
    same = top_k in (None, profile.top_k)
    if same and not _differing(profile, codec, top_p=top_p, cfg_scale=cfg_scale):
      return profile
  own = profile_of(codec, warp=Warp(top_k or 0, top_p < 1), guided=cfg_scale != 1)
  raise ValueError(f"Must have a profile that the cloud has ({_all(served)}), we instead got {shown(own)}")


def _differing(theirs: Profile, codec: RoundCodec, *, top_p: float, cfg_scale: float) -> dict[str, tuple[object, object]]:
  """The edge's and the cloud's value of each setting that differs, by name.

  A target that can read a top-p or a guidance scale also serves streams without one.
  """
  own = profile_of(codec)
  found = {name: (getattr(own, name), getattr(theirs, name)) for name in _OF_CODEC}
  found = {name: values for name, values in found.items() if values[0] != values[1]}
  if top_p != 1 and not theirs.nucleus:
    found["top_p"] = (top_p, 1.0)
  if cfg_scale != 1 and not theirs.guided:
    found["cfg_scale"] = (cfg_scale, 1.0)
  return found


def _all(served: Description) -> str:
  return ", ".join(map(shown, served.profiles))
