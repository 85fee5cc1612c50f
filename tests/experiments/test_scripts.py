"""Modules of ``experiments`` import: their imports exist; none imports the command line."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import experiments

OPTIONAL = {"torch", "transformers", "matplotlib"}
NAMES = [info.name for info in pkgutil.walk_packages(experiments.__path__, "experiments.")]
FOLDER = Path(experiments.__file__).parent


def test_every_module_imports():
  missing = []
  for name in NAMES:
    try:
      importlib.import_module(name)
    except ModuleNotFoundError as error:
      if error.name.partition(".")[0] not in OPTIONAL:
        raise
      missing.append(f"{name} needs {error.name}")
  assert len(missing) < len(NAMES)


def test_every_script_says_how_it_is_run():
  for folder in ("train", "figures", "data"):
    for path in (FOLDER / folder).glob("[a-z]*.py"):
      text = path.read_text()
      command = f"python -m experiments.{folder}.{path.stem}"
      assert ('if __name__ == "__main__":' in text) == (command in text.partition('"""\n\n')[0]), path


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_the_library_alone_is_used(path):
  assert "jaxspec.cli" not in path.read_text()
