"""A stand-in for the round trip through an image tokenizer: blur, JPEG, and noise of two scales."""

import io

import numpy as np
from PIL import Image, ImageFilter


def distort(images: np.ndarray, seed: int, *, quality: int = 14, blur: float = 0.8, noise: float = 7.0) -> np.ndarray:
  """``[B, 96, 96, 3]`` uint8 images at about 26 dB from the given ones."""
  generator = np.random.default_rng(seed)
  out = []
  for image in images:
    packed = io.BytesIO()
    Image.fromarray(image).filter(ImageFilter.GaussianBlur(blur)).save(packed, "JPEG", quality=quality, subsampling=0)
    pixels = np.asarray(Image.open(packed).convert("RGB")).astype(np.float32)
    smooth = Image.fromarray(generator.normal(0, 1, (12, 12)).astype(np.float32)).resize((96, 96), Image.Resampling.BICUBIC)
    pixels = pixels + generator.normal(0, noise, pixels.shape)
    pixels += noise * np.asarray(smooth)[..., None] * generator.normal(0, 1, 3)
    out.append(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))
  return np.stack(out)


def decibels(images: np.ndarray, others: np.ndarray) -> float:
  """Peak signal-to-noise ratio."""
  return float(10 * np.log10(255**2 / np.mean((images.astype(np.float64) - others) ** 2)))
