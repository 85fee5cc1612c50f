"""Training checkpoints, written atomically with orbax; only the newest ones stay."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import jax
import orbax.checkpoint as ocp

from jaxspec.core.error_lines import one_line
from jaxspec.training.train_state import TrainState


@contextlib.contextmanager
def _quiet_tasks() -> Iterator[None]:
  """Hides errors of concurrent writes other than the one that is raised; asyncio logs them when they are collected."""
  logger = logging.getLogger("asyncio")
  level = logger.level
  logger.setLevel(logging.CRITICAL)
  try:
    yield
  finally:
    gc.collect()
    logger.setLevel(level)


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
    """Writes ``state`` under its step; a step that is already there is left as it is.

    Raises:
      ValueError: if it cannot be written; older checkpoints stay.
    """
    step = int(state.step)
    if step == self._manager.latest_step():
      return
    try:
      with _quiet_tasks():
        self._manager.save(step, args=ocp.args.StandardSave(state))
        self._manager.wait_until_finished()
    except (OSError, ValueError) as error:
      full = os.strerror(errno.ENOSPC)  # the storage library reports a full disk as exhausted resources
      reason = full if full in str(error) else one_line(error)[:160]
      raise ValueError(f"Cannot write a checkpoint to {self._manager.directory}: {reason}") from error

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
