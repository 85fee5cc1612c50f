"""Time of a picture on 5G, 4G and WiFi, through real messages (CIAR, arXiv 2603.25463, Tables 8 and 9).

Command (10 minutes on two idle cores where `experiments.ciar_comparison` has run, else a search more)::

    python -m experiments.ciar_networks --device inter-2

Every row decodes pictures one at a time by two ends in one process that know of each other only what crosses as bytes. Bytes
are those of the emitted messages, seconds of device and cloud are wall clock between them (prefills included: they are true
totals), and the network adds ``latency + size / bandwidth``, with the latency counted once a call or each way.

Rows: the cloud alone (it needs no messages but one; the row shows what asking for every token would cost), every token
verified, CIAR at 30 % calls, and the same with ids alone on the uplink (rule ``greedy``). LANTERN's relaxed rule reads laws
that no message here holds: its row takes calls and drafts from its decode, ids-only messages of the real format, and the
seconds per call and per device pass of the row "every token verified".

Published (ms, LANTERN and CIAR): 5G 16023 and 6794, 4G 33881 and 13035, WiFi 20216 and 8411. These sums have no payload in
them, and their call ratio of 0.38 is not that of the paper's main table.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.ciar_rows import CLOSED, OPEN, RHO, GatedBench, GatedRun, Row, placed
from experiments.method_quality import Setting
from jaxspec.cli import compilation_cache, decoding
from jaxspec.decode.gated import law_codec
from jaxspec.link.gated_driver import decode_gated_over_link
from jaxspec.link.gated_message import GatedWire, write_gated
from jaxspec.link.message import OVERHEAD_BYTES
from jaxspec.link.networks import LATENCY_RULES, NETWORKS, link_seconds
from jaxspec.training.overrides import override

RATE, PICTURES = 0.3, 8
REPLY_BYTES = OVERHEAD_BYTES + 4
ALONE, VERIFIED, RELAXED = "cloud alone, asked for every token", "every token verified", "every token verified, LANTERN++"
ROWS = (
  Row.gated(ALONE, tau=OPEN, rho=1.0),
  Row.gated(VERIFIED, tau=CLOSED),
  Row.gated(RELAXED, tau=CLOSED, verify="lantern"),
  Row.gated("CIAR", score="interval", rho=RHO, rate=RATE),
  Row.gated("CIAR, ids alone", score="interval", rho=RHO, rate=RATE, verify="greedy"),
)


class Stopwatch:
  """Seconds of each end, read off the moments at which its messages leave; a channel of `decode_gated_over_link`."""

  def __init__(self):
    self.device = self.cloud = 0.0
    self._last = time.perf_counter()

  def _lap(self) -> float:
    before, self._last = self._last, time.perf_counter()
    return self._last - before

  def uplink(self, data: bytes) -> bytes:
    """The device is done."""
    self.device += self._lap()
    return data

  def downlink(self, data: bytes) -> bytes:
    """The cloud is done; the first reply is that of its prefill."""
    self.cloud += self._lap()
    return data

  def stop(self) -> None:
    """The device has finished the picture."""
    self.device += self._lap()


def picked(number: int) -> list[int]:
  """Which of so many pictures are drawn: far apart, so that they are not near copies of one prompt."""
  return [index * max(number // PICTURES, 1) % number for index in range(PICTURES)]


def one_picture(bench: GatedBench, setting: Setting, index: int, warm: set[Setting]) -> dict[str, float]:
  """Bytes, calls and seconds of one picture; read back if they are there. ``warm`` are the settings that have run."""
  path = bench.kept_at(setting, f".link{index}.json")
  if path.exists():
    return json.loads(path.read_text())
  source, settings = bench.source_of(setting), bench.settings(setting)
  params, drafter, verifier = source.assemble(settings)
  vocab = source.target.config.vocab_size
  batches = decoding.make_batches(source.condition, samples=1, seed=setting.seed, rows=1)
  at = picked(len(batches.key_data))[index]
  for _ in range(1 if setting in warm else 2):  # the first decode of a setting compiles
    watch = Stopwatch()
    with jax.default_matmul_precision(settings.matmul_precision):
      result, traffic = decode_gated_over_link(
        params, jax.random.wrap_key_data(batches.key_data[at]), batches.condition[at], drafter=drafter, verifier=verifier,
        codec=law_codec(vocab) if settings.verify == "exact" else None, vocab=vocab, window=settings.gamma,
        max_len=source.num_tokens, uplink=watch.uplink, downlink=watch.downlink,
      )  # fmt: skip
      jax.block_until_ready(result)
    watch.stop()
  warm.add(setting)
  counters = {name: int(values[0]) for name, values in decoding.per_row(result.counters).items()}
  found = {name: int(values[0]) for name, values in traffic._asdict().items()}
  figures = counters | found | {"device_s": watch.device, "cloud_s": watch.cloud}
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(figures) + "\n")
  return figures


def relaxed_pictures(bench: GatedBench, setting: Setting, verified: list[dict[str, float]]) -> list[dict[str, float]]:
  """Figures of pictures whose windows LANTERN++ judges, by the costs of the row with the exact rule (module docstring)."""
  decoded, settings = bench.decode(setting), bench.settings(setting)
  source = bench.source_of(setting)
  wire = GatedWire.of(None, vocab=source.target.config.vocab_size, window=settings.gamma, max_len=source.num_tokens)
  total = {name: sum(picture[name] for picture in verified) for name in verified[0]}
  per_pass, per_call = total["device_s"] / total["draft_calls"], total["cloud_s"] / total["target_calls"]
  pictures = []
  for row in picked(len(decoded.tokens)):
    counters = {name: int(values[row]) for name, values in decoded.counters.items()}
    calls = counters["target_calls"] - 1
    drafts, more = divmod(counters["drafted"], max(calls, 1))
    sizes = [len(write_gated(0, 0, [0], [0] * (drafts + (call < more)), wire)[0]) for call in range(calls)]
    seconds = {"device_s": per_pass * counters["draft_calls"], "cloud_s": per_call * counters["target_calls"]}
    pictures.append(
      counters | {"uplink_bytes": sum(sizes), "downlink_bytes": REPLY_BYTES * (calls + 1), "exchanges": calls} | seconds
    )
  return pictures


def figures_of(name: str, setting: Setting, pictures: list[dict[str, float]], num_tokens: int) -> dict[str, Any]:
  """Means over pictures, and the time on every network; JSON."""
  mean = {key: float(np.mean([picture[key] for picture in pictures])) for key in pictures[0]}
  device_pass, cloud_call = mean["device_s"] / mean["draft_calls"], mean["cloud_s"] / max(mean["target_calls"], 1)
  networks = {}
  for network, link in NETWORKS.items():
    for rule in LATENCY_RULES:
      on_link = [
        link_seconds(
          link, uplink_bytes=p["uplink_bytes"], downlink_bytes=p["downlink_bytes"], calls=p["target_calls"], latency_is=rule
        ).total
        for p in pictures
      ]  # fmt: skip
      networks[f"{network} {rule}"] = float(np.mean(on_link)) + mean["device_s"] + mean["cloud_s"]
  kappa = device_pass / cloud_call
  return {
    "name": name, "options": dict(setting.options), "mean": mean, "seconds": networks, "kappa": kappa,
    "steps_cloud": num_tokens / max(mean["target_calls"], 1),
    "steps_with_device": num_tokens / (mean["target_calls"] + kappa * mean["draft_calls"]),
  }  # fmt: skip


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  keys = list(document["rows"][0]["seconds"])
  lines = [
    "# A picture over a network",
    "",
    f"`{document['command']}`: means of {document['pictures']} pictures, one at a time, both ends on one "
    f"{document['device']} with {document['cpus']} cores. Seconds of device and cloud are measured, those on the link are "
    "computed from emitted bytes. `rtt`: latency once a call; `one-way`: for each transmission. kappa: a device pass over a "
    "cloud call; steps: tokens per cloud call, and with device passes counted by kappa.",
    "",
    "| row | cloud calls | bytes up | bytes down | device, s | cloud, s | kappa | steps | with device | "
    + " | ".join(key.replace("rtt_per_call", "rtt").replace("one_way", "one-way") + ", s" for key in keys) + " |",
    "|" + "---|" * (9 + len(keys)),
  ]  # fmt: skip
  for row in document["rows"]:
    mean = row["mean"]
    cells = [
      row["name"], f"{mean['target_calls']:.1f}", f"{mean['uplink_bytes']:,.0f}", f"{mean['downlink_bytes']:,.0f}",
      f"{mean['device_s']:.3f}", f"{mean['cloud_s']:.3f}", f"{row['kappa']:.2f}", f"{row['steps_cloud']:.2f}",
      f"{row['steps_with_device']:.2f}", *(f"{row['seconds'][key]:.2f}" for key in keys),
    ]  # fmt: skip
    lines.append("| " + " | ".join(cells) + " |")
  lines += [f"\n{line}" for line in document["left_out"]]
  return "\n".join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--device", default="", help="device of the bundle; its first by default")
  parser.add_argument("--runs", type=Path, default=Path("runs/method_quality"))
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
  args = parser.parse_args()
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  compilation_cache.enable()
  run = override(GatedRun("ciar_networks", "A picture over a network", entries=ROWS, device=args.device), args.overrides)
  bench, rows, left_out, warm = GatedBench(run, args.runs), [], [], set()
  measured: dict[str, list[dict[str, float]]] = {}
  for row in run.entries:
    setting, line = placed(run, row)
    if setting is None:
      logging.warning(line)
      left_out.append(line)
      continue
    if row.rate is not None:
      try:
        setting = bench.matched(setting, row.rate)
      except ValueError as error:
        left_out.append(f"left out {row.name}: {error}")
        logging.warning(left_out[-1])
        continue
    if row.name == RELAXED:
      measured[row.name] = relaxed_pictures(bench, setting, measured[VERIFIED])
    else:
      measured[row.name] = [one_picture(bench, setting, index, warm) for index in range(PICTURES)]
    rows.append(figures_of(row.name, setting, measured[row.name], bench.source_of(setting).num_tokens))
  if not rows:
    return
  document = {
    "command": f"python -m experiments.ciar_networks --device {run.device}".removesuffix(" --device "),
    "pictures": PICTURES,
    "device": jax.devices()[0].device_kind,
    "cpus": os.cpu_count(),
    "networks": {name: network._asdict() for name, network in NETWORKS.items()},
    "rows": rows,
    "left_out": left_out,
  }
  args.results.mkdir(parents=True, exist_ok=True)
  (args.results / "ciar_networks.json").write_text(json.dumps(document, indent=1) + "\n")
  text = render(document)
  (args.results / "ciar_networks.md").write_text(text + "\n")
  print(text)


if __name__ == "__main__":
  main()
