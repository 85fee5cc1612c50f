"""The standard figures FID, IS and CLIP score, through torchmetrics and the released networks.

The library comes with the extra ``eval`` and downloads its networks on first use. The metrics are designed for photographs.
On small drawings they measure little of the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

CLIP_MODEL = "openai/clip-vit-base-patch16"
_EXTRA = "pip install 'jaxspec-decoding[eval]'"


def load_standard(with_clip: bool = True, **networks: Any) -> dict[str, Any]:
  """The metric objects by name, with their networks loaded.

  Args:
    with_clip: also load the CLIP score, which needs captions.
    networks: ``feature`` replaces the released Inception network; ``clip_model`` is a name or folder.
  Raises:
    ValueError: if the library is not installed or a network cannot be loaded.
  """
  feature = {name: networks[name] for name in ("feature",) if name in networks}
  try:
    from torchmetrics.image.fid import FrechetInceptionDistance
    from torchmetrics.image.inception import InceptionScore

    metrics = {"fid": FrechetInceptionDistance(**feature), "inception_score": InceptionScore(**feature)}
    if with_clip:
      from torchmetrics.multimodal.clip_score import CLIPScore

      metrics["clip_score"] = CLIPScore(networks.get("clip_model", CLIP_MODEL))
  except ModuleNotFoundError as error:  # torchmetrics raises it too if a part of the extra is missing
    raise ValueError(f"Must have the extra eval for the standard figures: {_EXTRA} ({error})") from error
  except Exception as error:  # downloads fail in many ways
    reason = f"{type(error).__name__}: {error}"
    raise ValueError(f"Cannot load the standard networks, they are downloaded on first use ({reason})") from error
  return metrics


def standard_metrics(
  metrics: dict[str, Any],
  pixels: np.ndarray,
  reference: np.ndarray,
  prompts: Sequence[str] | None = None,
  *,
  batch: int = 32,
) -> dict[str, float]:
  """FID against the reference, Inception score with its standard deviation over splits, and CLIP score if there are prompts.

  Args:
    metrics: from `load_standard`.
    pixels: ``[N, H, W, 3]`` uint8 images; the networks resize them.
    reference: ``[M, H, W, 3]`` uint8 real images.
    prompts: one per image.
  """
  import torch

  tensor = lambda part: torch.from_numpy(np.ascontiguousarray(part.transpose(0, 3, 1, 2)))
  with torch.inference_mode():
    for start in range(0, len(reference), batch):
      metrics["fid"].update(tensor(reference[start : start + batch]), real=True)
    for start in range(0, len(pixels), batch):
      rows = slice(start, start + batch)
      metrics["fid"].update(tensor(pixels[rows]), real=False)
      metrics["inception_score"].update(tensor(pixels[rows]))
      if "clip_score" in metrics and prompts is not None:
        metrics["clip_score"].update(tensor(pixels[rows]), list(prompts[rows]))
    mean, deviation = metrics["inception_score"].compute()
    figures = {
      "fid": float(metrics["fid"].compute()),
      "inception_score": float(mean),
      "inception_score_deviation": float(deviation),
    }
    if "clip_score" in metrics and prompts is not None:
      figures["clip_score"] = float(metrics["clip_score"].compute())
  return figures
