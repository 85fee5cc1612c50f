"""Authentication by bearer tokens, and the delay after wrong ones.

The file has one JSON object a line: ``name``, ``sha256`` of the secret, the quota (``streams``, ``calls_per_s``,
``fed_per_s``; a missing one is no limit), and ``revoked`` for a token that is refused. Secrets are not stored.
``jaxspec serve --new-token`` adds a line and prints the secret once.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import hmac
import json
import logging
import os
import secrets
from pathlib import Path
from typing import NamedTuple, TextIO

from jaxspec.serving.server.quotas import Quota, Tenant
from jaxspec.serving.wire.cloud import CloudError, Status

_LOG = logging.getLogger(__name__)
_QUOTA = tuple(field.name for field in dataclasses.fields(Quota))
_SECRET_BYTES = 32
_MAX_PEERS = 10_000


class Token(NamedTuple):
  """One line of the file."""

  tenant: Tenant
  sha256: bytes
  revoked: bool = False


class TokenFile:
  """The tokens of a file, and those that were issued here.

  Raises:
    ValueError: in one line, for a file that cannot be read.
  """

  def __init__(self, path: str | os.PathLike):
    self._path = Path(path)
    self._tokens = read_tokens(self._path)
    self._issued: tuple[Token, ...] = ()

  def tenant_of(self, secret: str | None) -> Tenant:
    """The owner of a secret. Its time does not depend on the number of correct bytes.

    Raises:
      CloudError: ``UNAUTHENTICATED`` for a missing or unknown one, ``PERMISSION_DENIED`` for a revoked one.
    """
    if secret is None:
      raise CloudError(Status.UNAUTHENTICATED, "a token is needed: --token-file FILE with its secret, in Python token=")
    digest = _digest(secret)
    found = None
    for token in (*self._tokens, *self._issued):
      if hmac.compare_digest(token.sha256, digest):
        found = token
    if found is None:
      raise CloudError(Status.UNAUTHENTICATED, "the token is not known")
    if found.revoked:
      raise CloudError(Status.PERMISSION_DENIED, f"the token {found.tenant.name} was revoked")
    return found.tenant

  def issue(self, name: str) -> str:
    """The secret of a new token, which is in no file and is valid as long as this object."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    self._issued += (Token(Tenant(name, Quota()), _digest(secret)),)
    return secret

  def reload(self) -> None:
    """Reads the file again; a damaged file changes nothing."""
    try:
      self._tokens = read_tokens(self._path)
    except ValueError as error:
      _LOG.error("The old tokens stay: %s", error)


class AuthBackoff:
  """Delays replies to peers with wrong tokens. Pure; time is an argument.

  Args:
    free: wrong tokens of a peer in ``window_s`` seconds that are not delayed.
    window_s: seconds after which a wrong token no longer counts.
    delay_s: seconds of delay.
  """

  def __init__(self, free: int = 10, window_s: float = 60.0, delay_s: float = 1.0):
    self._free, self._window_s, self._delay_s = free, window_s, delay_s
    self._times: collections.OrderedDict[str, collections.deque[float]] = collections.OrderedDict()

  def delay_s(self, peer: str, now: float) -> float:
    """Counts a wrong token of a peer; returns the seconds to wait before the reply."""
    times = self._times.setdefault(peer, collections.deque(maxlen=self._free))
    self._times.move_to_end(peer)
    if len(self._times) > _MAX_PEERS:
      self._times.popitem(last=False)
    slow = len(times) == self._free and now - times[0] < self._window_s
    times.append(now)
    return self._delay_s if slow else 0.0


def read_tokens(path: Path) -> tuple[Token, ...]:
  """The tokens of a file, in order.

  Raises:
    ValueError: for a file that cannot be read, an invalid line, or a name that occurs twice.
  """
  try:
    listed = path.read_text(encoding="utf-8")
  except (OSError, UnicodeDecodeError) as error:
    reason = "bytes that are no UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
    raise ValueError(f"Must have a file of tokens that can be read, we instead got {path}: {reason}") from error
  tokens = []
  for number, line in enumerate(listed.split("\n"), 1):
    if line.strip():
      try:
        tokens.append(_read_line(json.loads(line)))
      except json.JSONDecodeError as error:
        raise ValueError(f"Must have a token in line {number} of {path}, we instead got no JSON") from error
      except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"Must have a token in line {number} of {path}, we instead got {error}") from error
  names = collections.Counter(token.tenant.name for token in tokens)
  if twice := [name for name, count in names.items() if count > 1]:
    raise ValueError(f"Must have every name once in {path}, we instead got {twice[0]} twice")
  return tuple(tokens)


def new_token(path: str | os.PathLike, name: str, quota: Quota = Quota()) -> str:
  """Makes a token and adds it to a file, which is created if it is missing.

  Returns:
    The secret, which is in no file.
  Raises:
    ValueError: for a name that is taken or empty.
  """
  path = Path(path)
  if not name:
    raise ValueError(f"Must have a name for a token in {path}, we instead got none")
  secret = secrets.token_urlsafe(_SECRET_BYTES)
  limits = {key: value for key, value in dataclasses.asdict(quota).items() if value != float("inf")}
  line = json.dumps({"name": name, "sha256": _digest(secret).hex()} | limits) + "\n"
  with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+", encoding="utf-8") as file:
    _lock(file)
    if name in {token.tenant.name for token in read_tokens(path)}:
      raise ValueError(f"Must have a new name for a token in {path}, we instead got {name!r}")
    if path.read_text(encoding="utf-8").rpartition("\n")[2]:
      line = "\n" + line  # an editor may leave the last line without its end
    file.write(line)
  return secret


def _lock(file: TextIO) -> None:
  """Waits until no other process adds a token, on systems with such locks."""
  with contextlib.suppress(ImportError, OSError):
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)


def _read_line(line: dict) -> Token:
  unknown = line.keys() - {"name", "sha256", "revoked", *_QUOTA}
  if unknown:
    raise ValueError(f"an unknown field {sorted(unknown)[0]}")
  digest = bytes.fromhex(line["sha256"])
  if not isinstance(line["name"], str) or not line["name"] or len(digest) != hashlib.sha256().digest_size:
    raise ValueError("a name or sha256 that is none")
  quota = Quota(**{name: line[name] for name in _QUOTA if name in line})
  return Token(Tenant(line["name"], quota), digest, bool(line.get("revoked", False)))


def _digest(secret: str) -> bytes:
  return hashlib.sha256(secret.encode()).digest()
