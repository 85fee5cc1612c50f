"""The committed code of the protocol equals the generated code, and is imported only if needed."""

import subprocess
import sys

import pytest

from jaxspec.serving.wire.v1 import make_pb2 as generate


def imported_by(code):
  """The top-level packages in a fresh process after it ran ``code``."""
  command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"]
  outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
  return set(outcome.stdout.split())


def test_generating_again_changes_nothing(tmp_path):
  pytest.importorskip("grpc_tools", reason="needs grpcio-tools: pip install 'jaxspec-decoding[dev]'")
  generate.generate(tmp_path)
  made = tmp_path / "jaxspec" / "serving" / "wire" / "v1"
  for name in generate.GENERATED:
    assert (made / name).read_text() == (generate.PACKAGE / name).read_text(), name


@pytest.mark.slow
def test_the_package_needs_neither_grpc_nor_protobuf():
  """Every public name is imported, not the package alone."""
  loaded = imported_by("import jaxspec\nfor name in jaxspec.__all__: getattr(jaxspec, name)")
  assert "jax" in loaded and not loaded & {"grpc", "google", "prometheus_client", "cryptography"}


@pytest.mark.parametrize("module", ["jaxspec.serving.edge.grpc_client", "jaxspec.serving.server.server"])
@pytest.mark.parametrize("missing", ["grpc", "google.protobuf"])
def test_without_the_extra_one_line_says_what_to_install(module, missing):
  code = f"import sys; sys.modules[{missing!r}] = None\ntry: import {module}\nexcept ImportError as error: print(error)"
  outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
  assert outcome.stdout.endswith("needs: pip install 'jaxspec-decoding[serve]'\n") and outcome.stdout.count("\n") == 1


def test_an_address_is_read_without_the_extra():
  """Errors of the address come before the missing extra."""
  code = """
import sys
import jaxspec
sys.modules["grpc"] = None
for address in ("nowhere", "grpc://127.0.0.1:1"):
  try: jaxspec.connect(address)
  except (ValueError, ImportError) as error: print(type(error).__name__)
"""
  outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
  assert outcome.stdout.split() == ["ValueError", "ImportError"]


def test_readers_of_frames_need_no_jax():
  loaded = imported_by("import jaxspec.serving.wire.framing, jaxspec.serving.wire.ciar_message")
  assert "numpy" in loaded and not loaded & {"jax", "jaxlib", "flax"}
