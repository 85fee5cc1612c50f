"""What a token may be: methods, sampling settings and hosts name its kind."""

from __future__ import annotations

IDS = "ids"  # int32, of one vocabulary
VECTORS = "vectors"  # float32 [C], drawn by a diffusion head
MAPS = "maps"  # int32 [side^2], all ids of one scale of an image, drawn at once
STATES = "states"  # float32 [C], a whole noisy image after one denoising step; a row is one chain

KINDS = (IDS, VECTORS, MAPS, STATES)
