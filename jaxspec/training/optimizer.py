"""Optimisers of the training runs: AdamW or Muon, warm-up and cosine decay, clipping by the global norm."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools

import jax
import optax

from jaxspec.core.types import Params, PyTree


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """Choice of the optimiser.

  Attributes:
    name: ``adamw``, or ``muon`` (orthogonalised momentum on the matrices named by `is_hidden_matrix`, Adam elsewhere).
    learning_rate: peak, reached after `warmup_steps`.
    final_fraction: learning rate at the end, as a fraction of the peak.
    weight_decay: decoupled; only on leaves with two or more dimensions.
    clip_norm: largest global norm of the gradients; 0 switches clipping off.
    muon_learning_rate: peak for the matrices that Muon takes.
    frozen: paths of parameters that stay as they are, with all below them: ``encoder``, ``target/layers_*``.
  """

  name: str = "adamw"
  learning_rate: float = 1e-3
  warmup_steps: int = 100
  final_fraction: float = 0.0
  b1: float = 0.9
  b2: float = 0.95
  weight_decay: float = 0.05
  clip_norm: float = 1.0
  muon_learning_rate: float = 0.02
  frozen: tuple[str, ...] = ()

  def __post_init__(self):
    if self.name not in ("adamw", "muon"):
      raise ValueError(f"Must have optimizer 'adamw' or 'muon', we instead got {self.name!r}")
    if self.learning_rate <= 0 or self.warmup_steps < 0:
      raise ValueError(
        f"Must have a positive learning rate and warm-up >= 0, we instead got {self.learning_rate}, {self.warmup_steps}"
      )


def schedule(peak: float, warmup_steps: int, num_steps: int, final_fraction: float = 0.0) -> optax.Schedule:
  """Linear warm-up from 0 over ``warmup_steps``, then cosine decay that ends at step ``num_steps``."""
  warmup_steps = min(warmup_steps, num_steps // 2)
  return optax.warmup_cosine_decay_schedule(
    peak / max(warmup_steps, 1), peak, warmup_steps, max(num_steps, warmup_steps + 1), peak * final_fraction
  )


def decay_mask(params: Params) -> PyTree:
  """True on the leaves that decay: matrices and kernels, not vectors."""
  return jax.tree.map(lambda leaf: leaf.ndim >= 2, params)


def is_hidden_matrix(path: tuple, leaf: jax.Array) -> bool:
  """Whether Muon takes a leaf: matrices, except embedding tables, output heads and codebooks."""
  name = jax.tree_util.keystr(path, simple=True, separator="/")
  return leaf.ndim == 2 and not any(word in name for word in ("embed", "output", "codebook", "wte", "wpe", "lm_head"))


def make_optimizer(config: OptimizerConfig, num_steps: int) -> optax.GradientTransformation:
  """The optimiser of a run of ``num_steps`` updates.

  Raises:
    ValueError: when it meets parameters without one of the frozen paths.
  """
  rate = schedule(config.learning_rate, config.warmup_steps, num_steps, config.final_fraction)
  if config.name == "muon":
    core = optax.contrib.muon(
      schedule(config.muon_learning_rate, config.warmup_steps, num_steps, config.final_fraction),
      adam_learning_rate=rate,
      adam_b1=config.b1,
      adam_b2=config.b2,
      weight_decay=config.weight_decay,
      adam_weight_decay=config.weight_decay,
      weight_decay_mask=decay_mask,
      muon_weight_dimension_numbers=_muon_dimensions,
    )
  else:
    core = optax.adamw(rate, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay, mask=decay_mask)
  if config.clip_norm:
    core = optax.chain(optax.clip_by_global_norm(config.clip_norm), core)
  if config.frozen:
    frozen = functools.partial(_frozen_mask, config.frozen)
    # Gradients go first, so that they do not count for clipping; updates go because decay makes some of zero gradients.
    core = optax.chain(optax.masked(optax.set_to_zero(), frozen), core, optax.masked(optax.set_to_zero(), frozen))
  return core


def _frozen_mask(paths: tuple[str, ...], params: Params) -> PyTree:
  """True on every leaf at or below one of the paths."""

  def is_at(path: str, keys: tuple) -> bool:
    wanted, given = path.split("/"), [jax.tree_util.keystr((key,), simple=True) for key in keys]
    return len(wanted) <= len(given) and all(map(fnmatch.fnmatchcase, given, wanted))

  leaves = [keys for keys, _ in jax.tree_util.tree_leaves_with_path(params)]
  if missing := [path for path in paths if not any(is_at(path, keys) for keys in leaves)]:
    raise ValueError(f"Must freeze parameters below {', '.join(params)}, we instead got {missing[0]!r}")
  return jax.tree_util.tree_map_with_path(lambda keys, _: any(is_at(path, keys) for path in paths), params)


def _muon_dimensions(params: Params) -> PyTree:
  # Weights are [out, in]: the input axis is the reduced one.
  numbers = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)
  return jax.tree_util.tree_map_with_path(lambda path, leaf: numbers if is_hidden_matrix(path, leaf) else None, params)
