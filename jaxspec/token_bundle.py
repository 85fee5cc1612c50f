"""Bundles of vector tokens: an autoencoder, a target and drafts that generate pictures by class.

A folder with ``bundle.json`` and one checkpoint folder per part. Target and drafts are of one family, ``mar`` or
``causal_tokens``; ``classes`` names their labels, ``latent_scale`` is what the autoencoder's latents were multiplied by, and
``defaults`` are the settings the parts were trained for.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from jaxspec import checkpoints
from jaxspec.bundle import BUNDLE_FILE
from jaxspec.checkpoints import Checkpoint
from jaxspec.models.mar import unpatchify
from jaxspec.models.masked_network import masked_network
from jaxspec.models.token_fns import HeadFns
from jaxspec.types import Array, Params

KIND = "vector_tokens"
FAMILIES = ("mar", "causal_tokens")


@dataclasses.dataclass(frozen=True, eq=False)
class TokenBundle:
  """Loaded parts; ``drafts`` are ordered as in ``bundle.json``, the first is the default."""

  path: Path
  vae: Checkpoint
  target: Checkpoint
  drafts: dict[str, Checkpoint]
  classes: tuple[str, ...]
  latent_scale: float
  defaults: dict[str, Any]

  @property
  def is_masked(self) -> bool:
    """Whether tokens are generated in random orders (MAR), not in raster order."""
    return self.target.family == "mar"

  def labels(self, names: list[str]) -> list[int]:
    """Labels of class names.

    Raises:
      ValueError: for a name that is no class, with those that are close to it.
    """
    for name in names:
      if name not in self.classes:
        close = [known for known in self.classes if name.partition("-")[0] in known][:8] or self.classes[:8]
        raise ValueError(f"Must have a class such as {', '.join(close)}, we instead got {name!r}")
    return [self.classes.index(name) for name in names]

  def pictures(self, vae_params: Params, tokens: Array, signal: float = 1.0) -> Array:
    """Pictures ``[B, H, W, 3]`` in [-1, 1] of raster-ordered tokens ``[B, L, C]``.

    Args:
      vae_params: those of ``vae``, so that they are arguments of a compiled program.
      signal: ``sqrt(A)`` of the tokens, below 1 where a chain stops early (`jaxspec.diffusion.ddpm.law_fn`).
    """
    latents = unpatchify(tokens, self.target.config.patch_size) / (self.latent_scale * signal)
    return self.vae.fns.decode(vae_params, latents)


def head_fns(checkpoint: Checkpoint) -> HeadFns:
  """The network of a target or draft as drafters and verifiers of vector tokens see it."""
  return masked_network(checkpoint.fns) if checkpoint.family == "mar" else checkpoint.fns


def write_token_bundle(path: str | os.PathLike, **fields: Any) -> None:
  """Writes or completes ``bundle.json``: ``vae``, ``target``, ``classes``, ``latent_scale``, ``drafts``, ``defaults``.

  The last two are merged into what is there.
  """
  file = Path(path) / BUNDLE_FILE
  document = json.loads(file.read_text()) if file.is_file() else {"kind": KIND, "drafts": {}, "defaults": {}}
  for name, value in fields.items():
    document[name] = document[name] | value if name in ("drafts", "defaults") else value
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(json.dumps(document, indent=2) + "\n")


def is_token_bundle(path: str | os.PathLike) -> bool:
  """Whether the ``bundle.json`` of a folder says that it is one of vector tokens."""
  try:
    document = json.loads((Path(path) / BUNDLE_FILE).read_text())
  except (ValueError, OSError):
    return False
  return isinstance(document, dict) and document.get("kind") == KIND


def read_token_bundle(path: str | os.PathLike) -> dict[str, Any]:
  """The checked ``bundle.json`` of a folder.

  Raises:
    ValueError: one line naming the file and what is wrong with it.
  """
  path = Path(path)
  file = path / BUNDLE_FILE
  if not path.is_dir():
    raise ValueError(f"No checkpoint folder at {path}")
  if not file.is_file():
    raise ValueError(f"No {BUNDLE_FILE} in {path}: not a bundle of networks")
  try:
    document = json.loads(file.read_text())
    if not isinstance(document, dict) or document.get("kind") != KIND:
      raise ValueError("its networks do not generate pictures by class")
    fields = ("vae", "target", "drafts", "classes", "latent_scale", "defaults")
    if missing := [name for name in fields if name not in document]:
      raise ValueError(f"fields {', '.join(missing)} are missing")
    checked = {"drafts": dict(document["drafts"]), "defaults": dict(document["defaults"])}
    checked |= {"classes": tuple(document["classes"]), "latent_scale": float(document["latent_scale"])}
    if not (math.isfinite(checked["latent_scale"]) and checked["latent_scale"] > 0):
      raise ValueError(f"latent_scale is {checked['latent_scale']}")
  except (ValueError, TypeError, OSError) as error:
    raise ValueError(f"Must have a bundle of vector tokens, {file} is not one: {error}") from error
  return document | checked


def load_token_bundle(path: str | os.PathLike, *, drafts: list[str] | None = None) -> TokenBundle:
  """Loads a bundle.

  Args:
    drafts: names of the drafts to load; all by default.
  Raises:
    ValueError: one line naming the file and what is wrong with it.
  """
  path = Path(path)
  document = read_token_bundle(path)
  known, classes = document["drafts"], document["classes"]
  for name in drafts or []:
    if name not in known:
      raise ValueError(f"Must have a draft in {', '.join(known) or '(none)'}, we instead got {name!r}")
  parts = {name: checkpoints.load(path / known[name]) for name in (known if drafts is None else drafts)}
  target = checkpoints.load(path / document["target"])
  vae = checkpoints.load(path / document["vae"], dtype=jnp.float32)
  if vae.family != "kl_vae":
    raise ValueError(f"Must have a kl_vae as autoencoder of {path}, we instead got a {vae.family}")
  for part in (target, *parts.values()):
    if part.family not in FAMILIES or part.family != target.family:
      raise ValueError(f"Must have networks of one family in {', '.join(FAMILIES)}, {part.path} holds a {part.family}")
    for name in ("num_tokens", "latent_channels", "patch_size", "num_classes"):
      if (theirs := getattr(part.config, name)) != (ours := getattr(target.config, name)):
        raise ValueError(f"The draft {part.path} does not fit the target: {name} {theirs} instead of {ours}")
  if len(classes) != target.config.num_classes:
    raise ValueError(f"Must have {target.config.num_classes} classes in {path / BUNDLE_FILE}, we instead got {len(classes)}")
  return TokenBundle(path, vae, target, parts, classes, document["latent_scale"], document["defaults"])
