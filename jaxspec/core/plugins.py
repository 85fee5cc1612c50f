"""Registries of names, and the plug-ins that add to them.

A plug-in is a module that an installed distribution names in the entry-point group `GROUP`. Its import registers methods,
families, converters and codecs. All plug-ins are imported when a registry is first read. A plug-in that cannot be imported
is reported in one line; what it registered before its error stays.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TypeVar

from jaxspec.core.error_lines import one_line, show_trace

GROUP = "jaxspec.plugins"
_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
Check = Callable[[str, Value, Mapping[str, Value]], None]


class Registry(Mapping[str, Value]):
  """Values by name, in the order in which they were added. Threads may read and add at the same time.

  Reading imports the plug-ins, so no module of the library reads a registry while it is imported.

  Args:
    noun: what messages call a value.
    values: those of the library.
    check: ``(name, value, values so far)``; raises a ValueError for a value that does not fit.
  """

  def __init__(self, noun: str, values: Mapping[str, Value], check: Check[Value] = lambda name, value, values: None):
    self._noun, self._check, self._lock = noun, check, threading.Lock()
    self._values = dict(values)  # replaced whole, so that an iteration of another thread goes on over the old one

  def __getitem__(self, name: str) -> Value:
    _import_plugins()
    return self._values[name]

  def __iter__(self) -> Iterator[str]:
    _import_plugins()
    return iter(self._values)

  def __len__(self) -> int:
    _import_plugins()
    return len(self._values)

  def add(self, name: str, value: Value) -> None:
    """Adds a value for as long as the process runs.

    Raises:
      ValueError: for a name that is taken, or a value that does not fit.
    """
    with self._lock:
      if name in self._values:
        raise ValueError(f"Must have a new name for a {self._noun}, we instead got {name!r}")
      self._check(name, value, self._values)
      self._values = {**self._values, name: value}

  @contextlib.contextmanager
  def adding(self, name: str, value: Value) -> Generator[None, None, None]:
    """Adds a value inside a ``with`` block, for tests."""
    self.add(name, value)
    try:
      yield
    finally:
      with self._lock:
        self._values = {known: value for known, value in self._values.items() if known != name}


class _Plugins:
  """Imports the plug-ins once. A plug-in that reads a registry during its import sees what is registered so far."""

  def __init__(self):
    self._lock, self._is_done, self._is_running = threading.RLock(), False, False

  def __call__(self) -> None:
    if self._is_done:
      return
    with self._lock:  # other threads wait for all plug-ins; `Registry.add` has a lock of its own, for imports elsewhere
      if self._is_done or self._is_running:
        return
      import importlib.metadata  # a third of the time that a command's help takes

      self._is_running = True
      for entry in importlib.metadata.entry_points(group=GROUP):
        try:
          entry.load()
        except (Exception, SystemExit) as error:
          show_trace()
          owner = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
          reason = f"{type(error).__name__}: {one_line(error)}"
          _LOG.warning("The plug-in %s%s cannot be imported: %s", entry.value, owner, reason)
      self._is_done, self._is_running = True, False


_import_plugins = _Plugins()
