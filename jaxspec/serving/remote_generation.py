"""The rows of a job with the target behind a server, without the target's weights.

Rows are decoded one after the other. If a call fails, the result has the finished rows and the failure.
"""

from __future__ import annotations

import time

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.run.batches import Batches
from jaxspec.run.compile_clock import compile_clock
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.run.progress import SILENT, Progress
from jaxspec.sampling import SamplingConfig
from jaxspec.serving.edge.grpc_client import GrpcCloud
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.remote_decode import RemoteOptions, rows_over_cloud
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.messages import Messages, codec_of_job, edge_of_job, rows_of
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import Cloud, CloudError
from jaxspec.serving.wire.profiles import check_profile, find_profile
from jaxspec.serving.wire.traffic import join_traffic


def profile_for(job: Job, cloud: GrpcCloud, model: bytes) -> int:
  """The id of the server's profile that goes with a job.

  Args:
    model: digest of the target's network.
  Raises:
    ValueError: in one line with the profiles of the server, if none goes with the job.
  """
  cloud.check_model(model)
  codec, sampling = codec_of_job(job), job.sampling
  published = job.pipeline.sampling()
  assert isinstance(sampling, SamplingConfig) and isinstance(published, SamplingConfig)  # only discrete tokens have a codec
  top_p, cfg_scale = sampling.top_p, sampling.cfg_scale
  profile = find_profile(cloud.description, codec, top_k=sampling.top_k, top_p=top_p, cfg_scale=cfg_scale)
  check_profile(cloud.description, profile.id, codec, max_len=job.max_len, top_p=top_p, cfg_scale=cfg_scale)
  trained = published.cfg_interval  # no profile has it
  if sampling.is_guided and sampling.cfg_interval != trained:
    raise ValueError(f"Must have --cfg-interval {trained}, by which a server guides, we instead got {sampling.cfg_interval}")
  return profile.id


def generate_over_cloud(
  job: Job, batches: Batches, cloud: Cloud, *, profile: int, url: str, journal: Journal | None = None,
  policy: Policy = Policy(), progress: Progress = SILENT,
) -> Generation:  # fmt: skip
  """Decodes all rows one after the other.

  Args:
    profile: of `profile_for`.
    url: of the server, for figures.
    journal: file of the replies of one row, from which an interrupted decode continues.
    policy: limits of retries.
  Returns:
    The finished rows, and a ``failure`` if there are fewer than requested. Its seconds of decoding are without the edge's
    seconds of compiling; those of a server that compiles for the first call are a part of the replies.
  Raises:
    CloudError, MessageError: if no row was finished.
    ValueError: as `jaxspec.serving.edge.remote_decode.rows_over_cloud`.
  """
  pipeline = job.pipeline
  key_data, condition = rows_of(batches)
  captions = [job.captions[prompt] for prompt in batches.prompt] if pipeline.family.sends_text else None
  edge = edge_of_job(job, profile=profile, measures=True)
  found, failure, observer, start = [], None, Observer(), time.perf_counter()
  options = RemoteOptions(captions, journal, policy, observer)
  progress(f"Decoding by {job.method.title}, over {url}")
  with pipeline.context(), compile_clock() as clock:
    rows = rows_over_cloud(edge, rng.of_key_data(key_data), condition, cloud, options)
    for row in range(batches.num):
      progress.step(row, batches.num, job.noun)
      try:
        found.append(jax.device_get(next(rows)))
      except (CloudError, MessageError) as error:
        if not found:
          raise
        failure = ValueError(f"{error}: {len(found)} of {batches.num} {job.noun}s were finished")
        break
  compile_s = clock.seconds
  seconds = time.perf_counter() - start - compile_s
  batches = batches.first(len(found))
  results, traffic = zip(*found)
  by_batch = []
  for begin in range(0, len(found), batches.rows):
    at = np.minimum(np.arange(begin, begin + batches.rows), len(found) - 1)
    by_batch.append(jax.tree.map(lambda *leaves, at=at: np.concatenate(leaves)[at], *results))
  messages = Messages(join_traffic(traffic), None, None, url, observer.resumes)
  return Generation(job, batches, by_batch, compile_s, [seconds], messages, failure)
