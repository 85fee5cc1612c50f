"""What heads on a network's features have alike: the sizes that are the network's, and the two tables that they borrow.

A head reads features of a target (`jaxspec.models.heads.eagle_head`, `jaxspec.models.heads.block_head`). The embedding table
and the output matrix are the target's (`borrowed`); `attach` adds them to the head's own parameters. The target may be of
any family that declares a `jaxspec.models.trunk.Trunk`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from jaxspec.core.types import Params
from jaxspec.models.nn.config_checks import HeadSizes
from jaxspec.models.trunk import trunk_of

HOST_TABLES = ("tok_embeddings", "output")  # in the order of `jaxspec.models.trunk.Tables`


@dataclasses.dataclass(frozen=True)
class FeatureHeadConfig(HeadSizes):
  """Base of the architectures of heads; widths and positions are the target's.

  Attributes:
    num_tokens: image tokens ``N`` of the target; 1 for texts.
    prefix_len: condition tokens ``P`` whose features the head reads, the last ones.
    columns: tokens of a row of the image, including a row end; None for a square. With 1, for texts, positions are rows:
      half of the channels are rotated.
  """

  dim: int = 768
  num_heads: int = 12
  num_kv_heads: int | None = None
  ffn_hidden: int = 2048
  vocab_size: int = 16384
  num_tokens: int = 256
  prefix_len: int = 1
  rope_base: float = 10000.0
  norm_eps: float = 1e-6
  dtype: str = "float32"
  columns: int | None = None

  def __post_init__(self):
    if self.columns is None and self.grid**2 != self.num_tokens:
      raise ValueError(f"Must have a square number of image tokens, we instead got {self.num_tokens}")
    if self.grid < 1 or self.num_tokens % self.grid:
      raise ValueError(f"Must have rows of equal length, we instead got {self.num_tokens} tokens and {self.columns} columns")
    self.check_heads(4)
    if self.prefix_len < 1:
      raise ValueError(f"Must have a target with at least one condition token, we instead got {self.prefix_len}")

  @property
  def grid(self) -> int:
    """Tokens of a row of the image."""
    return round(self.num_tokens**0.5) if self.columns is None else self.columns

  @classmethod
  def of(cls, host: Any) -> Self:
    """The config of a head for the config of a target.

    Raises:
      ValueError: for a target without a trunk for heads.
    """
    return cls(**trunk_of(host).head_fields(host))


def borrowed(host: Any, params: Params) -> Params:
  """The target's embedding table and output matrix, by a head's names.

  Args:
    host: config of the target; None for a user-defined network, whose tables already have these names.
    params: its parameters (`jaxspec.models.trunk.Trunk.fns`).
  """
  if host is None:
    return {name: params[name] for name in HOST_TABLES}
  tables = trunk_of(host).tables(host, params)
  return {name: {"weight": table} for name, table in zip(HOST_TABLES, tables)}


def attach(params: Params, tables: Params) -> Params:
  """Adds the target's tables (`borrowed`) to a head's own parameters, for `ModelFns.apply`."""
  return params | {name: tables[name] for name in HOST_TABLES}
