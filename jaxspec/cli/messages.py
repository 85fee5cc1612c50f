"""Decodes once more by two ends that know of each other only what crosses as bytes, and counts the bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec import rng
from jaxspec.cli.batches import Batches
from jaxspec.cli.decoding import MethodRun
from jaxspec.cli.errors import UserError, interruptible
from jaxspec.cli.job import Job
from jaxspec.link import method_wires
from jaxspec.link.decode import decode_over_link
from jaxspec.link.traffic import Traffic, join_traffic
from jaxspec.link.wires import Wire
from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.token_kinds import IDS


class Messages(NamedTuple):
  """What the two ends emitted.

  Attributes:
    traffic: of all rows.
    same_tokens: whether they made the tokens of the one program; None where none ran.
    network: the network that the user named, a key of `jaxspec.link.networks.NETWORKS`.
    server: address of the target's end; None where it was in this process.
    resumes: how often the server had lost a stream.
  """

  traffic: Traffic
  same_tokens: bool | None
  network: str | None = None
  server: str | None = None
  resumes: int = 0


def has_messages(job: Job) -> bool:
  """Whether rounds of the job's method can be sent: it has messages, and tokens are ids."""
  return isinstance(job.method, (Sqs, Ciar, Plain)) and job.pipeline.host.tokens == IDS


def wire_of(job: Job) -> Wire:
  """What a round of the job's method looks like as bytes.

  Raises:
    UserError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  method, vocab, width = job.method, job.pipeline.host.vocab_size, 0
  if not has_messages(job):
    raise UserError(
      "--wire, --network and --cloud go with methods that have messages (sqs, ciar, ar) and tokens that are ids, we instead "
      f"got {method.name} for {job.pipeline.host.tokens}"
    )
  if isinstance(method, Ciar) and method.inject != "none":
    features = getattr(job.decoder().draft.config, "features", None)
    width = 0 if features is None else features.width
  try:
    return method_wires.wire_of(method, vocab, feature_width=width)
  except ValueError as error:
    raise UserError(str(error)) from error


def send(job: Job, batches: Batches, run: MethodRun, network: str | None) -> Messages:
  """Decodes all batches through messages and compares with what ``run`` made in one program."""
  parts, end_token = job.decoder().parts, job.pipeline.host.end_token
  kwargs = dict(drafter=parts.drafter, verifier=parts.verifier, wire=wire_of(job), max_len=job.max_len)
  kwargs |= dict(end_token=end_token, target_prefix=parts.target_prefix)

  def work(key_data, condition):
    with job.pipeline.context():  # holds for one thread
      return decode_over_link(parts.params, rng.of_key_data(key_data), condition, **kwargs)

  decoded = [interruptible(work, *batch) for batch in zip(batches.key_data, batches.condition)]
  tokens = np.concatenate([np.asarray(result.tokens) for result, _ in decoded])[: run.num]
  traffic = join_traffic([traffic for _, traffic in decoded], run.num)
  return Messages(traffic, bool((tokens == run.result.tokens).all()), network)
