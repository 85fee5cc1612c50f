"""Applies every mutant to a copy of the project and runs its tests there: ``python -m tests.mutants.run [NAME ...]``.

Prints a table: mutant, what killed it, seconds. Exits with 1 if a mutant survives, if a patch does not match, or if a test
fails on the code as it is. Names are parts of names of mutants; without any, all run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
COPIED = ("jaxspec", "tests", "pyproject.toml")
TIMEOUT_S = 600


class Outcome(NamedTuple):
  """Result of a mutant."""

  name: str
  verdict: str  # killed, SURVIVED, or an error
  killed_by: str
  seconds: float


def copy_project(to: Path) -> None:
  """The code and the tests, without data files."""
  ignore = shutil.ignore_patterns("__pycache__", "golden", "recorded", "*.npz", "*.safetensors")
  for name in COPIED:
    if (ROOT / name).is_dir():
      shutil.copytree(ROOT / name, to / name, ignore=ignore)
    else:
      shutil.copy(ROOT / name, to / name)


def apply(mutant: Mutant, root: Path) -> None:
  """Patches a copy.

  Raises:
    ValueError: unless the text occurs in the file exactly once.
  """
  path = root / mutant.file
  text = path.read_text()
  if (number := text.count(mutant.old)) != 1:
    raise ValueError(f"Must have the text of mutant {mutant.name!r} once in {mutant.file}, we instead got it {number} times")
  path.write_text(text.replace(mutant.old, mutant.new))


def pytest(root: Path, tests: list[str], *options: str) -> subprocess.CompletedProcess:
  """Runs tests of the default suite in a copy, in one process."""
  environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)}
  command = [sys.executable, "-m", "pytest", "-n0", "--no-header", "-p", "no:cacheprovider", *options, *tests]
  return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def try_mutant(mutant: Mutant) -> Outcome:
  """Runs the tests of one mutant."""
  start = time.monotonic()
  with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
    root = Path(folder)
    copy_project(root)
    try:
      apply(mutant, root)
      done = pytest(root, list(mutant.killed_by), "-x", "--tb=line")
      verdict = {0: "SURVIVED", 1: "killed"}.get(done.returncode, f"BROKEN: pytest ended with {done.returncode}")
      failed = re.findall(r"^FAILED \S+::(\S+(?: \S+)*?)(?: - (.*))?$", done.stdout, re.MULTILINE)
      killer = failed[0][0] if failed else done.stdout.strip().splitlines()[-1][:80] if done.stdout.strip() else ""
    except subprocess.TimeoutExpired:
      verdict, killer = "killed", f"no end in {TIMEOUT_S} s"
    except ValueError as error:
      verdict, killer = f"BROKEN: {error}", ""
  return Outcome(mutant.name, verdict, killer, time.monotonic() - start)


def check_baseline(mutants: list[Mutant]) -> str | None:
  """Runs all tests on the unchanged code; the error, or None."""
  tests = sorted({test for mutant in mutants for test in mutant.killed_by})
  with tempfile.TemporaryDirectory(prefix="mutant-none-") as folder:
    root = Path(folder)
    copy_project(root)
    where = subprocess.run(
      [sys.executable, "-c", "import jaxspec; print(jaxspec.__file__)"], cwd=root, capture_output=True, text=True,
      env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    if not where.stdout.startswith(str(root)):
      return f"the copy is not what is imported: {where.stdout or where.stderr}"
    done = pytest(root, tests, "--tb=short")
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    passed = re.search(r"(\d+) passed", summary)
    # The project's options deselect all tests outside of the default suite.
    if done.returncode or not passed or int(passed[1]) != len(tests):
      return f"{len(tests)} tests of the default suite must pass without a mutant:\n{done.stdout[-3000:]}"
  return None


def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("names", nargs="*", help="parts of names of mutants")
  parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
  parser.add_argument("--no-baseline", action="store_true", help="do not try the tests on the code as it is")
  options = parser.parse_args(arguments)
  chosen = [mutant for mutant in MUTANTS if not options.names or any(name in mutant.name for name in options.names)]
  if not chosen:
    parser.error(f"Must have a part of the name of a mutant, we instead got {', '.join(options.names)}")
  start = time.monotonic()
  if not options.no_baseline and (wrong := check_baseline(chosen)):
    print(wrong)
    return 1
  width = max(len(mutant.name) for mutant in chosen)
  survived = 0
  with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    for outcome in pool.map(try_mutant, chosen):
      survived += outcome.verdict != "killed"
      print(f"{outcome.name:{width}}  {outcome.verdict:8}  {outcome.seconds:5.0f} s  {outcome.killed_by}", flush=True)
  print(f"{len(chosen) - survived} of {len(chosen)} mutants killed in {time.monotonic() - start:.0f} s")
  return 1 if survived else 0


if __name__ == "__main__":
  sys.exit(main())
