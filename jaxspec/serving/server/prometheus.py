"""Metrics of a server, in the text format of Prometheus, without prompts and tokens."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from jaxspec.serving.server.metrics_hooks import MetricsHooks

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics(MetricsHooks):
  """Counters of one server, in a registry of their own."""

  def __init__(self):
    self.registry = CollectorRegistry()
    add = lambda kind, name, text, labels=(), **kwargs: kind(
      f"jaxspec_{name}", text, labels, registry=self.registry, **kwargs
    )
    self._calls = add(Counter, "calls", "Calls by method and status.", ("method", "status"))
    self._call_seconds = add(
      Histogram, "call_seconds", "From the arrival of a call to its reply.", ("method",), buckets=_SECONDS
    )
    self._queue_seconds = add(Histogram, "queue_seconds", "From the arrival of a call to the engine.", buckets=_SECONDS)
    self._step_seconds = add(Histogram, "step_seconds", "One step of the engine that computed rows.", buckets=_SECONDS)
    self._rows = add(Histogram, "rows_per_step", "Rows that the program of one step computed.", buckets=_ROWS)
    self._streams = add(Gauge, "streams", "Streams that the server knows.")
    self._waiting = add(Gauge, "waiting_calls", "Calls without a reply.")
    self._resumes = add(Counter, "resumes", "Streams that were opened with a prefix.")
    self._refused = add(Counter, "refused", "Refused calls by reason, without cancelled ones.", ("reason",))
    self._frame_bytes = add(Counter, "frame_bytes", "Bytes of frames.", ("direction",))

  def called(self, method: str, status: str, seconds: float) -> None:
    self._calls.labels(method, status).inc()
    self._call_seconds.labels(method).observe(seconds)
    if status not in ("OK", "CANCELLED"):
      self._refused.labels(status).inc()

  def waited(self, seconds: float) -> None:
    self._queue_seconds.observe(seconds)

  def stepped(self, seconds: float, rows: int) -> None:
    self._step_seconds.observe(seconds)
    self._rows.observe(rows)

  def resumed(self) -> None:
    self._resumes.inc()

  def frames(self, up: int, down: int) -> None:
    self._frame_bytes.labels("up").inc(up)
    self._frame_bytes.labels("down").inc(down)

  def set_gauges(self, streams: Callable[[], int], waiting: Callable[[], int]) -> None:
    """Sets the functions that return the number of streams and of waiting calls when the metrics are read."""
    self._streams.set_function(streams)
    self._waiting.set_function(waiting)

  def listen(self, host: str, port: int) -> Callable[[], None]:
    """Serves the metrics over HTTP; returns a function that stops it."""
    server, thread = start_http_server(port, host, registry=self.registry)

    def stop() -> None:
      server.shutdown()
      server.server_close()
      thread.join()

    return stop
