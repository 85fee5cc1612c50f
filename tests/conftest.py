"""Settings of the whole suite: strict keys, strict shapes, full matrix precision, programs that compile fast."""

import ctypes
import gc
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from jaxspec.cli.compilation_cache import cache_folder

gc.set_threshold(20_000, 20, 50)  # rewriting assertions and tracing make many objects and little garbage


def _is_known(flag: str) -> bool:
  """Whether the installed XLA knows a flag, or several. An unknown flag aborts the process, so another process tries."""
  command = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
  return not subprocess.run(command, env=os.environ | {"XLA_FLAGS": flag}, capture_output=True).returncode


# Shells ignore Ctrl-C in a background job and in all that it starts. Tests send it to their processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling takes most of the time of the suite. These flags and fewer optimisations halve it; the compilation cache halves
# it again. Processes started by tests have the same settings. `XLA_FLAGS= JAX_DISABLE_MOST_OPTIMIZATIONS=0
# JAX_COMPILATION_CACHE_DIR= pytest` tests with the compiler's defaults.
if "XLA_FLAGS" not in os.environ:
  flags = [
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",
  ]
  together = " ".join(flags)
  os.environ["XLA_FLAGS"] = together if _is_known(together) else " ".join(filter(_is_known, flags))
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # see `jaxspec.core.platform.without_stack_frames`
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder().with_name("tests")))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.03")

# A process of several stays on a core of its own: threads of one that wait for each other take the time of the other.
if (worker := os.environ.get("PYTEST_XDIST_WORKER", "")) and hasattr(os, "sched_setaffinity"):
  cores = sorted(os.sched_getaffinity(0))
  os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import jax  # noqa: E402
import pytest  # noqa: E402

from jaxspec.core import plugins  # noqa: E402
from tests import host_operations  # noqa: E402

plugins.GROUP = "no plug-ins"  # installed plug-ins have their own tests, pages and pictures

# Memory of a process after a file, above which it drops its compiled programs; without /proc always.
STATM, MOST_BYTES = Path("/proc/self/statm"), 3 << 30

# Files that take longest. They begin first, so that no core waits for the other at the end.
LONGEST = (
  "test_recorded_tokens.py",
  "test_contract.py",
  "test_docs.py",
  "test_mesh.py",
  "test_bench_model.py",
  "test_class_pairs.py",
  "test_run.py",
  "test_scale_ciar.py",
  "test_imposed_tables.py",
  "test_train_drafter.py",
  "test_imposed.py",
  "test_continuous_tokens.py",
  "test_enumeration.py",
  "test_own.py",
  "test_auto_length.py",
  "test_pipeline.py",
  "test_scale_loop.py",
  "test_edge_stream.py",
  "test_methods.py",
  "test_accelerator.py",
  "test_janus.py",
  "test_site.py",
  "test_packing.py",
)

# Rooms above the loop, whose tests do not check that every random key is used once, except in the file with a decode of
# every method over a cloud: the check leaves the fast path of JAX at every call, a quarter of the time of tests with many
# calls. The contract checks the same loops, also with drafts that cross as frames.
UNCHECKED = {"cli", "evaluation", "experiments", "families", "planning", "run", "serving", "studio"}
CHECKED = {"test_edge_stream.py"}

host_operations.install()

jax.config.update("jax_legacy_prng_key", "error")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
  """Drops compiled programs after a file when they take gigabytes; small ones are used by many files."""
  yield
  if not STATM.exists() or int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST_BYTES:
    jax.clear_caches()
    gc.collect()
    # glibc keeps freed memory for later. The process would stay above the limit, and drop its programs after every file.
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
      library.malloc_trim(0)


@pytest.fixture
def compiled_operations():
  """JAX compiles every operation, for tests that count programs."""
  host_operations.uninstall()
  yield
  host_operations.install()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
  """Strict keys by room. Programs with few optimisations, except in tests that run longer than they compile."""
  room = item.path.relative_to(Path(__file__).parent).parts[0]
  jax.config.update("jax_debug_key_reuse", room not in UNCHECKED or item.path.name in CHECKED)
  if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1":
    jax.config.update("jax_disable_most_optimizations", "long_runs" not in item.keywords)


def pytest_collection_finish(session):
  """Python's collector skips what was imported."""
  gc.collect()
  gc.freeze()


def pytest_sessionfinish(session):
  """The collector skips what the tests leave: pytest collects up to five times when a process ends."""
  gc.freeze()


IS_SLOW = pytest.StashKey[dict[str, bool]]()  # of every collected test, by its name


@pytest.hookimpl(tryfirst=True)  # before those of the command line are deselected
def pytest_collection_modifyitems(config, items):
  """Longest files first, as a process of several takes a file whole; skips tests that need torch if it is not installed."""
  config.stash[IS_SLOW] = {item.nodeid: "slow" in item.keywords for item in items}
  position = {name: place for place, name in enumerate(LONGEST)}
  items.sort(key=lambda item: position.get(item.path.name, len(LONGEST)))
  if importlib.util.find_spec("torch") is None:
    skip = pytest.mark.skip(reason="needs PyTorch: pip install 'jaxspec-decoding[convert]'")
    for item in items:
      if "torch" in item.keywords:
        item.add_marker(skip)
