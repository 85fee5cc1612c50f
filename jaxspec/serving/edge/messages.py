"""Decodes once more by two ends that know of each other only what crosses as bytes, and counts the bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxspec.core import rng
from jaxspec.core.token_kinds import IDS
from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.serving.edge.link_decode import decode_over_link
from jaxspec.serving.wire import method_codecs
from jaxspec.serving.wire.link_model import LATENCY_RULES, NETWORKS, link_seconds
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.traffic import Traffic, join_traffic


class Messages(NamedTuple):
  """What the two ends emitted.

  Attributes:
    traffic: of all rows.
    same_tokens: whether they made the tokens of the one program; None where none ran.
    network: the network that the user named, a key of `jaxspec.serving.wire.link_model.NETWORKS`.
    server: address of the target's end; None where it was in this process.
    resumes: how often the server had lost a stream.
  """

  traffic: Traffic
  same_tokens: bool | None
  network: str | None = None
  server: str | None = None
  resumes: int = 0

  def figures(self, run: Generation) -> dict[str, Any]:
    """Traffic of all rows, ratios over the tokens that rounds committed (token 0 apart), seconds on every network."""
    emitted = {name: int(np.sum(values)) for name, values in self.traffic._asdict().items()}
    committed = run.num_tokens - run.num
    over = lambda value: value / committed if committed else None
    return {
      "same_tokens": self.same_tokens,
      "server": self.server,
      "resumes": self.resumes,
      "traffic": emitted,
      "coded_bits_per_token": over(emitted["coded_bits"]),
      "uplink_bytes_per_token": over(emitted["uplink_bytes"]),
      "downlink_bytes_per_token": over(emitted["downlink_bytes"]),
      "network_s": {name: self._seconds_on(name, run) for name in NETWORKS},
    }

  def _seconds_on(self, name: str, run: Generation) -> dict[str, float]:
    """By the bytes of the transport where it counts them, else by those of the frames."""
    calls = int(np.sum(run.counters.target_calls))
    up, down = self.traffic.transport_bytes
    if not up + down:
      up, down = self.traffic.uplink_bytes.sum(), self.traffic.downlink_bytes.sum()
    sizes = dict(uplink_bytes=int(up), downlink_bytes=int(down), calls=calls)
    return {rule: link_seconds(NETWORKS[name], latency_is=rule, **sizes).total for rule in LATENCY_RULES}


def has_messages(job: Job) -> bool:
  """Whether rounds of the job's method can be sent: it has messages, and tokens are ids."""
  return isinstance(job.method, (Sqs, Ciar, Plain)) and job.pipeline.host.tokens == IDS


def wire_of(job: Job) -> Wire:
  """What a round of the job's method looks like as bytes.

  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  method, vocab, width = job.method, job.pipeline.host.vocab_size, 0
  if not has_messages(job):
    raise ValueError(
      "--wire, --network and --cloud go with methods that have messages (sqs, ciar, ar) and tokens that are ids, we instead "
      f"got {method.name} for {job.pipeline.host.tokens}"
    )
  if isinstance(method, Ciar) and method.inject != "none":
    features = getattr(job.decoder.draft.config, "features", None)
    width = 0 if features is None else features.width
  try:
    return method_codecs.wire_of(method, vocab, feature_width=width)
  except ValueError as error:
    raise ValueError(str(error)) from error


def send(run: Generation, network: str | None = None) -> Messages:
  """Decodes all batches of a run once more through messages, and compares with what it made in one program."""
  job, parts = run.job, run.job.decoder.parts
  end_token = job.pipeline.host.end_token
  kwargs = dict(drafter=parts.drafter, verifier=parts.verifier, wire=wire_of(job), max_len=job.max_len)
  kwargs |= dict(end_token=end_token, target_prefix=parts.target_prefix)
  decoded = []
  with job.pipeline.context():
    for key_data, condition in zip(run.batches.key_data, run.batches.condition):
      decoded.append(decode_over_link(parts.params, rng.of_key_data(key_data), condition, **kwargs))
  tokens = np.concatenate([np.asarray(result.tokens) for result, _ in decoded])[: run.num]
  traffic = join_traffic([traffic for _, traffic in decoded], run.num)
  return Messages(traffic, bool((tokens == run.tokens).all()), network)
