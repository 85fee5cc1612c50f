"""Several runs of a training script in one process share compiled programs, and train on images of noise."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import numpy as np
import pytest


def share_step(monkeypatch: pytest.MonkeyPatch, script) -> None:
  """Shares the first update of a module with all of its later runs of the same config.

  Results do not change: a resumed process compiles the same program.
  """
  make, made = script.make_train_step, []

  def make_once(*args, **kwargs):
    if not made:
      made.append(make(*args, **kwargs))
    return made[0]

  monkeypatch.setattr(script, "make_train_step", make_once)


def compile_init(monkeypatch: pytest.MonkeyPatch, script, name: str) -> None:
  """Makes ``script.name(config)`` give networks whose ``init`` is one program in place of hundreds of single operations."""
  make = getattr(script, name)

  @functools.cache
  def with_compiled_init(config):
    compiled = lambda fns: fns._replace(init=jax.jit(fns.init))
    fns = make(config)
    return fns._replace(network=compiled(fns.network)) if hasattr(fns, "network") else compiled(fns)

  monkeypatch.setattr(script, name, with_compiled_init)


def noise_digits(folder: Path, monkeypatch: pytest.MonkeyPatch):
  """Makes a hundred images of noise the set of digits; returns the set."""
  from experiments.data import class_images

  pixels = np.random.default_rng(0).integers(0, 256, size=(100, 28, 28)).astype(np.uint8)
  np.savez(folder / "digits.npz", pixels=pixels, labels=np.arange(100, dtype=np.int32) % 10)
  images = class_images._digits(folder / "digits.npz")
  monkeypatch.setitem(class_images.SETS, "digits", lambda: images)
  return images
