"""Capacity of a server in devices, by calculation: ``python -m experiments.capacity``.

    python -m experiments.capacity                                        # the tables of docs/capacity.md
    python -m experiments.capacity --set params=1.1e9 --set max_rows=32   # for other networks and machines

1. A step takes the longer of reading the weights once and computing ``M W`` inputs, plus reading, writing and reading the
   caches of its ``M`` rows.
2. A device drafts and waits for the link, ``Z`` seconds a call, then for half a step and its own step. With ``a`` of them at
   once a server has ``a / (Z + 1.5 t)`` calls a second; it is filled to 0.7 of its capacity, or until its memory is full.
3. A simulation with the scheduler of the server confirms ``1.5 t`` up to this load.
4. Three ways to decode with the same accelerator are compared: plain decoding, speculation with the draft network on the
   accelerator too, and speculation with the draft network on the devices.

Figures are rounded to two digits before further use. Nothing is measured here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from experiments.server.simulation import Load, Simulated, simulate
from jaxspec.core.command_line import script, set_option
from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.serving.server.scheduler import Policy
from jaxspec.serving.wire.link_model import NETWORKS

FLEETS = (10**3, 10**5, 10**7)
LOADS = (0.3, 0.5, 0.7, 0.9, 1.1)
DRAFTS = (1, 2, 4, 7)
_SHARES = ("share", "fill", "acceptance")
# Bytes of a single call besides its frames: protobuf, HTTP/2 and gRPC, without a token and a routing header; and TLS.
CALL_UP, CALL_DOWN, TLS = 81, 68, 22


@dataclasses.dataclass(frozen=True)
class Capacity:
  """A network, a machine, and their use.

  Attributes:
    params: weights of the network.
    layers, kv_heads, head: of its cache; ``slots`` of a row, ``bytes`` of a number.
    bandwidth: bytes a second of the accelerator's memory; ``flops`` operations a second; ``memory`` bytes.
    max_rows: rows M of a step; ``width`` inputs W of a row.
    think_s: Z, seconds of drafting and of the link in a call.
    share: share of devices that decode at a time.
    fill: share of the capacity of a server.
    frame_up, frame_down: bytes of the frames of a call.
    call_ms: of a core of the server, for gRPC, TLS and protobuf of a call.
    read_ms: the same, for reading a frame into arrays (`bench:reading`).
    cell: most replicas behind one proxy.
    acceptance: conditional probability of accepting a draft, by default that of the shipped pair of language models.
    draft_share: a draft pass over a plain pass of the target on the same accelerator; the same pair.
    device_pass_s: a draft pass on a device.
  """

  params: float = 8e9
  layers: int = 32
  kv_heads: int = 8
  head: int = 128
  slots: int = 1024
  bytes: int = 2
  bandwidth: float = 4.8e12
  flops: float = 0.5e15
  memory: float = 141e9
  max_rows: int = 64
  width: int = 8
  think_s: float = 0.080
  share: float = 0.1
  fill: float = 0.7
  frame_up: int = 400
  frame_down: int = 20
  call_ms: float = 0.7
  read_ms: float = 0.5
  cell: int = 50
  acceptance: float = 0.71
  draft_share: float = 0.25
  device_pass_s: float = 0.005

  def __post_init__(self):
    for name, value in dataclasses.asdict(self).items():
      if not (math.isfinite(value) and value > 0):
        raise ValueError(f"Must have {name} above 0, we instead got {value}")
      if name in _SHARES and value > 1:
        raise ValueError(f"Must have {name} of at most 1, we instead got {value}")
    if self.at_once < 1:
      raise ValueError(f"Must have memory for the weights and a row, we instead got {self.memory:.3g} bytes")

  @property
  def weights_bytes(self) -> float:
    """Of all weights."""
    return self.params * self.bytes

  @property
  def row_bytes(self) -> float:
    """Of the cache of a row."""
    return 2.0 * self.layers * self.kv_heads * self.head * self.slots * self.bytes

  @property
  def step_s(self) -> float:
    """Seconds t of a step."""
    compute_s = 2 * self.params * self.max_rows * self.width / self.flops
    return max(self.weights_bytes / self.bandwidth, compute_s) + 3 * self.max_rows * self.row_bytes / self.bandwidth

  @property
  def calls_per_s(self) -> float:
    """Most calls c of a server."""
    return self.max_rows / self.step_s

  @property
  def round_s(self) -> float:
    """Seconds from one call of a device to its next."""
    return self.think_s + 1.5 * self.step_s

  @property
  def at_once(self) -> float:
    """Devices a of one server that decode at a time."""
    return min(self.fill * self.calls_per_s * self.round_s, (self.memory - self.weights_bytes) / self.row_bytes)


class Speculation(NamedTuple):
  """Full steps with K drafts in a round.

  Attributes:
    tokens: of a round.
    on_server, on_devices: tokens a second of a server, by the place of the draft network.
    server_s: seconds for a token of a row, all on the server; ``networks_s`` over each network.
    pays_below_s: the exchange at which a token takes as long as in plain decoding; below 0: none.
  """

  tokens: float
  on_server: float
  on_devices: float
  server_s: float
  networks_s: tuple[float, ...]
  pays_below_s: float


def speculation(capacity: Capacity, drafts: int) -> Speculation:
  """Rounds of ``drafts`` drafts and a step of one more input."""
  c, plain_s = capacity, dataclasses.replace(capacity, width=1).step_s
  step_s, tokens = dataclasses.replace(c, width=drafts + 1).step_s, expected_tokens(c.acceptance, drafts)
  round_s, here_s = step_s + drafts * c.draft_share * plain_s, step_s + drafts * c.device_pass_s
  latency = tuple((here_s + network.latency_s) / tokens for network in NETWORKS.values())
  per_s = lambda seconds: c.max_rows * tokens / seconds
  return Speculation(tokens, per_s(round_s), per_s(step_s), round_s / tokens, latency, tokens * plain_s - here_s)


class Fleet(NamedTuple):
  """Requirements of a number of devices."""

  devices: int
  at_once: float
  replicas: int  # without the spare
  calls_per_s: float
  up_bps: float
  down_bps: float
  cores: int


def fleet(capacity: Capacity, devices: int) -> Fleet:
  """Requirements of ``devices``."""
  active = capacity.share * devices
  calls = active / capacity.round_s
  replicas = math.ceil(active / two_digits(capacity.at_once))
  if replicas > capacity.cell:
    replicas = capacity.cell * math.ceil(replicas / capacity.cell)
  up, down = (8 * calls * (frame + around + TLS) for frame, around in
              ((capacity.frame_up, CALL_UP), (capacity.frame_down, CALL_DOWN)))  # fmt: skip
  cores = math.ceil(1e-3 * two_digits(calls) * (capacity.call_ms + capacity.read_ms))
  return Fleet(devices, active, replicas, calls, up, down, cores)


def simulated(capacity: Capacity, devices: int, *, calls: int = 8000, max_wait_s: float = 0.0, seed: int = 0) -> Simulated:
  """Devices at one server with steps of constant time."""
  load, policy = Load(devices, capacity.think_s), Policy(capacity.max_rows, max_wait_s)
  return simulate(load, lambda rows: capacity.step_s, policy, calls=calls, seed=seed)


def two_digits(value: float) -> float:
  """The number rounded to two significant digits."""
  return float(f"{value:.1e}")


def short(value: float) -> str:
  """A number with two digits; millions as such."""
  value = two_digits(value)
  if value >= 1e6:
    return f"{value / 1e6:g} M"
  return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def report(capacity: Capacity) -> str:
  """The tables in Markdown."""
  c, step_ms, at_once = capacity, two_digits(capacity.step_s * 1e3), two_digits(capacity.at_once)
  lines = [
    f"A row has {c.row_bytes / 1e6:,.0f} MB of cache. A step of {c.max_rows} rows with {c.width} inputs each takes "
    f"t = {step_ms:g} ms, so a server answers at most c = {short(c.calls_per_s)} calls a second. "
    f"a = {at_once:g} devices decode at once, with {two_digits(at_once * c.row_bytes / 1e9):g} GB of caches.",
    "",
    "| devices | at once | replicas | calls/s | up, Mbit/s | down, Mbit/s | cores for calls |",
    "|---|---|---|---|---|---|---|",
  ]
  for devices in FLEETS:
    found = fleet(c, devices)
    cells = found.replicas // c.cell
    replicas = f"{found.replicas:,} in {cells} cells" if found.replicas > c.cell else f"{found.replicas} + 1"
    figures = (found.at_once, found.calls_per_s, found.up_bps / 1e6, found.down_bps / 1e6)
    active, calls, up, down = map(short, figures)
    lines.append(f"| {short(devices)} | {active} | {replicas} | {calls} | {up} | {down} | {found.cores:,} |")
  lines += ["", *_simulated(c), "", *_places(c)]
  return "\n".join(lines) + "\n"


def _simulated(c: Capacity) -> list[str]:
  """The table of simulations."""
  full = c.calls_per_s * c.round_s
  lines = [
    "| devices | of a full server | calls/s, on paper | simulated | rows of a step | call, median ms | p99 ms |",
    "|---|---|---|---|---|---|---|",
  ]
  for load in LOADS:
    devices = max(1, round(load * full))
    on_paper, found = min(devices / c.round_s, c.calls_per_s), simulated(c, devices)
    times = f"{found.median_s * 1e3:.0f} | {found.p99_s * 1e3:.0f}"
    lines.append(f"| {devices} | {load:.0%} | {short(on_paper)} | {short(found.calls_per_s)} | {found.rows:.0f} | {times} |")
  now, later = (simulated(c, 8, max_wait_s=wait_s) for wait_s in (0.0, c.step_s))
  lines += [
    "",
    f"With 8 devices, calls that wait up to a step for others are answered after {later.median_s * 1e3:.0f} ms (median) "
    f"instead of {now.median_s * 1e3:.0f} ms; there are {later.calls_per_s:.0f} calls a second instead of "
    f"{now.calls_per_s:.0f}.",
  ]
  return lines


def _places(c: Capacity) -> list[str]:
  """The table of speculation by the place of the draft network."""
  plain_s = dataclasses.replace(c, width=1).step_s
  lines = [
    f"Plain decoding has {short(c.max_rows / plain_s)} tokens a second, and {two_digits(1e3 * plain_s):g} ms per token.",
    "",
    "| drafts | tokens of a round | tokens/s, drafts on the server | on devices | factor | ms per token, on the server | "
    + " | ".join(f"over {name}" for name in NETWORKS)
    + " | exchange that breaks even, ms |",
    "|---|---|---|---|---|---|" + "---|" * len(NETWORKS) + "---|",
  ]
  for drafts in DRAFTS:
    found = speculation(c, drafts)
    times = " | ".join(f"{two_digits(1e3 * seconds):g}" for seconds in (found.server_s, *found.networks_s))
    below = f"{two_digits(1e3 * found.pays_below_s):g}" if found.pays_below_s > 0 else "none"
    rates = f"{short(found.on_server)} | {short(found.on_devices)} | {found.on_devices / found.on_server:.2f}"
    lines.append(f"| {drafts} | {found.tokens:.2f} | {rates} | {times} | {below} |")
  return lines


@script(__doc__)
@set_option
def main(assignments: tuple[str, ...]) -> None:
  from jaxspec.core.overrides import override

  print(report(override(Capacity(), assignments)), end="")


if __name__ == "__main__":
  main()
