"""Accelerators by name: memory, bandwidth and peak arithmetic, as published by their vendors.

A device is named by its kind, several devices with a count or a topology: ``h100``, ``h100:8``, ``v5e:2x4``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxspec.core.options import suggestion

# Usable share of the memory. The rest is for the runtime: its context, compiled code, fragmentation.
USABLE = 0.9


class Device(NamedTuple):
  """One accelerator.

  Attributes:
    memory: bytes.
    bandwidth: bytes per second between its memory and its arithmetic.
    bfloat16: peak operations per second of products in bfloat16, without sparsity.
    float32: the same of products in float32.
    link: bytes per second to its neighbours, in one direction.
    platform: XLA's name of its kind.
    torus: dimensions of its topologies; 0: a count of devices, fully connected.
    most: devices of the largest available torus.
    source: source of the figures.
  """

  memory: float
  bandwidth: float
  bfloat16: float
  float32: float
  link: float
  platform: str
  torus: int
  most: int
  source: str

  def peak(self, dtype: str) -> float:
    """Peak operations per second of products in a dtype."""
    return self.bfloat16 if dtype == "bfloat16" else self.float32


_GB, _TB, _T = 1e9, 1e12, 1e12


def _gpu(memory: float, bandwidth: float, bfloat16: float, float32: float, link: float, source: str) -> Device:
  return Device(memory * _GB, bandwidth * _TB, bfloat16 * _T, float32 * _T, link * _GB, "gpu", 0, 0, source)


def _tpu(memory: float, bandwidth: float, bfloat16: float, link: float, torus: int, most: int, source: str) -> Device:
  # No published peak for float32. A float32 product of full precision is six products in bfloat16.
  return Device(memory * _GB, bandwidth * _TB, bfloat16 * _T, bfloat16 / 6 * _T, link * _GB, "tpu", torus, most, source)


# NVLink and bidirectional ICI figures are halved: a ring sends in one direction while it receives in the other. Peaks with
# sparsity are halved, too. The float32 peak is that of the CUDA cores, without TF32.
DEVICES: dict[str, Device] = {
  "a100-40": _gpu(40, 1.555, 312, 19.5, 300, "NVIDIA A100 data sheet, SXM 40 GB: NVLink 600 GB/s"),
  "a100-80": _gpu(80, 2.039, 312, 19.5, 300, "NVIDIA A100 data sheet, SXM 80 GB: NVLink 600 GB/s"),
  "h100": _gpu(80, 3.35, 989, 67, 450, "NVIDIA H100 data sheet, SXM: 1,979 TFLOPS with sparsity, NVLink 900 GB/s"),
  "h200": _gpu(141, 4.8, 989, 67, 450, "NVIDIA H200 data sheet, SXM: 1,979 TFLOPS with sparsity, NVLink 900 GB/s"),
  # An eighth of 1,440 GB and 64 TB/s.
  "b200": _gpu(180, 8.0, 2250, 80, 900, "NVIDIA DGX B200 and HGX B200 data sheets: NVLink 1.8 TB/s"),
  "v5e": _tpu(16, 0.819, 197, 200, 2, 256, "cloud.google.com/tpu/docs/v5e: ICI 400 GB/s in both directions"),
  "v5p": _tpu(95, 2.765, 459, 600, 3, 8960, "cloud.google.com/tpu/docs/v5p: ICI 4,800 Gbit/s"),
  "v6e": _tpu(32, 1.6, 918, 400, 2, 256, "cloud.google.com/tpu/docs/v6e: ICI 800 GB/s in both directions"),
}


class Slice(NamedTuple):
  """Several equal devices."""

  name: str  # as given
  kind: str
  device: Device
  count: int
  topology: tuple[int, ...]  # of a torus; else (count,)


def parse_device(text: str) -> Slice:
  """``kind``, ``kind:count`` or ``kind:topology``.

  Raises:
    ValueError: for an unknown kind, or an unavailable topology.

  Example:
    >>> parse_device("v5e:2x4").count, parse_device("h100").count
    (8, 1)
  """
  kind, _, shape = text.partition(":")
  if kind not in DEVICES:
    raise ValueError(f"Must have a device in {', '.join(DEVICES)}, we instead got {kind!r}{suggestion(kind, DEVICES)}")
  device = DEVICES[kind]
  if not shape:
    return Slice(text, kind, device, 1, (1,) * max(device.torus, 1))
  sides = shape.split("x")
  if not all(side.isascii() and side.isdecimal() and int(side) for side in sides):
    example = "x".join("2" * device.torus) if device.torus else "8"
    raise ValueError(f"Must have numbers above 0 after the device, as in {kind}:{example}, we instead got {text!r}")
  topology = tuple(map(int, sides))
  if device.torus and len(topology) != device.torus:
    example = f"{kind}:{'x'.join('2' * device.torus)}"
    raise ValueError(f"Must have a topology of {device.torus} sides for {kind}, as {example}, we instead got {text!r}")
  if device.torus and math.prod(topology) > device.most:
    raise ValueError(f"Must have at most {device.most} chips of {kind}, we instead got {text!r}")
  if not device.torus and len(topology) > 1:
    raise ValueError(f"Must have a count for {kind}, as {kind}:8, we instead got {text!r}")
  return Slice(text, kind, device, math.prod(topology), topology)
