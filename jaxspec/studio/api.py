"""The page and its streams over HTTP (Starlette). Every request is JSON of limited size, and is checked."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import AsyncIterator, Generator, Sequence
from pathlib import Path
from typing import Any

import click
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from jaxspec.core.error_lines import one_line
from jaxspec.studio import link_cost, schema
from jaxspec.studio.comparison import compare
from jaxspec.studio.result_store import ComparisonResult, ResultStore
from jaxspec.studio.studio_session import StudioSession
from jaxspec.studio.worker import QueueFull, Work, Worker

_PAGE = Path(__file__).parent / "page"
_MAX_BODY = 32_768
_BEAT_S = 1.0  # period of the empty lines that detect a closed page
_HEADERS = {
  "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-store",
}
_TYPES = {"json": "application/json", "png": "image/png", "py": "text/x-python"}


def make_app(session: StudioSession, *, folder: Path | None = None, hosts: Sequence[str] = ("localhost",)) -> Starlette:
  """The application of a session.

  Args:
    folder: for finished comparisons; None writes nothing.
    hosts: allowed host names, besides every IP address.
  """
  worker, store, about = Worker(), ResultStore(folder), session.describe() | {"writes": folder is not None}

  async def describe(request: Request) -> Response:
    return JSONResponse(about)

  async def check(request: Request) -> Response:
    wanted = schema.read(await _body(request))
    return JSONResponse(await run_in_threadpool(session.check, wanted))

  async def link(request: Request) -> Response:
    return JSONResponse({"seconds": link_cost.seconds(await _body(request))})

  async def start(request: Request) -> Response:
    wanted = schema.read(await _body(request))
    resolved = await run_in_threadpool(session.resolve, wanted)

    def work(stopped) -> Generator[dict[str, Any], None, None]:
      for event in compare(session, resolved, stopped):
        yield _stored(store, event) if isinstance(event, ComparisonResult) else event

    return StreamingResponse(_lines(worker, work, request), media_type="application/x-ndjson")

  async def download(request: Request) -> Response:
    name, file = request.path_params["name"], request.path_params["file"]
    files = store.get(name).files()
    if file not in files:
      raise ValueError(f"Must have a file in {', '.join(files)}, we instead got {file[:40]!r}")
    headers = {"content-disposition": f'attachment; filename="race-{name[:8]}-{file}"'}
    return Response(files[file], media_type=_TYPES[file.rpartition(".")[2]], headers=headers)

  async def write(request: Request) -> Response:
    await _body(request)  # forms of other sites cannot send JSON
    return JSONResponse({"written": await run_in_threadpool(store.write, request.path_params["name"])})

  page = lambda name: lambda request: FileResponse(_PAGE / name)
  routes = [
    Route("/", page("index.html")),
    *(Route(f"/{path.name}", page(path.name)) for path in _PAGE.iterdir() if path.suffix in (".css", ".js")),
    Route("/api/about", describe),
    Route("/api/check", check, methods=["POST"]),
    Route("/api/link", link, methods=["POST"]),
    Route("/api/race", start, methods=["POST"]),
    Route("/api/races/{name}/write", write, methods=["POST"]),
    Route("/api/races/{name}/{file}", download),
  ]
  middleware = [Middleware(_Headers), Middleware(_Hosts, names=hosts)]
  errors = {ValueError: _refused, OSError: _refused, click.ClickException: _refused}
  return Starlette(routes=routes, middleware=middleware, exception_handlers=errors)


class _Headers:
  """Adds `_HEADERS` to every response."""

  def __init__(self, app):
    self.app = app

  async def __call__(self, scope, receive, send):
    async def with_headers(message):
      if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], *((name.encode(), value.encode()) for name, value in _HEADERS.items())]
      await send(message)

    await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


class _Hosts:
  """Refuses other host names, with one line about the option that adds a name.

  This prevents DNS rebinding: another site points its name at this machine and reads the replies. Rebinding needs a
  name, so requests by IP address, as from a phone, are always accepted.
  """

  def __init__(self, app, names: Sequence[str]):
    self.app, self.names = app, [name.lower() for name in names]

  async def __call__(self, scope, receive, send):
    given = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
    name = re.sub(r":\d*$", "", given).lower()
    if scope["type"] != "http" or name in self.names or _is_ip(name):
      return await self.app(scope, receive, send)
    is_name = re.fullmatch(r"[\w.-]{1,253}", name, re.ASCII)
    how = f"if it is a name of this machine, start the studio with --host-name {name}" if is_name else "use its IP address"
    known = ", ".join(dict.fromkeys(self.names))
    line = f"Must have a Host header with an IP address or one of {known}, we instead got {given[:80]!r}: {how}\n"
    await PlainTextResponse(line, 400)(scope, receive, send)


def _is_ip(host: str) -> bool:
  try:
    return bool(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
  except ValueError:
    return False


def _refused(request: Request, error: Exception) -> Response:
  return JSONResponse({"message": one_line(error)}, 400)


async def _body(request: Request) -> Any:
  """JSON of a request.

  Raises:
    ValueError: for another content type, a body that is too large, or invalid JSON.
  """
  if request.headers.get("content-type", "").partition(";")[0] != "application/json":
    raise ValueError("Must have JSON (content-type application/json), we instead got something else")
  body = b""
  async for part in request.stream():
    body += part
    if len(body) > _MAX_BODY:
      raise ValueError(f"Must have at most {_MAX_BODY} bytes, we instead got more")
  try:
    return json.loads(body, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))
  except (ValueError, RecursionError) as error:
    raise ValueError("Must have JSON, we instead got something else") from error


async def _lines(worker: Worker, work: Work, request: Request) -> AsyncIterator[bytes]:
  """Events as lines of JSON. A closed page cancels its request."""
  try:
    queued = worker.submit(work)
  except QueueFull as error:
    yield _line({"event": "error", "message": one_line(error)})
    return
  try:
    while not await request.is_disconnected():
      try:
        event = await queued.next(_BEAT_S)
      except TimeoutError:
        yield b"\n"
        continue
      if event is None:
        return
      yield _line(event)
      await asyncio.sleep(0)
  finally:
    queued.cancel()


def _line(event: dict[str, Any]) -> bytes:
  return json.dumps(event, allow_nan=False).encode() + b"\n"


def _stored(store: ResultStore, finished: ComparisonResult) -> dict[str, Any]:
  name = store.add(finished)
  return {
    "event": "finished",
    "name": name,
    "files": list(finished.files()),
    "commands": finished.commands,
    "snippets": finished.snippets,
  }
