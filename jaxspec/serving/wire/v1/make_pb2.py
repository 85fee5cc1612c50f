"""Generates the Python code of `jaxspec_link.proto`, which is committed.

Command, from the root of the project::

    pip install grpcio-tools==1.80.0
    python -m jaxspec.serving.wire.v1.make_pb2
"""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parents[3]
PROTO = PACKAGE / "jaxspec_link.proto"
GENERATED = ("jaxspec_link_pb2.py", "jaxspec_link_pb2.pyi")


def generate(folder: Path) -> None:
  """Writes the generated modules to ``folder/jaxspec/serving/wire/v1``.

  Raises:
    ImportError: without grpcio-tools.
    ValueError: if the compiler refuses the file.
  """
  try:
    from grpc_tools import protoc
  except ImportError as missing:
    raise ImportError("The generator needs: pip install 'jaxspec-decoding[dev]'") from missing
  # The name by which the file is compiled becomes its name in every process, and the path of the Python modules.
  status = protoc.main(["protoc", f"-I{ROOT}", f"--python_out={folder}", f"--pyi_out={folder}", str(PROTO)])
  if status:
    raise ValueError(f"Must have a valid {PROTO.name}, we instead got status {status} from protoc")


if __name__ == "__main__":
  try:
    generate(ROOT)
  except (ImportError, ValueError) as error:
    sys.exit(f"Error: {error}")
