"""``jaxspec generate --cloud``: the same decode with the target behind a server; its weights are not loaded here.

Rows are decoded one after the other. Those that were finished when the network failed are kept, and the failure is told at
the end.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import jax
import numpy as np

from jaxspec.cli.errors import UserError, interruptible
from jaxspec.core import rng
from jaxspec.render.working import Working
from jaxspec.run.batches import Batches
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.sampling import SamplingConfig
from jaxspec.serving.edge.grpc_client import GrpcCloud
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Watch
from jaxspec.serving.edge.remote_decode import rows_over_cloud
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.messages import Messages, edge_settings, rows_of, wire_of
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import Cloud, CloudError
from jaxspec.serving.wire.profiles import check_profile, find_profile
from jaxspec.serving.wire.traffic import join_traffic


def check(job: Job, cloud: GrpcCloud, model: bytes) -> int:
  """The number of the server's profile that goes with a job.

  Args:
    model: the name of the target's network.
  Raises:
    ValueError: in one line with what the server has, where it does not go with the job.
  """
  cloud.check_model(model)
  wire, sampling = wire_of(job), job.sampling
  published = job.pipeline.sampling()
  assert isinstance(sampling, SamplingConfig) and isinstance(published, SamplingConfig)  # only ids have a wire
  top_p, cfg_scale = sampling.top_p, sampling.cfg_scale
  profile = find_profile(cloud.description, wire, top_k=sampling.top_k, top_p=top_p, cfg_scale=cfg_scale)
  check_profile(cloud.description, profile.id, wire, max_len=job.max_len, top_p=top_p, cfg_scale=cfg_scale)
  trained = published.cfg_interval  # no profile tells it
  if sampling.is_guided and sampling.cfg_interval != trained:
    raise UserError(f"Must have --cfg-interval {trained}, by which a server guides, we instead got {sampling.cfg_interval}")
  return profile.id


def decode(
  job: Job, batches: Batches, cloud: Cloud, options: dict[str, Any], *, profile: int, report: Working
) -> Generation:
  """Decodes all rows one after the other.

  Args:
    profile: as `check` returned it.
  Returns:
    What was finished; it has a ``failure`` where that is not all.
  Raises:
    CloudError, MessageError: where no row was finished.
  """
  pipeline, params = job.pipeline, job.decoder.parts.params.draft
  key_data, condition = rows_of(batches)
  captions = [job.captions[prompt] for prompt in batches.prompt] if pipeline.family.sends_text else None
  kwargs: dict[str, Any] = edge_settings(job) | dict(captions=captions, profile=profile)
  found, failure, watch, start = [], None, Watch(), time.perf_counter()
  with contextlib.ExitStack() as stack:
    journal = None if options["journal"] is None else stack.enter_context(Journal(options["journal"]))
    kwargs |= dict(journal=journal, policy=Policy(give_up_s=options["give_up"]), watch=watch)
    rows = rows_over_cloud(params, rng.of_key_data(key_data), condition, cloud=cloud, **kwargs)

    def work():
      with pipeline.context():  # holds for one thread
        return jax.device_get(next(rows))

    report(f"Decoding by {job.method.title}, over {options['cloud']}")
    for row in range(batches.num):
      report.step(row, batches.num, job.noun)
      try:
        found.append(interruptible(work))
      except (CloudError, MessageError) as error:
        if not found:
          raise
        failure = UserError(f"{error}: {len(found)} of {batches.num} {job.noun}s were finished")
        break
  seconds = time.perf_counter() - start
  batches = first_rows(batches, len(found))
  results, traffic = zip(*found)
  by_batch = []
  for begin in range(0, len(found), batches.rows):
    at = np.minimum(np.arange(begin, begin + batches.rows), len(found) - 1)
    by_batch.append(jax.tree.map(lambda *leaves, at=at: np.concatenate(leaves)[at], *results))
  messages = Messages(join_traffic(traffic), None, None, options["cloud"], watch.resumes)
  run = Generation(job, batches, by_batch, 0.0, [seconds], messages, failure)
  return run


def lost(times: int) -> str:
  """One line about streams that a server lost while it decoded for us."""
  often = "once" if times == 1 else f"{times} times"
  return f"The server lost a stream {often}, as one does that is started again; the edge resumed it"


def first_rows(batches: Batches, num: int) -> Batches:
  """The first ``num`` rows in batches of the same size."""
  count = -(-num // batches.rows)
  return Batches(batches.prompt[:num], batches.sample[:num], batches.key_data[:count], batches.condition[:count])
