"""Scripts in ``experiments`` import: what they take from the package and from each other exists."""

import importlib
import pkgutil

import pytest

import experiments

OPTIONAL = {"torch", "transformers", "matplotlib"}


@pytest.mark.parametrize("name", [info.name for info in pkgutil.iter_modules(experiments.__path__)])
def test_script_imports(name):
  try:
    importlib.import_module(f"experiments.{name}")
  except ModuleNotFoundError as error:
    if error.name.partition(".")[0] not in OPTIONAL:
      raise
    pytest.skip(f"needs {error.name}")
