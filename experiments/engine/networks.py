"""Tables of images over networks through real messages (``ciar``)."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, ClassVar

import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.cache import key_of
from experiments.engine.experiment import Lab
from experiments.engine.quality import Quality, as_json
from experiments.engine.rows import Row
from jaxspec.serving import messages
from jaxspec.serving.wire.ciar_message import CiarLimits, write_ciar
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.framing import OVERHEAD_BYTES
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume
from jaxspec.serving.wire.link_model import LATENCY_RULES, NETWORKS, link_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Networks(Quality):
  """Time of an image on 5G, 4G and WiFi, through real messages (CIAR, arXiv 2603.25463, Tables 8 and 9).

  Every row decodes images one at a time over a cloud in the same process. Bytes are those of the emitted frames. Seconds of
  edge and cloud are wall clock between them (prefills included: they are true totals). The network adds
  ``latency + size / bandwidth``, with the latency counted once a call or each way.

  No frame has the distributions of LANTERN's relaxed rule. Its row takes calls and drafts from its decode, frames of ids in
  the real format, and the seconds per call and per edge pass of the row "every token verified".
  """

  layout: str = "cloud"
  num_images: int = 8
  kind: ClassVar[str] = "networks"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench = self.bench(lab)
    measured: dict[str, list[dict[str, float]]] = {}
    rows, left_out = [], []
    for entry in self.each_placed(self.rows, bench, left_out):
      if dict(entry.options).get("verify") == "lantern":
        images = self.relaxed_images(bench, entry, next(iter(list(measured.values())[1:])))
      else:
        images = self.images(bench, entry, lab)
      measured[entry.name] = images
      rows.append(as_json(entry, bench) | times_of(images, bench.pipeline.family.space.num_tokens))
    networks = {name: network._asdict() for name, network in NETWORKS.items()}
    return {"images": self.num_images, "networks": networks, "rows": rows, "left_out": left_out}

  def picked(self, number: int) -> list[int]:
    """Indices of the drawn images, spread so that they are not near copies of one prompt."""
    return [index * max(number // self.num_images, 1) % number for index in range(self.num_images)]

  def images(self, bench: Bench, entry: Row, lab: Lab) -> list[dict[str, float]]:
    """Bytes, calls and seconds of every image; cached. The first decode of a row compiles."""
    job, batches = bench.job(entry), bench.batches(entry, 1)
    cloud = functools.cache(lambda: messages.cloud_of(job))  # if an image is missing
    is_warm = False

    def measure(at: int) -> dict[str, float]:
      nonlocal is_warm
      for _ in range(1 if is_warm else 2):
        watch = Stopwatch(cloud())
        result, traffic = messages.over_local_cloud(job, batches, watch, [at])
        watch.stop()
      is_warm = True
      counters = {name: int(getattr(result.counters, name)[0]) for name in result.counters.__dataclass_fields__}
      sent = {name: int(getattr(traffic, name)[0]) for name in ("coded_bits", "uplink_bytes", "downlink_bytes", "exchanges")}
      return counters | sent | {"edge_s": watch.edge, "cloud_s": watch.cloud}

    found = []
    for at in self.picked(len(bench.prompts)):
      name = f"link-{key_of(bench.weights(entry), bench.settings(entry) | {'image': at, 'prompts': bench.prompts})}"
      found.append(lab.clocks.get(name, lambda at=at: measure(at), again=lab.retime))
    return found

  def relaxed_images(self, bench: Bench, entry: Row, verified: list[dict[str, float]]) -> list[dict[str, float]]:
    """Figures of images whose windows LANTERN++ judges, by the costs of the row with the exact rule."""
    result, method, family = bench.decode(entry), bench.decoder(entry).method, bench.pipeline.family
    codec = CiarLimits.of(None, vocab=family.space.vocab_size, window=method.gamma, max_len=family.space.num_tokens)
    total = {name: sum(image[name] for image in verified) for name in verified[0]}
    per_pass, per_call = total["edge_s"] / total["draft_calls"], total["cloud_s"] / total["target_calls"]
    images = []
    for at in self.picked(len(bench.prompts)):
      counters = {name: int(getattr(result.counters, name)[at]) for name in result.counters.__dataclass_fields__}
      calls = counters["target_calls"] - 1
      drafts, more = divmod(counters["drafted"], max(calls, 1))
      sizes = [len(write_ciar(0, 0, [0], [0] * (drafts + (call < more)), codec)[0]) for call in range(calls)]
      traffic = {"uplink_bytes": sum(sizes), "downlink_bytes": (OVERHEAD_BYTES + 4) * (calls + 1), "exchanges": calls}
      seconds = {"edge_s": per_pass * counters["draft_calls"], "cloud_s": per_call * counters["target_calls"]}
      images.append(counters | traffic | seconds)
    return images


class Stopwatch:
  """A cloud that measures the seconds of both ends: a call ends a period of the edge, its reply one of the cloud."""

  def __init__(self, cloud: Cloud):
    self.description, self._cloud = cloud.description, cloud
    self.edge = self.cloud = 0.0
    self._last = time.perf_counter()

  def _lap(self) -> float:
    before, self._last = self._last, time.perf_counter()
    return self._last - before

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float) -> HandshakeReply:
    """See `Cloud.open`."""
    self.edge += self._lap()
    opened = self._cloud.open(handshake, resume, timeout_s=timeout_s)
    self.cloud += self._lap()
    return opened

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    """See `Cloud.verify`."""
    self.edge += self._lap()
    reply = self._cloud.verify(stream, seq, part, frame, timeout_s=timeout_s)
    self.cloud += self._lap()
    return reply

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    """See `Cloud.close`."""
    self.edge += self._lap()
    self._cloud.close(stream, timeout_s=timeout_s)
    self.cloud += self._lap()

  def stop(self) -> None:
    """The edge has finished the image."""
    self.edge += self._lap()


def times_of(images: list[dict[str, float]], num_tokens: int) -> dict[str, Any]:
  """Means over images, and the time on every network; JSON."""
  mean = {key: float(np.mean([image[key] for image in images])) for key in images[0]}
  edge_pass, cloud_call = mean["edge_s"] / mean["draft_calls"], mean["cloud_s"] / max(mean["target_calls"], 1)
  networks = {}
  for network, link in NETWORKS.items():
    for rule in LATENCY_RULES:
      on_link = [
        link_seconds(
          link, uplink_bytes=p["uplink_bytes"], downlink_bytes=p["downlink_bytes"], calls=p["target_calls"], latency_is=rule
        ).total
        for p in images
      ]  # fmt: skip
      networks[f"{network} {rule}"] = float(np.mean(on_link)) + mean["edge_s"] + mean["cloud_s"]
  kappa = edge_pass / cloud_call
  return {
    "mean": mean, "seconds": networks, "kappa": kappa, "tokens_per_call": num_tokens / max(mean["target_calls"], 1),
    "tokens_with_edge": num_tokens / (mean["target_calls"] + kappa * mean["draft_calls"]),
  }  # fmt: skip
