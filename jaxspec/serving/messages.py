"""A job whose rounds cross as bytes: its codec, the settings of its edge, and its decode over a cloud in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.state import DecodeResult
from jaxspec.core.token_kinds import DISCRETE
from jaxspec.core.types import PyTree
from jaxspec.methods import Ciar, Plain, Sqs
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.batches import Batches
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server.engine import Engine
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire import method_codecs
from jaxspec.serving.wire.cloud import DIGEST_BYTES, Cloud
from jaxspec.serving.wire.link_model import LATENCY_RULES, NETWORKS, link_seconds
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.traffic import Traffic


class Messages(NamedTuple):
  """What crossed between edge and cloud.

  Attributes:
    traffic: of all rows.
    same_tokens: whether the tokens are those of the one program; None where none ran.
    network: the network that the user named, a key of `jaxspec.serving.wire.link_model.NETWORKS`.
    server: address of the cloud; None where it was in this process.
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
  return isinstance(job.method, (Sqs, Ciar, Plain)) and job.pipeline.family.space.kind == DISCRETE


def wire_of(job: Job) -> Wire:
  """What a round of the job's method looks like as bytes.

  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  method, vocab, width = job.method, job.pipeline.family.space.vocab_size, 0
  if not has_messages(job):
    raise ValueError(
      "--wire, --network and --cloud go with methods that have messages (sqs, ciar, ar) and discrete tokens, we instead "
      f"got {method.name} for {job.pipeline.family.space.noun}"
    )
  if isinstance(method, Ciar) and method.inject != "none":
    features = getattr(job.decoder.draft.config, "features", None)
    width = 0 if features is None else features.width
  return method_codecs.wire_of(method, vocab, feature_width=width)


def edge_settings(job: Job) -> dict[str, Any]:
  """Keyword arguments of `jaxspec.serving.edge.remote_decode.rows_over_cloud` that a job decides.

  Raises:
    ValueError: as `wire_of`.
  """
  parts, sampling = job.decoder.parts, job.sampling
  settings = dict(drafter=parts.drafter, wire=wire_of(job), max_len=job.max_len, target_prefix=parts.target_prefix)
  settings |= dict(end_token=job.pipeline.family.end_token if job.ends else None)
  is_guided = sampling.is_guided and job.pipeline.target.is_guided
  return settings | dict(
    temperature=sampling.temperature, top_p=sampling.top_p, cfg_scale=sampling.cfg_scale if is_guided else 1.0
  )


def rows_of(batches: Batches) -> tuple[np.ndarray, PyTree]:
  """Key data ``[R, 2]`` uint32 and conditions, leaves ``[R, ...]``, of all rows."""
  whole = lambda *leaves: np.concatenate(leaves)[: batches.num]
  return whole(*batches.key_data), jax.tree.map(whole, *batches.condition)


def cloud_of(job: Job) -> LocalCloud:
  """A cloud in this process that holds the target of a job and verifies one row at a time.

  It has the encoded prompts of the job: a row of a `Caption` or a `Prompt` sends the number of its prompt for its text.

  Raises:
    ValueError: as `wire_of`, or for a target whose caches no server can hold.
  """
  pipeline, conditions = job.pipeline, jax.tree.map(np.asarray, job.condition)
  wire, read, example = wire_of(job), None, conditions
  if isinstance(conditions, ClassLabels):
    example = ClassLabels(conditions.labels.max(keepdims=True))
  else:
    read = lambda sent: jax.tree.map(lambda leaf: leaf[int(sent) :][:1], conditions)
    example = read("0")
  model, params = job.sampling.side(pipeline.target)
  profile = ServedProfile(wire, dataclasses.replace(job.sampling.warp(), legal=pipeline.family.space.legal))
  width = -(-(profile.window + 2) // 8) * 8
  # Both sides hold the same weights, and one row has no neighbours: neither a digest nor independence needs a check.
  sizes = dict(max_streams=1, max_rows=1, max_len=job.max_len, widths=(width,), digest=bytes(DIGEST_BYTES), numerics="fast")
  with pipeline.context():
    engine = Engine(
      params, model, [profile], example=example, read_condition=read, matmul_precision=pipeline.matmul_precision, **sizes
    )
  return LocalCloud(engine)


def over_local_cloud(
  job: Job, batches: Batches, cloud: Cloud, rows: Sequence[int] | None = None
) -> tuple[DecodeResult, Traffic]:
  """Decodes rows of a job one after the other over a cloud that has its prompts.

  Args:
    cloud: that of `cloud_of`, or one around it.
    rows: which of the rows; all by default.
  Returns:
    The result, leaves ``[R, ...]``, and the traffic of frames.
  """
  rows = np.arange(batches.num) if rows is None else np.asarray(rows)
  key_data, condition = jax.tree.map(lambda leaf: leaf[rows], rows_of(batches))
  captions = None if isinstance(condition, ClassLabels) else [str(prompt) for prompt in batches.prompt[rows]]
  with job.pipeline.context():
    kwargs = dict(cloud=cloud, captions=captions, profile=0, **edge_settings(job))
    return decode_over_cloud(job.decoder.parts.params.draft, rng.of_key_data(key_data), condition, **kwargs)


def send(run: Generation, network: str | None = None) -> Messages:
  """Decodes all rows of a run once more over a cloud in this process, and compares with the tokens of the one program."""
  found, traffic = over_local_cloud(run.job, run.batches, cloud_of(run.job))
  return Messages(traffic, bool((found.tokens == run.tokens).all()), network)
