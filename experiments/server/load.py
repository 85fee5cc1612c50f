"""Puts a server under load by devices that play traces; prints a report in JSON. No JAX: a generator is a small process.

    python -m experiments.server.load grpcs://box:8443 --trace traces --devices 64 --network 4g

1. Devices are threads, each with its own connection. They come in stages: 1, 8, 64 and so on.
2. In a stage every device plays one trace, with the pauses of the edge that was traced. Devices start spread over a round.
3. A reply that is not the recorded one is an error, as is a call that is not answered: the exit status is 2.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from experiments.server.player import Played, fitting, play
from experiments.server.relay import Shape, relaying
from experiments.server.server_metrics import Counters, read_metrics, server_report
from experiments.server.trace import Trace, read_traces
from jaxspec.core.command_line import PATH, UserError, script
from jaxspec.serving.edge.connection import connect, split_url
from jaxspec.serving.edge.reliable_stream import RetrySettings
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.wire.cloud import Cloud, CloudError
from jaxspec.serving.wire.link_model import NETWORKS, link_seconds

RAMP = (1, 8, 64)


class Device(NamedTuple):
  """What one device did."""

  played: Played | None  # None where a call failed
  seconds: float
  failure: str | None


def stages(devices: int) -> list[int]:
  """Devices of every stage: `RAMP` as far as it goes, then all."""
  return [number for number in RAMP if number < devices] + [devices]


def run_load(
  connect: Callable[[], Cloud],
  traces: Sequence[Trace],
  *,
  devices: int,
  network: str | None = None,
  metrics: Callable[[], Counters] | None = None,
  policy: Policy = Policy(),
  report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
  """Plays traces in stages.

  Args:
    connect: makes the connection of a device.
    traces: device ``i`` plays the trace ``i % len(traces)``.
    devices: of the last stage.
    network: key of `NETWORKS` that the connections go through.
    metrics: reads the server's counters; None where they are not known.
    report: receives a line about every stage.
  Returns:
    One entry for every stage, see `stage_report`; JSON.
  """
  clouds: list[Cloud | CloudError] = []
  found = []
  try:
    for number in stages(devices):
      report(f"{number} device{'s' * (number > 1)}")
      clouds += [_connected(connect) for _ in range(number - len(clouds))]
      before, counters = _bytes(clouds), None if metrics is None else metrics()
      began, cpu = time.perf_counter(), time.process_time()
      done = _play(clouds, traces, policy)
      seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
      server = None if metrics is None else metrics().since(counters)
      sent = tuple(after - first for after, first in zip(_bytes(clouds), before))
      found.append(stage_report(done, seconds, sent=sent, cpu_s=cpu, network=network, server=server))
  finally:
    for cloud in _live(clouds):
      cloud.hang_up()
  return {"traces": len(traces), "network": network, "stages": found}


def stage_report(
  done: Sequence[Device],
  seconds: float,
  *,
  sent: tuple[int, int],
  cpu_s: float = 0.0,
  network: str | None = None,
  server: Counters | None = None,
) -> dict[str, Any]:
  """The report of a stage; JSON.

  Args:
    seconds: of the whole stage, until its last device ended.
    sent: bytes of the transport up and down, TLS apart.
    cpu_s: of this process; near ``seconds`` the generator is the bottleneck.
    network: that the connections went through.
    server: the server's counters meanwhile.
  """
  whole = [each for each in done if each.played is not None]
  opens = np.array([each.played.open_s for each in whole])
  times = np.array(list(itertools.chain.from_iterable(each.played.call_s for each in whole)))
  tokens = np.array([each.played.num_tokens for each in whole])
  each_s = tokens / np.maximum([each.seconds for each in whole], 1e-9) if whole else np.zeros(0)
  counted = None if server is None else server_report(server)
  return {
    "devices": len(done),
    "seconds": seconds,
    "tokens": int(tokens.sum()),
    "tokens_per_s": float(tokens.sum() / seconds),
    "tokens_per_s_of_a_device": _spread(each_s),
    "fairness": _fairness(each_s),
    "open_s": _spread(opens),
    "calls": len(times),
    "call_s": _spread(times),
    "think_s": float(sum(each.played.think_s for each in whole)),
    "server": counted,
    "bytes": {"up": int(sent[0]), "down": int(sent[1])},
    "link": None if network is None else _link(network, np.append(opens, times), sent, counted),
    "retries": sum(each.played.retries for each in whole),
    "resumes": sum(each.played.resumes for each in whole),
    "differing": sum(each.played.differing is not None for each in whole),
    "failures": [each.failure for each in done if each.failure is not None],
    "generator_cpu": cpu_s / seconds,
  }


def _link(network: str, times: np.ndarray, sent: tuple[int, int], counted: dict[str, Any] | None) -> dict[str, Any]:
  """Seconds on the network: computed, and measured as the time of calls without the server's own time, if known.

  Args:
    times: of all calls, handshakes included.
  """
  modelled = link_seconds(NETWORKS[network], uplink_bytes=int(sent[0]), downlink_bytes=int(sent[1]), calls=len(times)).total
  calls_s = float(times.sum())
  server_s = None
  if counted is not None:
    server_s = sum(each["mean"] * each["count"] for each in (counted["open_s"], counted["call_s"]) if each is not None)
  return {
    "link_seconds": modelled,
    "calls_s": calls_s,
    "server_s": server_s,
    "measured_s": None if server_s is None else calls_s - server_s,
  }


def _connected(connect: Callable[[], Cloud]) -> Cloud | CloudError:
  try:
    return connect()
  except CloudError as error:
    return error


def _live(clouds: Sequence[Cloud | CloudError]) -> list[Cloud]:
  return [cloud for cloud in clouds if not isinstance(cloud, CloudError)]


def _play(clouds: Sequence[Cloud | CloudError], traces: Sequence[Trace], policy: Policy) -> list[Device]:
  """Every cloud's device plays its trace, all at once."""
  found: list[Device | None] = [None] * len(clouds)
  start = threading.Event()

  def work(index: int) -> None:
    trace = traces[index % len(traces)]
    start.wait()
    calls = max(1, len(trace.calls))
    time.sleep(index / len(clouds) * sum(call.think_s for call in trace.calls) / calls)
    began = time.perf_counter()
    played, failure = None, None
    try:
      if isinstance(clouds[index], CloudError):
        raise clouds[index]
      played = play(trace, clouds[index], settings=RetrySettings(policy))
    except (CloudError, ValueError) as error:
      failure = str(error)
    except Exception as error:  # reported at the end, like other failures
      failure = f"{type(error).__name__}: {error}"
    found[index] = Device(played, time.perf_counter() - began, failure)

  threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(clouds))]
  for thread in threads:
    thread.start()
  start.set()
  for thread in threads:
    while thread.is_alive():
      thread.join(0.1)  # Ctrl-C is heard in between
  return found


