"""Programs of tests in processes of their own, with several devices of the host."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(module: str, *args, devices: int) -> subprocess.Popen:
  """Starts a module with arguments and so many devices."""
  flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
  command, pipe = [sys.executable, "-m", module, *map(str, args)], subprocess.PIPE
  return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": flags}, stdout=pipe, stderr=pipe, text=True)


def output_of(process: subprocess.Popen) -> dict:
  """The JSON of the last line that a process prints."""
  out, errors = process.communicate(timeout=900)
  assert process.returncode == 0, errors[-3000:]
  return json.loads(out.splitlines()[-1])


def free_address() -> str:
  """``HOST:PORT`` of this machine that nobody listens at."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{free.getsockname()[1]}"
