"""Programs of tests in separate processes, with several devices of the host."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax

ROOT = Path(__file__).parents[1]


def run(module: str, *args, devices: int) -> subprocess.Popen:
  """Starts a module with arguments and a number of devices."""
  flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
  command, pipe = [sys.executable, "-m", module, *map(str, args)], subprocess.PIPE
  return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": flags}, stdout=pipe, stderr=pipe, text=True)


def output_of(process: subprocess.Popen) -> dict:
  """The JSON of the last line of a process's output."""
  out, errors = process.communicate(timeout=900)
  assert process.returncode == 0, errors[-3000:]
  return json.loads(out.splitlines()[-1])


def program(
  make: Callable[[Path], None], main: Callable[[Path], dict], in_processes: Callable[[Path], dict] | None = None
) -> None:
  """Main function of programs for `run`: prints the results of a folder in one line, as one process or as one of several.

  The arguments are the folder, and with several processes: address, number of processes, own number.

  Args:
    make: fills the folder; not called with several processes.
    main: in one process.
    in_processes: in one of several, after `main` wrote its results to the folder; None for programs of one process.
  """
  folder, *rest = sys.argv[1:]
  if rest:
    jax.distributed.initialize(rest[0], int(rest[1]), int(rest[2]))
  jax.config.update("jax_default_matmul_precision", "highest")
  if not rest:
    make(Path(folder))
  print(json.dumps((in_processes if rest else main)(Path(folder))))


def free_address() -> str:
  """``HOST:PORT`` a free address of this machine."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{free.getsockname()[1]}"
