"""What a family of transformers over discrete tokens declares, so that heads can be put on its networks.

Heads on a network's features (`jaxspec.models.heads.feature_head`) read them and borrow its two tables. An edge network
(`jaxspec.models.heads.inter_head`) is a network's first layers below heads of intervals. Both know the network by its
`Trunk` alone, which its family declares (`declare`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxspec.core.plugins import Registry
from jaxspec.core.types import Array, ModelFns, Params
from jaxspec.models.nn.config_checks import config_of


class Tables(NamedTuple):
  """The rows of a network's tables that belong to the ``V`` ids that it draws."""

  embedding: Array  # [V, D]
  output: Array  # [V, D]


class Trunk(NamedTuple):
  """One family as heads see it: functions of its config.

  Attributes:
    fns: of the config, functions over the ids of drawn tokens. The config may have fewer layers than that of a checkpoint.
    params: ``(config, parameters of a checkpoint)`` to the parameters of ``fns``; of shapes shapes.
    tables: ``(config, parameters of fns)`` to `Tables`; of shapes shapes.
    head_fields: the fields of `jaxspec.models.heads.feature_head.FeatureHeadConfig` that are the network's; ``vocab_size``
      among them is V.
  """

  fns: Callable[..., ModelFns]
  params: Callable[[Any, Params], Params]
  tables: Callable[[Any, Params], Tables]
  head_fields: Callable[[Any], dict[str, Any]]


_DECLARED: Registry[tuple[type, Trunk]] = Registry("trunk", {})  # by name of the family


def declare(family: str, config_class: type, trunk: Trunk) -> None:
  """Declares that heads can be put on the networks of a family.

  Raises:
    ValueError: for a family that is declared.
  """
  _DECLARED.add(family, (config_class, trunk))


def trunk_of(config: Any) -> Trunk:
  """What heads have to know about a network with this config.

  Raises:
    ValueError: for a network that no head can be put on.
  """
  return _DECLARED[family_of_trunk(config)][1]


def find_trunk(config: Any) -> Trunk | None:
  """The trunk of a network with this config; None for a network that no head can be put on."""
  return next((trunk for config_class, trunk in _DECLARED.values() if type(config) is config_class), None)


def family_of_trunk(config: Any) -> str:
  """Name of the family of a network that heads can be put on.

  Raises:
    ValueError: for another network.
  """
  for name, (config_class, _) in _DECLARED.items():
    if type(config) is config_class:
      return name
  known = ", ".join(_DECLARED)
  raise ValueError(f"Must have a network that heads can be put on ({known}), we instead got a {type(config).__name__}")


def first_layers(make_fns: Callable[[Any], ModelFns], config: Any, params: Params, num_layers: int) -> tuple[Any, Params]:
  """Config and parameters of a network's first layers, with its embeddings, norm and output matrix.

  Args:
    make_fns: of a config, the functions of its network.
    params: of the whole network; the leaves are shared.
  """

  def shared(shapes: Any, leaves: Any) -> Any:
    return {name: shared(shape, leaves[name]) for name, shape in shapes.items()} if isinstance(shapes, dict) else leaves

  short = dataclasses.replace(config, num_layers=num_layers)
  return short, shared(jax.eval_shape(make_fns(short).init, jax.random.key(0)), params)


def trunk_config(family: str, fields: dict[str, Any]) -> Any:
  """Config of a family that heads can be put on, from plain fields.

  Raises:
    ValueError: for an unknown family or field, naming it.
  """
  if family not in _DECLARED:
    raise ValueError(f"Must have a trunk of {', '.join(_DECLARED)}, we instead got {family!r}")
  return config_of(_DECLARED[family][0], family, fields)
