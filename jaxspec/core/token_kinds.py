"""Kinds of tokens, for methods, sampling settings and families."""

from __future__ import annotations

DISCRETE = "discrete"  # int32, of one vocabulary
CONTINUOUS = "continuous"  # float32 [C], drawn by a diffusion head
SCALES = "scales"  # int32 [side^2], the ids of one scale of an image, drawn at once
DENOISING_STEPS = "denoising steps"  # float32 [C], a noisy image after one denoising step; a row is one chain

KINDS = (DISCRETE, CONTINUOUS, SCALES, DENOISING_STEPS)


def noun(kind: str) -> str:
  """The plural of a token of a kind, for messages: "continuous tokens", but "scales"."""
  return f"{kind} tokens" if kind in (DISCRETE, CONTINUOUS) else kind
