"""A job over a cloud: its codec, its edge, and its decode over a cloud in this process."""

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
from jaxspec.methods import Ciar
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.batches import Batches
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.sampling import SamplingConfig
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.link_times import table_of
from jaxspec.serving.edge.remote_decode import RemoteOptions, decode_over_cloud
from jaxspec.serving.server.engine import Engine, EngineSettings
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire import method_codecs
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.handshake import DIGEST_BYTES
from jaxspec.serving.wire.link_model import LATENCY_RULES, NETWORKS, link_seconds
from jaxspec.serving.wire.round_codec import RoundCodec
from jaxspec.serving.wire.traffic import Traffic


class Messages(NamedTuple):
  """The traffic between edge and cloud.

  Attributes:
    traffic: of all rows.
    same_tokens: whether the tokens equal those of the decode in one program; None without one.
    network: the chosen network, a key of `jaxspec.serving.wire.link_model.NETWORKS`.
    server: address of the cloud; None for a cloud in this process.
    resumes: number of times that the server had lost a stream.
  """

  traffic: Traffic
  same_tokens: bool | None
  network: str | None = None
  server: str | None = None
  resumes: int = 0

  def figures(self, run: Generation) -> dict[str, Any]:
    """Traffic of all rows, ratios over the tokens of rounds (all but token 0), seconds on every network."""
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
    """Seconds by the bytes of the transport if it counts them, else by those of the frames."""
    calls = int(np.sum(run.counters.target_calls))
    up, down = self.traffic.transport_bytes
    if not up + down:
      up, down = self.traffic.uplink_bytes.sum(), self.traffic.downlink_bytes.sum()
    seconds = lambda rule: link_seconds(
      NETWORKS[name], uplink_bytes=int(up), downlink_bytes=int(down), calls=calls, latency_is=rule
    )
    return {rule: seconds(rule).total for rule in LATENCY_RULES}


def has_messages(job: Job) -> bool:
  """Whether the rounds of the job's method have messages, and its tokens are discrete."""
  return method_codecs.has_messages(job.method) and job.pipeline.family.space.kind == DISCRETE


def codec_of_job(job: Job) -> RoundCodec:
  """The codec of the rounds of a job's method.

  Raises:
    ValueError: for a method without messages, or a rule that needs distributions that no message holds.
  """
  method, vocab, width = job.method, job.pipeline.family.space.vocab_size, 0
  if not has_messages(job) or vocab is None:
    raise ValueError(
      f"--wire, --network and --cloud go with methods that have messages ({', '.join(method_codecs.CODECS)}) and discrete "
      f"tokens, we instead got {method.name} for {job.pipeline.family.space.noun}"
    )
  if isinstance(method, Ciar) and method.inject != "none":
    draft = job.decoder.draft
    features = getattr(None if draft is None else draft.config, "features", None)
    width = 0 if features is None else features.width
  return method_codecs.codec_of(method, vocab, feature_width=width)


def edge_of_job(job: Job, *, profile: int | None = None, measures: bool = False) -> Edge:
  """The edge of a job.

  Args:
    profile: id of the cloud's profile; None finds it.
    measures: whether drafts whose length follows the delay follow the measured one; else they have the tokens of the decode
      in one program.
  Raises:
    ValueError: as `codec_of_job`.
  """
  codec, parts, sampling = codec_of_job(job), job.decoder.parts, _sampling_of(job)
  is_guided, (drafter, _) = sampling.is_guided and job.pipeline.target.is_guided, parts.pair()
  return Edge(
    parts.params.draft,
    drafter,
    codec,
    job.max_len,
    profile=profile,
    end_token=job.pipeline.family.end_token if job.ends else None,
    target_prefix=parts.target_prefix,
    temperature=sampling.temperature,
    top_p=sampling.top_p,
    cfg_scale=sampling.cfg_scale if is_guided else 1.0,
    pipeline=getattr(job.method, "pipeline", 1),
    table_of=table_of(job.method) if measures else None,
  )


def rows_of(batches: Batches) -> tuple[np.ndarray, PyTree]:
  """Key data ``[R, 2]`` uint32 and conditions, leaves ``[R, ...]``, of all rows."""
  whole = lambda *leaves: np.concatenate(leaves)[: batches.num]
  return whole(*batches.key_data), jax.tree.map(whole, *batches.condition)


def cloud_of(job: Job) -> LocalCloud:
  """A cloud in this process with the target of a job, which verifies one row at a time.

  It has the encoded prompts of the job: a row of a `Caption` or a `Prompt` sends the number of its prompt as its text.

  Raises:
    ValueError: as `codec_of_job`, or for a target whose caches no server can hold.
  """
  pipeline, conditions = job.pipeline, jax.tree.map(np.asarray, job.condition)
  codec, sampling, read, example = codec_of_job(job), _sampling_of(job), None, conditions
  if isinstance(conditions, ClassLabels):
    example = ClassLabels(conditions.labels.max(keepdims=True))
  else:
    read = lambda sent: jax.tree.map(lambda leaf: leaf[int(sent) :][:1], conditions)
    example = read("0")
  model, params = sampling.side(pipeline.target)
  profile = ServedProfile(codec, dataclasses.replace(sampling.warp(), legal=pipeline.family.space.legal))
  width = -(-(profile.window + 2) // 8) * 8
  # Both sides have the same weights, and a step has one row: digest and independence of rows need no check.
  settings = EngineSettings(
    max_streams=1, max_rows=1, max_len=job.max_len, widths=(width,), digest=bytes(DIGEST_BYTES), numerics="fast",
    matmul_precision=pipeline.matmul_precision,
  )  # fmt: skip
  with pipeline.context():
    return LocalCloud(Engine(params, model, [profile], example=example, read_condition=read, settings=settings))


def over_local_cloud(
  job: Job, batches: Batches, cloud: Cloud, rows: Sequence[int] | None = None
) -> tuple[DecodeResult, Traffic]:
  """Decodes rows of a job one after the other over a cloud that has its prompts.

  Args:
    cloud: of `cloud_of`, or a wrapper of it.
    rows: indices of the rows; all by default.
  Returns:
    The result, leaves ``[R, ...]``, and the traffic of frames.
  """
  chosen = np.arange(batches.num) if rows is None else np.asarray(rows)
  key_data, condition = jax.tree.map(lambda leaf: leaf[chosen], rows_of(batches))
  captions = None if isinstance(condition, ClassLabels) else [str(prompt) for prompt in batches.prompt[chosen]]
  with job.pipeline.context():
    edge = edge_of_job(job, profile=0)
    return decode_over_cloud(edge, rng.of_key_data(key_data), condition, cloud, RemoteOptions(captions))


def send(run: Generation, network: str | None = None) -> Messages:
  """Decodes all rows of a run again over a cloud in this process, and compares the tokens with those of the run."""
  found, traffic = over_local_cloud(run.job, run.batches, cloud_of(run.job))
  return Messages(traffic, bool((found.tokens == run.tokens).all()), network)


def _sampling_of(job: Job) -> SamplingConfig:
  """The sampling settings of a job of discrete tokens."""
  assert isinstance(job.sampling, SamplingConfig), "discrete tokens have these settings"
  return job.sampling
