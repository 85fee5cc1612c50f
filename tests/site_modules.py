"""Modules of the documentation, which are not in a package."""

import importlib.util
from pathlib import Path
from types import ModuleType


def site_module(name: str) -> ModuleType:
  """The module ``docs/_ext/NAME.py``."""
  path = Path(__file__).parents[1] / "docs" / "_ext" / f"{name}.py"
  spec = importlib.util.spec_from_file_location(name, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module
