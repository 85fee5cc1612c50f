"""Small released networks in the forms of the Hugging Face hub: a folder, its library's cache, and a server like the hub."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from conversion import gpt_neo, hugging_face
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from tests.run import tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def released(folder: Path, seed: int = 0) -> Path:
  """A folder of a random GPT-Neo as released, with its tokenizer."""
  ours = tiny.save(folder.parent / f"{folder.name}-ours", tiny.NEO, seed, scale=0.2)
  tiny.byte_tokenizer().save(str(ours / TOKENIZER_FILE))
  hugging_face.export_folder(ours, folder, gpt_neo.ARCHITECTURE)
  return folder


def cache(root: Path, repo: str, folder: Path, *, commit: str = COMMIT, revision: str = "main") -> Path:
  """The files of ``folder`` where ``snapshot_download`` would put them below ``HF_HOME``; returns the snapshot."""
  place = root / "hub" / f"models--{repo.replace('/', '--')}"
  snapshot = place / "snapshots" / commit
  for path in (place / "refs", place / "blobs", snapshot):
    path.mkdir(parents=True, exist_ok=True)
  (place / "refs" / revision).write_text(commit)
  for file in sorted(path for path in folder.rglob("*") if path.is_file()):
    blob, link = place / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest(), snapshot / file.relative_to(folder)
    shutil.copyfile(file, blob)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
  return snapshot


class _Handler(http.server.BaseHTTPRequestHandler):
  repos: dict[str, Path]
  gated: set[str]
  seen: list[str]

  def do_HEAD(self) -> None:
    self._answer()

  def do_GET(self) -> None:
    self._answer()

  def log_message(self, *args) -> None:
    self.seen.append(f"{self.command} {self.path}")

  def _answer(self) -> None:
    path = self.path.partition("?")[0].strip("/")
    is_api = path.startswith("api/models/")
    org, name, *rest = path.removeprefix("api/models/").split("/")
    folder = self.repos.get(f"{org}/{name}")
    if folder is None:
      self._reply(401, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
    elif is_api and rest[:1] == ["tree"]:
      self._json(
        [{"type": "file", "path": file.name, "size": file.stat().st_size, "oid": "0" * 40} for file in folder.iterdir()]
      )
    elif is_api and rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
      self._reply(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
    elif is_api:
      names = [{"rfilename": file.name} for file in sorted(folder.iterdir())]
      self._json({"id": f"{org}/{name}", "modelId": f"{org}/{name}", "sha": COMMIT, "siblings": names, "tags": []})
    elif f"{org}/{name}" in self.gated:
      self._reply(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted"})
    else:
      content = (folder / rest[2]).read_bytes()
      self._reply(200, content, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT})

  def _json(self, document) -> None:
    self._reply(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

  def _reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
    self.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
      self.send_header(name, value)
    self.end_headers()
    if self.command != "HEAD":
      self.wfile.write(content)


@contextlib.contextmanager
def server(repos: dict[str, Path], gated: set[str] = frozenset()) -> Iterator[tuple[str, list[str]]]:
  """A server with the part of the hub's protocol that downloads use; yields its address and the list of requests."""
  seen: list[str] = []
  handler = type("Handler", (_Handler,), {"repos": repos, "gated": gated, "seen": seen})
  running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
  threading.Thread(target=running.serve_forever, daemon=True).start()
  try:
    yield f"http://127.0.0.1:{running.server_port}", seen
  finally:
    running.shutdown()
    running.server_close()
