"""Profiles: what a server says about each way of decoding, and whether an edge decodes in one of them.

Both ends must read the same frames by the same rule, so whatever a `Wire` decides is compared before the first call.
"""

from __future__ import annotations

from jaxspec.sampling.logit_processing import Warp
from jaxspec.serving.wire.ciar_codec import CiarWire
from jaxspec.serving.wire.cloud import Description, Profile, shown
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.sqs_codec import PlainWire, SqsWire

_METHODS = {SqsWire: "sqs", CiarWire: "ciar", PlainWire: "plain"}
_OF_WIRE = ("method", "rule", "window", "coding", "ell", "max_support", "sends_size", "feature_width")


def profile_of_wire(wire: Wire, id: int = 0, *, warp: Warp = Warp(), guided: bool = False, max_len: int = 1) -> Profile:
  """What a server tells edges about a wire.

  Args:
    warp: the static part of the target's logit processing.
    guided: whether the target reads a guidance scale.
    max_len: most tokens of a row.
  Raises:
    ValueError: for a wire that no server has.
  """
  if type(wire) not in _METHODS:
    raise ValueError(f"Must have a wire of {', '.join(_METHODS.values())}, we instead got {type(wire).__name__}")
  limits, codec = wire.limits, None if isinstance(wire, PlainWire) else wire.codec
  sizes = ("", 0, 0, False) if codec is None else (limits.coding, limits.ell, limits.max_support, limits.sends_size)
  coding, ell, max_support, sends_size = sizes
  return Profile(
    id=id,
    method=_METHODS[type(wire)],
    rule=rule_of(wire),
    window=limits.max_drafts,
    coding=coding,
    ell=ell,
    max_support=max_support,
    sends_size=sends_size,
    top_k=warp.top_k,
    nucleus=warp.nucleus,
    guided=guided,
    feature_width=wire.feature_width if isinstance(wire, CiarWire) else 0,
    max_frame=wire.max_frame_bytes(max_len),
  )


def rule_of(wire: Wire) -> str:
  """``exact``, or ``greedy`` where drafts come without distributions."""
  return "greedy" if isinstance(wire, CiarWire) and wire.codec is None else "exact"


def check_profile(
  served: Description, id: int, wire: Wire, *, max_len: int, top_p: float = 1.0, cfg_scale: float = 1.0
) -> None:
  """Refuses a cloud whose profile is not what an edge does.

  Args:
    id: of the profile.
    wire: the edge's; the other arguments are those of its stream.
  Raises:
    ValueError: in one line with both values of everything that differs.
  """
  theirs = next((each for each in served.profiles if each.id == id), None)
  if theirs is None:
    raise ValueError(f"Must have a profile of the cloud ({_all(served)}), we instead got number {id}")
  differing = _differing(theirs, wire, top_p=top_p, cfg_scale=cfg_scale)
  if wire.limits.vocab != served.vocab:
    differing["vocab"] = (wire.limits.vocab, served.vocab)
  if differing:
    told = ", ".join(f"{name} {own!r} where the cloud has {other!r}" for name, (own, other) in differing.items())
    raise ValueError(f"Must have the cloud's way of decoding, we instead got {told}")
  if max_len > served.max_len:
    raise ValueError(f"Must have at most {served.max_len} tokens, which the cloud has, we instead got {max_len}")


def find_profile(
  served: Description, wire: Wire, *, top_k: int | None = None, top_p: float = 1.0, cfg_scale: float = 1.0
) -> Profile:
  """The cloud's profile that goes with what an edge does.

  Args:
    top_k: of the target's logit processing; None takes any.
  Raises:
    ValueError: where there is none, with what there is.
  """
  for profile in served.profiles:
    same = top_k in (None, profile.top_k)
    if same and not _differing(profile, wire, top_p=top_p, cfg_scale=cfg_scale):
      return profile
  own = profile_of_wire(wire, warp=Warp(top_k or 0, top_p < 1), guided=cfg_scale != 1)
  raise ValueError(f"Must have a way of decoding that the cloud has ({_all(served)}), we instead got {shown(own)}")


def _differing(theirs: Profile, wire: Wire, *, top_p: float, cfg_scale: float) -> dict[str, tuple[object, object]]:
  """The edge's and the cloud's value of what differs, by name. A target that could read more than it is told is as good."""
  own = profile_of_wire(wire)
  found = {name: (getattr(own, name), getattr(theirs, name)) for name in _OF_WIRE}
  found = {name: values for name, values in found.items() if values[0] != values[1]}
  if top_p != 1 and not theirs.nucleus:
    found["top_p"] = (top_p, 1.0)
  if cfg_scale != 1 and not theirs.guided:
    found["cfg_scale"] = (cfg_scale, 1.0)
  return found


def _all(served: Description) -> str:
  return ", ".join(map(shown, served.profiles))
