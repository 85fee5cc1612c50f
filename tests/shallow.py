"""Shipped bundles whose targets are cut to one block: the same parts, drafts, prompts and options compile much faster."""

import dataclasses
import functools
import shutil
import tempfile
from pathlib import Path

import jax

from jaxspec.io import checkpoints
from jaxspec.io.bundle import read_bundle
from jaxspec.io.shipped import shipped
from jaxspec.models.registry import FAMILIES

DEPTHS = ("num_layers", "depth", "encoder_depth", "decoder_depth", "diffloss_depth")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
  """Where this process keeps the bundles that it has cut."""
  return tempfile.TemporaryDirectory(prefix="shallow-")


def write(path: Path, name: str) -> Path:
  """Writes the bundle of this name into ``path / name``; in the folder ``path`` its name loads it."""
  return shutil.copytree(_cut(name), path / name)


@functools.cache
def _cut(name: str) -> Path:
  bundle = shutil.copytree(shipped(name), Path(_folder().name) / name)
  target = read_bundle(bundle).target_folder()
  network = checkpoints.load(target)
  config = dataclasses.replace(network.config, **{field: 1 for field in DEPTHS if hasattr(network.config, field)})
  kept = checkpoints.flatten(jax.eval_shape(FAMILIES[network.family_name].make_fns(config).init, jax.random.key(0)))
  weights = checkpoints.flatten(network.params)
  params = checkpoints.unflatten({leaf: weights[leaf] for leaf in kept})
  checkpoints.save(target, config, params, meta=network.meta, write_more=lambda folder: _copy_others(target, folder))
  return bundle


def _copy_others(source: Path, folder: Path) -> None:
  """Files besides those of the network, such as a tokenizer."""
  for file in source.iterdir():
    if not (folder / file.name).exists():
      shutil.copy(file, folder)
