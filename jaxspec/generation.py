"""What a pipeline gives back: rows of tokens, and what they become."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np

from jaxspec.decode.state import Counters, DecodeResult
from jaxspec.hosts.base import Host
from jaxspec.methods.base import Method
from jaxspec.sampling import AnySampling
from jaxspec.types import PyTree


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Generation:
  """What a pipeline generated; everything but ``result`` is numpy and computed when it is first read.

  Attributes:
    captions: one text per row.
    result: `DecodeResult` of ``B`` rows, as the host finished it: of vector tokens in raster order.
    condition: what the rows were conditioned on.
    method: how they were decoded, its draft by name.
    sampling: the settings that all methods share.
    warnings: what the user should know before looking at the results, one line each.
    host: what made them images or texts.
  """

  captions: list[str]
  result: DecodeResult
  condition: PyTree
  method: Method
  sampling: AnySampling
  warnings: list[str]
  host: Host

  def __repr__(self) -> str:
    number, noun = len(self.captions), self.host.noun
    shape = list(self.result.tokens.shape)
    what = f"{number} {noun}{'s' * (number != 1)} by {self.method.name}, tokens {shape}"
    return f"<Generation: {what}; .{noun}s .tokens .counters .result>"

  @functools.cached_property
  def tokens(self) -> np.ndarray:
    """``[B, N]`` int32 or ``[B, N, C]`` float32; what stands after a row's length is 0."""
    return np.asarray(self.result.tokens)

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """``[B]`` int32, tokens of each row, its end token included."""
    return np.asarray(self.result.lengths)

  @functools.cached_property
  def counters(self) -> Counters:
    """`Counters` with leaves ``[B]``."""
    return jax.device_get(self.result.counters)

  @functools.cached_property
  def images(self) -> np.ndarray | None:
    """``[B, H, W, 3]`` uint8; None of texts, and of images that do not have all of their tokens."""
    if self.host.noun != "image" or (self.lengths < self.host.row_tokens(self.sampling)).any():
      return None
    return self.host.decode(self.result.tokens, lengths=self.lengths, condition=self.condition, sampling=self.sampling)

  @functools.cached_property
  def texts(self) -> list[str] | None:
    """``B`` whole texts, their beginnings included; None of images."""
    if self.host.noun != "text":
      return None
    return self.host.decode(self.tokens, lengths=self.lengths, condition=self.condition, sampling=self.sampling)