def _fairness(values: np.ndarray) -> dict[str, float] | None:
  """Jain's index, 1 where all values are equal and 1/n where one has everything; and the least value over the mean."""
  if not values.any():
    return None
  jain = values.sum() ** 2 / (len(values) * (values**2).sum())
  return {"jain": float(jain), "least": float(values.min() / values.mean())}


def _spread(values: np.ndarray) -> dict[str, float] | None:
  if not len(values):
    return None
  low, high = np.percentile(values, (50, 99))
  return {"p50": float(low), "p99": float(high), "mean": float(np.mean(values))}


def _bytes(clouds: Sequence[Cloud | CloudError]) -> tuple[int, int]:
  live = _live(clouds)
  return sum(cloud.uplink_bytes for cloud in live), sum(cloud.downlink_bytes for cloud in live)


_CONNECTION = (
  click.option("--token-file", type=PATH, metavar="FILE", help="File with the secret of a token."),
  click.option("--ca", type=PATH, metavar="FILE", help="Certificates to trust (.pem)."),
  click.option("--insecure", is_flag=True, help="Connect without TLS to other machines than this one."),
  click.option("--route", is_flag=True, help="Send the stream's name as a header, for proxies."),
)


def connection_options(function: Callable) -> Callable:
  """Gives a command the options that `connection` reads."""
  return functools.reduce(lambda decorated, option: option(decorated), reversed(_CONNECTION), function)


def connection(*, token_file: Path | None, ca: Path | None, insecure: bool, route: bool) -> dict[str, Any]:
  """Arguments of `jaxspec.serving.edge.connection.connect`."""
  token = None if token_file is None else token_file.read_text().strip()
  return dict(token=token, ca=ca, insecure=insecure, route=route)


@contextlib.contextmanager
def _errors_only(name: str) -> Iterator[None]:
  """A logger without its warnings, for a while."""
  logger = logging.getLogger(name)
  level = logger.level
  logger.setLevel(logging.ERROR)
  try:
    yield
  finally:
    logger.setLevel(level)


@script(__doc__)
@click.argument("url")
@click.option("--trace", type=PATH, required=True, metavar="DIR", help="Folder that `experiments.server.record` wrote.")
@click.option("--devices", default=64, metavar="N", help="Devices of the last stage.")
@click.option("--network", type=click.Choice(tuple(NETWORKS)), help="Make every connection as slow as this network.")
@click.option("--metrics", metavar="HOST:PORT", help="Address of the server's counters.")
@click.option("--give-up", default=60.0, metavar="S", help="Seconds to try a call.")
@connection_options
def main(
  url: str, trace: Path, devices: int, network: str | None, metrics: str | None, give_up: float, **options: Any
) -> None:
  traces, where = read_traces(trace), connection(**options) | dict(patience_s=give_up)
  counters = None if metrics is None else lambda: read_metrics(metrics)
  say = lambda text: print(text, file=sys.stderr)
  kwargs = dict(devices=devices, network=network, metrics=counters, policy=Policy(give_up_s=give_up), report=say)
  with contextlib.ExitStack() as stack:
    stack.enter_context(_errors_only("jaxspec.serving"))  # failures that devices meet are counted
    try:
      first = connect(url, **where)  # says whether this is a server, and ours, before there are relays and devices
      stack.callback(first.hang_up)
      for one in traces:
        fitting(one, first)
      if counters is not None:
        counters()
      at = url
      if network is not None:
        scheme, target = split_url(url)
        at = f"{scheme}://{stack.enter_context(relaying(str(target), Shape.of(NETWORKS[network])))}"
        where |= {"server_name": target.host} if scheme == "grpcs" else {}
      found = run_load(lambda: connect(at, **where), traces, **kwargs)
    except CloudError as error:
      raise UserError(str(error)) from error
  print(json.dumps({"url": url} | found, indent=1))
  failures = [failure for stage in found["stages"] for failure in stage["failures"]]
  if differing := sum(stage["differing"] for stage in found["stages"]):
    raise UserError(f"{differing} devices got a reply that is not the recorded one")
  if failures:
    raise UserError(f"{len(failures)} devices failed; the first one: {failures[0]}")


if __name__ == "__main__":
  main()
