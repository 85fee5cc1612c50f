"""Training checkpoints, written atomically with orbax; only the newest ones stay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import jax
import orbax.checkpoint as ocp

from jaxspec.training.train_state import TrainState


class TrainCheckpoints:
  """The checkpoints of one run folder; use it as a context manager.

  Args:
    path: folder of the checkpoints; created if missing.
    keep: how many of the newest checkpoints stay.
  """

  def __init__(self, path: str | os.PathLike, *, keep: int = 2):
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, enable_async_checkpointing=False)
    self._manager = ocp.CheckpointManager(Path(path).absolute(), options=options)

  def __enter__(self) -> TrainCheckpoints:
    return self

  def __exit__(self, *exc_info) -> None:
    self._manager.close()

  def latest_step(self) -> int | None:
    """Number of updates in the newest checkpoint, None if there is no checkpoint."""
    return self._manager.latest_step()

  def save(self, state: TrainState) -> None:
    """Writes ``state`` under its step; a step that is already there is left as it is."""
    step = int(state.step)
    if step != self._manager.latest_step():
      self._manager.save(step, args=ocp.args.StandardSave(state))
      self._manager.wait_until_finished()

  def restore(self, template: TrainState) -> TrainState:
    """The newest state.

    Args:
      template: a state with the shapes, dtypes and shardings to restore, e.g. the one before the first update.
    Raises:
      ValueError: if there is no checkpoint.
    """
    step = self._manager.latest_step()
    if step is None:
      raise ValueError(f"Must have a checkpoint in {self._manager.directory}, we instead found none")
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
    return cast(TrainState, self._manager.restore(step, args=ocp.args.StandardRestore(abstract)))
