"""Decodes once more by two ends that know of each other only what crosses as bytes, and counts the bytes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxspec.cli.batches import Batches
from jaxspec.cli.decoding import MethodRun
from jaxspec.cli.errors import UserError, interruptible
from jaxspec.cli.job import Job
from jaxspec.link.ciar_wire import CiarWire
from jaxspec.link.draft_endpoint import decode_over_link
from jaxspec.link.sqs_wire import PlainWire, SqsWire
from jaxspec.link.traffic import Traffic, join_traffic
from jaxspec.link.wires import Wire
from jaxspec.methods import Ciar, Plain, Sqs


class Messages(NamedTuple):
  """What the two ends emitted.

  Attributes:
    traffic: of all rows.
    same_tokens: whether they made the tokens of the one program.
    network: the network that the user named, a key of `jaxspec.link.networks.NETWORKS`.
  """

  traffic: Traffic
  same_tokens: bool
  network: str | None


def wire_of(job: Job) -> Wire:
  """What a round of the job's method looks like as bytes.

  Raises:
    UserError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  method, vocab = job.method, job.pipeline.host.vocab_size
  if isinstance(method, Sqs):
    return SqsWire(method.codec(vocab), method.max_drafts)
  if isinstance(method, Plain) and vocab is not None:
    return PlainWire(vocab)
  if not isinstance(method, Ciar):
    raise UserError(f"--wire and --network go with methods that have messages (sqs, ciar, ar), we instead got {method.name}")
  if method.verify == "lantern" or (method.verify == "exact" and not method.draws_sparse):
    raise UserError(
      "Must have --verify greedy, or exact with sparse draws, to send messages: other distributions are not sent"
    )
  features = getattr(job.decoder().draft.config, "features", None)
  width = 0 if method.inject == "none" or features is None else features.width
  return CiarWire(vocab, method.gamma, method.codec(vocab) if method.verify == "exact" else None, width)


def send(job: Job, batches: Batches, run: MethodRun, network: str | None) -> Messages:
  """Decodes all batches through messages and compares with what ``run`` made in one program."""
  parts, end_token = job.decoder().parts, job.pipeline.host.end_token
  kwargs = dict(drafter=parts.drafter, verifier=parts.verifier, wire=wire_of(job), max_len=job.max_len)
  kwargs |= dict(end_token=end_token, target_prefix=parts.target_prefix)

  def work(key_data, condition):
    with job.pipeline.precision():  # holds for one thread
      return decode_over_link(parts.params, jax.random.wrap_key_data(key_data), condition, **kwargs)

  decoded = [interruptible(work, *batch) for batch in zip(batches.key_data, batches.condition)]
  tokens = np.concatenate([np.asarray(result.tokens) for result, _ in decoded])[: run.num]
  traffic = join_traffic([traffic for _, traffic in decoded], run.num)
  return Messages(traffic, bool((tokens == run.result.tokens).all()), network)
