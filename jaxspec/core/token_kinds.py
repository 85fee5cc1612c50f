"""What a token may be: methods, sampling settings and families name its kind."""

from __future__ import annotations

DISCRETE = "discrete"  # int32, of one vocabulary
CONTINUOUS = "continuous"  # float32 [C], drawn by a diffusion head
SCALES = "scales"  # int32 [side^2], all ids of one scale of an image, drawn at once
DENOISING_STEPS = "denoising steps"  # float32 [C], a whole noisy image after one denoising step; a row is one chain

KINDS = (DISCRETE, CONTINUOUS, SCALES, DENOISING_STEPS)
