"""What a family of transformers over ids declares, so that heads can be put on its networks.

An EAGLE head (`jaxspec.models.eagle`) continues a network's features and borrows its two tables. An edge network
(`jaxspec.models.inter_head`) is a network's first layers below heads of intervals. Both know the network by its `Trunk`
alone, which `jaxspec.models.registry.Family.trunk` holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxspec.types import Array, ModelFns, Params


class Tables(NamedTuple):
  """The rows of a network's tables that belong to the ``V`` ids that it draws."""

  embedding: Array  # [V, D]
  output: Array  # [V, D]


class Trunk(NamedTuple):
  """One family as heads see it: functions of its config.

  Attributes:
    fns: ``(config, *, lens=False)`` to functions over the ids that are drawn, which return features and, with ``lens``,
      `ModelOutput.lens`. The config may have fewer layers than that of a checkpoint.
    params: ``(config, parameters of a checkpoint)`` to the parameters of ``fns``; of shapes shapes.
    tables: ``(config, parameters of fns)`` to `Tables`; of shapes shapes.
    head_fields: the fields of `jaxspec.models.eagle.EagleConfig` that are the network's; ``vocab_size`` among them is V.
  """

  fns: Callable[..., ModelFns]
  params: Callable[[Any, Params], Params]
  tables: Callable[[Any, Params], Tables]
  head_fields: Callable[[Any], dict[str, Any]]
