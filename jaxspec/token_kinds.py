"""What a token may be: methods, sampling settings and hosts name its kind."""

from __future__ import annotations

IDS = "ids"  # int32, of one vocabulary
VECTORS = "vectors"  # float32 [C], drawn by a diffusion head
MAPS = "maps"  # int32 [side^2], all ids of one scale of an image, drawn at once

KINDS = (IDS, VECTORS, MAPS)
