"""Files of the Hugging Face hub, through its own library: references, pinned revisions, and errors of one line.

A reference is ``hf:ORG/NAME``, or ``hf:ORG/NAME/FILE`` for one file of a repository; ``@REVISION`` may follow. The library
keeps the files in its own cache (``HF_HOME``), goes on with interrupted downloads, and reads the cache alone if
``HF_HUB_OFFLINE`` is set or the hub cannot be reached.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import re
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from jaxspec.errors import CheckpointError, LinkError

PREFIX = "hf:"
_FORM = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[^@]+?))?/?(?:@(?P<revision>[^@\s]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
MAIN = "main"


class Reference(NamedTuple):
  """A repository of the hub, or one file of it."""

  repo: str
  file: str | None = None
  revision: str = MAIN

  def __str__(self) -> str:
    revision = "" if self.revision == MAIN else f"@{self.revision}"
    return f"{PREFIX}{self.repo}{'' if self.file is None else f'/{self.file}'}{revision}"

  @property
  def name(self) -> str:
    """Name of the network: of the file, else of the repository."""
    return Path(self.file).stem if self.file is not None else self.repo.partition("/")[2]

  @property
  def is_pinned(self) -> bool:
    """Whether the revision is a commit, whose files never change."""
    return _COMMIT.fullmatch(self.revision) is not None


class Pinned(NamedTuple):
  """A reference at one commit.

  Attributes:
    reference: with the commit as revision.
    names: of the files of its repository there.
    requested: the revision before it was resolved to a commit.
  """

  reference: Reference
  names: tuple[str, ...]
  requested: str


def is_reference(path: Any) -> TypeGuard[str | os.PathLike[str]]:
  """Whether a path names the hub."""
  return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(PREFIX)


def parse(path: str | os.PathLike[str]) -> Reference:
  """The reference that a path spells.

  Raises:
    CheckpointError: for another form.
  """
  match = _FORM.fullmatch(os.fspath(path))
  if match is None or ".." in (match["file"] or "").split("/"):
    raise CheckpointError(
      f"Must have {PREFIX}ORG/NAME, {PREFIX}ORG/NAME/FILE or either with @REVISION, we instead got {path}"
    )
  return Reference(match["repo"], match["file"], match["revision"] or MAIN)


def pin(reference: Reference) -> Pinned:
  """Looks up the commit of a reference and its files: at the hub, else in the library's cache.

  Raises:
    CheckpointError: for a repository or revision that does not exist, or that its owner has closed.
    LinkError: if the hub cannot be reached and the cache does not have it.
  """
  library = _library()
  with _errors(reference):
    if not library.constants.HF_HUB_OFFLINE:
      try:
        info = library.HfApi().model_info(reference.repo, revision=reference.revision)
        names = tuple(sorted(file.rfilename for file in info.siblings))
        return Pinned(reference._replace(revision=info.sha), names, reference.revision)
      except Exception as error:
        if not _is_unreachable(error) or (kept := _kept(reference)) is None:
          raise
        return kept
    if (kept := _kept(reference)) is None:
      raise LinkError(
        f"Must have {reference} in {library.constants.HF_HUB_CACHE} to work offline (HF_HUB_OFFLINE), it is not there"
      )
    return kept


def fetch(pinned: Pinned, names: Iterable[str]) -> Path:
  """The folder with these files, downloaded if they are missing.

  Raises:
    CheckpointError: for files that the hub does not give out.
    LinkError: if the hub cannot be reached and the cache does not have them.
  """
  library, names, reference = _library(), tuple(names), pinned.reference
  patterns = [glob.escape(name) for name in names]
  download = lambda revision: Path(library.snapshot_download(reference.repo, revision=revision, allow_patterns=patterns))
  with _errors(reference):
    folder = download(pinned.requested)  # the library then remembers the commit of a branch, for work without the hub
    if folder.name != reference.revision:  # the branch has moved on since
      folder = download(reference.revision)
  if missing := [name for name in names if not (folder / name).is_file()]:
    raise LinkError(f"Must have all files of {reference} to work without the hub, the cache lacks {', '.join(missing[:6])}")
  return folder


def _kept(reference: Reference) -> Pinned | None:
  """What the library's cache has of a reference."""
  folder = Path(_library().constants.HF_HUB_CACHE) / f"models--{reference.repo.replace('/', '--')}"
  commit = reference.revision
  if not reference.is_pinned:
    try:
      commit = (folder / "refs" / commit).read_text(encoding="utf-8").strip()
    except OSError:
      return None
  files = folder / "snapshots" / commit
  # A broken link is of a download that did not end.
  names = sorted(path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file())
  return Pinned(reference._replace(revision=commit), tuple(names), reference.revision) if names else None


def _library() -> Any:
  """``huggingface_hub``.

  Raises:
    ImportError: if it is not installed.
  """
  try:
    for name in ("constants", "errors"):
      importlib.import_module(f"huggingface_hub.{name}")
    return importlib.import_module("huggingface_hub")
  except ImportError as error:
    raise ImportError(f"{PREFIX}ORG/NAME needs: pip install 'jaxspec-decoding[hub]' ({error})") from error


def _is_unreachable(error: Exception) -> bool:
  """Whether an error of the library says that the hub did not answer, or not sensibly."""
  errors = _library().errors
  if isinstance(error, (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError)):
    return isinstance(error, errors.LocalEntryNotFoundError)
  if isinstance(error, errors.HfHubHTTPError):
    status = _status(error) or 500
    return status >= 500 or status == 429
  return not isinstance(error, ValueError)


def _status(error: Exception) -> int | None:
  """The HTTP status of an error of the library, if it has one."""
  return getattr(getattr(error, "response", None), "status_code", None)


@contextlib.contextmanager
def _errors(reference: Reference) -> Generator[None, None, None]:
  """Turns errors of the library into one line."""
  try:
    yield
  except (CheckpointError, LinkError, ImportError):
    raise
  except OSError as error:
    if error.errno is not None and error.filename is not None:  # a full disk, a cache without permission
      raise CheckpointError(f"Cannot keep the files of {reference}: {error.strerror}, {error.filename}") from error
    raise _in_one_line(reference, error) from error
  except Exception as error:
    raise _in_one_line(reference, error) from error


def _in_one_line(reference: Reference, error: Exception) -> CheckpointError | LinkError:
  errors, page = _library().errors, f"https://huggingface.co/{reference.repo}"
  if isinstance(error, errors.GatedRepoError):
    return CheckpointError(f"{reference} is gated: accept its terms at {page} and log in (hf auth login, or HF_TOKEN)")
  if isinstance(error, errors.RepositoryNotFoundError):
    return CheckpointError(f"No repository {reference.repo} at the hub, or a private one that needs a login (hf auth login)")
  if isinstance(error, errors.RevisionNotFoundError):
    return CheckpointError(f"No revision {reference.revision} in {reference.repo}, see {page}")
  if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
    return CheckpointError(f"No such file at the hub: {reference}")
  if isinstance(error, errors.HFValidationError):
    return CheckpointError(f"Must have the name of a repository, we instead got {reference.repo}")
  status = _status(error)
  if status in (401, 403):
    return CheckpointError(f"The hub refuses {reference} ({status}): it may be private or gated, see {page}")
  reason = f"status {status}" if status is not None else type(error).__name__
  return LinkError(f"Cannot reach the hub for {reference} ({reason}), and the cache does not have it: check the network")
