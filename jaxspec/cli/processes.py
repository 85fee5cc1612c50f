"""Options of a command that several processes run together, each with devices of one mesh."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from jaxspec.cli.errors import UserError, interruptible
from jaxspec.serving.server.listen import bound, reason
from jaxspec.serving.wire.address import parse_address

_OPTIONS = (
  click.option("--mesh", metavar="NAME", help="Devices that share the work, such as data=2,model=4."),
  click.option("--coordinator", metavar="HOST:PORT", help="Of several processes: where the first one waits for the others."),
  click.option("--num-processes", type=click.IntRange(2), metavar="N", help="How many they are."),
  click.option("--process-id", type=click.IntRange(0), metavar="I", help="Which one this is; process 0 listens."),
)
_END_S = 15  # how long a process waits for the others at its end; one that has failed at its start holds up no more
_NAMES = ("coordinator", "num_processes", "process_id")


def on_mesh(function: Callable) -> Callable:
  """Gives a command ``--mesh`` and the options of several processes."""
  for option in reversed(_OPTIONS):
    function = option(function)
  return function


def join(options: dict[str, Any]) -> dict[str, Any]:
  """Starts this process of several, if there are; returns the arguments of `jaxspec.serve` that say so.

  Raises:
    UserError: for options that do not go together.
  """
  import jax

  mesh, given = dict(mesh=options["mesh"]), [options[name] for name in _NAMES if options[name] is not None]
  if not given:
    return mesh
  if len(given) < len(_NAMES) or options["mesh"] is None:
    raise UserError("--coordinator, --num-processes and --process-id go together, and with --mesh")
  address, number, process = given
  coordinator = parse_address(address, "--coordinator HOST:PORT")
  if process >= number:
    raise UserError(f"Must have --process-id from 0 to {number - 1}, we instead got {process}")
  try:  # a process that waits for the others would wait for minutes, and one whose port is taken is ended by JAX
    coordinator.resolve()
    if process == 0:
      bound(coordinator).close()
  except OSError as error:
    raise UserError(f"Cannot start process {process} at --coordinator {coordinator}: {reason(error)}") from error
  interruptible(jax.distributed.initialize, str(coordinator), number, process, shutdown_timeout_seconds=_END_S)
  return mesh | dict(leader=coordinator.host)


def is_first(options: dict[str, Any]) -> bool:
  """Whether this is process 0, or the only one."""
  return not options["process_id"]


def leave(options: dict[str, Any], status: int) -> int:
  """Ends this process at once where it is one of several and has failed: JAX waits for all of them at the end of each."""
  if status and options["coordinator"] is not None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  return status
