"""Families of networks: how each reads prompts, and what its tokens become. `register` adds one of your own.

- `family` is the interface. Discrete image tokens: `token_images` (LlamaGen), and `prompted_images` (`chameleon_images`,
  `emu3_images`, `janus_images`). Others: `continuous_images`, `scale_images`, `denoised_images`, `texts`.
- Parts of them: `classes`, `t5_text` and `text_features` for prompts, `latents` and `refine` for continuous tokens.
"""

from jaxspec.models.registry import FAMILIES, FamilySpec, register

__all__ = ["FAMILIES", "FamilySpec", "register"]
