"""What ``jaxspec generate --method ciar`` adds: the messages of a decode, and how often the cloud was called."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from jaxspec.cli.decoding import Batches, MethodRun, median_s
from jaxspec.cli.errors import UserError
from jaxspec.cli.settings import Settings
from jaxspec.cli.sources import Source
from jaxspec.decode.gated import law_codec, pass_widths
from jaxspec.link.gated_driver import GatedTraffic, decode_gated_over_link
from jaxspec.link.networks import LATENCY_RULES, NETWORKS, link_seconds
from jaxspec.metrics.cloud_calls import cloud_calls, cloud_passes


def check_messages(settings: Settings) -> None:
  """Refuses methods that have no messages, and a rule that needs laws that no message holds."""
  if settings.parts.drafter != "interval":
    raise UserError(f"--network goes with --method ciar, the method that calls a cloud; we instead got {settings.method}")
  if settings.verify == "lantern":
    raise UserError("Must have --verify exact or greedy with --network: the laws LANTERN reads are not sent")


def send_messages(source: Source, batches: Batches, run: MethodRun) -> GatedTraffic:
  """Decodes once more with both ends apart, and counts what crosses; leaves ``[pictures]``."""
  settings = source.settings
  params, drafter, verifier = source.assemble(settings)
  vocab = source.target.config.vocab_size
  parts = []
  with jax.default_matmul_precision(settings.matmul_precision):
    for key_data, condition in zip(batches.key_data, batches.condition):
      _, traffic = decode_gated_over_link(
        params, jax.random.wrap_key_data(key_data), condition, drafter=drafter, verifier=verifier,
        codec=law_codec(vocab) if settings.verify == "exact" else None, vocab=vocab, window=settings.gamma,
        max_len=source.num_tokens, end_token=source.end_token,
        feature_width=0 if settings.inject == "none" else source.interval_features.width,
      )  # fmt: skip
      parts.append(traffic)
  num = len(batches.prompt)
  return GatedTraffic(*(np.concatenate(leaves)[:num] for leaves in zip(*parts)))


def gated_figures(settings: Settings, run: MethodRun, traffic: GatedTraffic | None) -> dict[str, Any]:
  """Calls, shares and bytes as plain numbers."""
  figures = cloud_calls(run.result)._asdict()
  low, high = figures["interval"]
  # JSON has no infinity: no call at all, or one picture without a spread.
  figures["interval"] = [low, high] if np.isfinite(high) else None
  figures["steps_cloud"] = figures["steps_cloud"] if np.isfinite(figures["steps_cloud"]) else None
  figures["cloud_passes"] = _passes(settings, run)
  figures["tokens_sent"] = int(np.sum(run.result.report.sent))
  if traffic is not None:
    figures["traffic"] = {name: int(values.sum()) for name, values in traffic._asdict().items()}
    figures["network_s"] = {name: _seconds_on(name, run, traffic) for name in NETWORKS}
  return figures


def _passes(settings: Settings, run: MethodRun) -> int:
  return int(cloud_passes(run.result, window=settings.gamma, widest=pass_widths(settings.gamma)[-1]).sum())


def _seconds_on(name: str, run: MethodRun, traffic: GatedTraffic) -> dict[str, float]:
  calls = int(np.sum(run.result.counters.target_calls))
  sizes = dict(uplink_bytes=int(traffic.uplink_bytes.sum()), downlink_bytes=int(traffic.downlink_bytes.sum()), calls=calls)
  return {rule: link_seconds(NETWORKS[name], latency_is=rule, **sizes).total for rule in LATENCY_RULES}


def print_gated(
  console: Console, source: Source, runs: list[MethodRun], traffic: GatedTraffic | None, network: str | None
) -> None:
  """The cloud's share of the work, and the time of its messages on a network."""
  run, num = runs[0], len(runs[0].result.lengths)
  figures = cloud_calls(run.result)
  table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
  table.add_row("cloud calls per token", f"{figures.call_rate:.1%}", f"{1 - figures.call_rate:.0%} saved")
  passes = _passes(source.settings, run) / num
  table.add_row(f"cloud passes per {source.noun}", f"{passes:,.0f}", "long backlogs take several")
  table.add_row("decided by the device", f"{figures.settled:.1%}")
  table.add_row("verified by the cloud", f"{figures.accepted:.1%}")
  table.add_row("drawn by the cloud", f"{figures.by_cloud:.1%}")
  if traffic is not None:
    up, down = (int(x.sum()) / num for x in (traffic.uplink_bytes, traffic.downlink_bytes))
    table.add_row(f"bytes per {source.noun}", f"{up:,.0f} up", f"{down:,.0f} down")
    seconds = _seconds_on(network, run, traffic)
    whole = median_s(run) / num
    for rule, words in (("rtt_per_call", "latency once a call"), ("one_way", "latency each way")):
      on_link = seconds[rule] / num
      table.add_row(f"{network}, {words}", f"{on_link:.2f} s", f"{on_link + whole:.2f} s with the computing")
  console.print(table)
  console.print()
