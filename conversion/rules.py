"""Rows of the converters' tables: names, shapes and axes of a kind of tensor, read in both directions."""

from __future__ import annotations

import re

import numpy as np

Shape = tuple[int, ...]

_HWIO = (2, 3, 1, 0)  # PyTorch's convolutions are [out, in, kh, kw], ours [kh, kw, in, out]
_DHWIO = (2, 3, 4, 1, 0)  # the same over frames
_LINEAR_HWIO = (None, None, 1, 0)
_PLACEHOLDER = re.compile(r"\{(\w+)(?::([^}]*))?\}")


class Rule:
  """One row of a table: a pattern of source names, and the leaf that each of them becomes.

  In ``source``, ``{i}`` stands for a list index and ``{name:a|b}`` for one of the alternatives; matching is always of
  the whole name. By default the target path is the source's with list indices joined to their list by an underscore, as
  submodules of the models are named (``layers.{i}.norm`` -> ``layers_{i}.norm``).

  Args:
    source: pattern of source names.
    target: pattern of dotted paths in the parameter tree, with the same placeholders.
    axes: which of the source's axes each of ours is, all of them once; an entry ``None`` is a new axis of size 1. ``None``
      copies.
  """

  def __init__(self, source: str, target: str | None = None, *, axes: tuple[int | None, ...] | None = None):
    self.source = source
    self.target = re.sub(r"\.(\{\w+\})", r"_\1", source) if target is None else target
    self.axes = axes
    self._kept = [] if axes is None else [axis for axis in axes if axis is not None]  # read where there are axes
    self._match_source, self._fill_source = _regex(self.source), _template(self.source)
    self._match_target, self._fill_target = _regex(self.target), _template(self.target)

  def to_target(self, name: str) -> str | None:
    """Path of the leaf that source ``name`` becomes; ``None`` if the rule is not for it."""
    match = self._match_source.fullmatch(name)
    return match and self._fill_target.format_map(match.groupdict())

  def to_source(self, path: str) -> str | None:
    """Source name of the leaf at ``path``; ``None`` if the rule is not for it."""
    match = self._match_target.fullmatch(path)
    return match and self._fill_source.format_map(match.groupdict())

  def target_shape(self, shape: Shape) -> Shape | None:
    """Our shape of a source tensor; ``None`` if it has the wrong number of axes."""
    if self.axes is None:
      return tuple(shape)
    if len(shape) != len(self._kept):
      return None
    return tuple(1 if a is None else shape[a] for a in self.axes)

  def source_shape(self, shape: Shape) -> Shape:
    """Inverse of `target_shape`."""
    if self.axes is None:
      return tuple(shape)
    kept = [size for size, a in zip(shape, self.axes, strict=True) if a is not None]
    return tuple(kept[a] for a in np.argsort(self._kept))

  def to_target_array(self, array: np.ndarray) -> np.ndarray:
    """Our form of a source array: permuted, in its own dtype, so that half-precision weights take no more memory."""
    if self.axes is None:
      return array
    return np.ascontiguousarray(array.transpose(self._kept)).reshape(self.target_shape(array.shape))

  def to_source_array(self, array: np.ndarray) -> np.ndarray:
    """Inverse of `to_target_array`, but for the source's dtype."""
    array = array.astype(np.float32, copy=False)
    if self.axes is None:
      return array
    kept = [size for size, a in zip(array.shape, self.axes, strict=True) if a is not None]
    return np.ascontiguousarray(array.reshape(kept).transpose(np.argsort(self._kept)))


def conv(source: str, target: str | None = None) -> tuple[Rule, Rule]:
  """Rules of a convolution: weight and bias."""
  return _layer(source, target, _HWIO)


def frame_conv(source: str, target: str | None = None) -> tuple[Rule, Rule]:
  """Rules of a convolution over frames: weight and bias."""
  return _layer(source, target, _DHWIO)


def linear_as_conv(source: str, target: str | None = None) -> tuple[Rule, Rule]:
  """Rules of a linear layer ``[out, in]`` that is a convolution of size 1 here: weight and bias."""
  return _layer(source, target, _LINEAR_HWIO)


def norm(source: str, target: str | None = None) -> tuple[Rule, Rule]:
  """Rules of an affine norm or a linear layer: weight and bias, copied."""
  return _layer(source, target, None)


def _layer(source: str, target: str | None, axes: tuple[int | None, ...] | None) -> tuple[Rule, Rule]:
  of = lambda leaf: None if target is None else f"{target}.{leaf}"
  return Rule(f"{source}.weight", of("weight"), axes=axes), Rule(f"{source}.bias", of("bias"))


def _regex(pattern: str) -> re.Pattern:
  parts, end = [], 0
  for match in _PLACEHOLDER.finditer(pattern):
    alternatives = match[2] or r"0|[1-9]\d{0,6}"
    parts += [re.escape(pattern[end : match.start()]), f"(?P<{match[1]}>{alternatives})"]
    end = match.end()
  return re.compile("".join(parts) + re.escape(pattern[end:]), re.ASCII)


def _template(pattern: str) -> str:
  return _PLACEHOLDER.sub(r"{\1}", pattern)
