"""Bundles of tiny random networks of continuous tokens: images of 4 x 4 pixels, 4 tokens of 2 numbers, 3 classes."""

from __future__ import annotations

from pathlib import Path

from jaxspec.io.bundle import write_bundle
from jaxspec.models.mar.causal_tokens import CausalTokensConfig
from jaxspec.models.mar.mar import MARConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from tests.cli.fake_bundle import save_random

CLASSES = ("animal-mammal", "animal-bird", "food-fruit")
VAE = KLVAEConfig(
  base_channels=2, multipliers=(1, 1), num_res_blocks=1, attention_levels=(), z_channels=2, latent_channels=2, num_groups=1
)
_TOKENS = dict(num_tokens=4, latent_channels=2, num_classes=3, diffloss_width=8, diffloss_depth=1)
MAR = MARConfig(
  **_TOKENS, buffer_size=2, encoder_dim=8, encoder_depth=1, encoder_heads=2, decoder_dim=8, decoder_depth=1, decoder_heads=2
)
CAUSAL = CausalTokensConfig(**_TOKENS, dim=8, num_layers=1, num_heads=2)


def make(path: Path, network, steps: int | str = 5) -> Path:
  """Writes a bundle whose target and draft are random networks of one config; returns its folder."""
  save_random(path / "vae", VAE, 0)
  save_random(path / "target", network, 1, scale=0.2)
  save_random(path / "draft", network, 2, scale=0.2)
  write_bundle(
    path,
    target="target",
    drafts={"small": "draft"},
    parts={"vae": "vae", "classes": list(CLASSES), "latent_scale": 0.5},
    method="cspd",
    sampling={"steps": steps},
    options={"gamma": 2, "num_iter": 2},
  )
  return path
