"""``jaxspec generate --cloud``: the same decode with the target behind a server; its weights are not loaded here.

Rows are decoded one after the other. Those that were finished when the network failed are kept, and the failure is told at
the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxspec.cli.batches import Batches
from jaxspec.cli.decoding import MethodRun, ReportFn
from jaxspec.cli.errors import UserError, interruptible
from jaxspec.cli.job import Job
from jaxspec.cli.messages import Messages, wire_of
from jaxspec.hosts.images import CaptionHost
from jaxspec.link.bitstream import MessageError
from jaxspec.link.cloud import Cloud, CloudError
from jaxspec.link.connection import connect
from jaxspec.link.journal import Journal
from jaxspec.link.over_cloud import rows_over_cloud
from jaxspec.link.profiles import check_profile, find_profile
from jaxspec.link.retries import Policy
from jaxspec.link.traffic import join_traffic
from jaxspec.link.watch import Watch


@contextlib.contextmanager
def connected(options: dict[str, Any]) -> Iterator[Cloud | None]:
  """The server that the options name; None where they name none.

  Raises:
    UserError: in one line, for whatever goes wrong on the network while it is used.
  """
  if options["cloud"] is None:
    yield None
    return
  secret = None if options["token_file"] is None else _read(options["token_file"]).decode("latin-1").strip()
  if secret is not None and not (secret.isascii() and secret.isprintable() and secret and " " not in secret):
    raise UserError(f"Must have one secret in {options['token_file']}, as `jaxspec serve --new-token` prints it")
  ca = None if options["ca"] is None else _read(options["ca"])
  kwargs = dict(token=secret, ca=ca, insecure=options["insecure"], patience_s=options["give_up"])
  try:
    cloud = interruptible(connect, options["cloud"], **kwargs)
    try:
      yield cloud
    finally:
      cloud.hang_up()
  except (CloudError, ImportError) as error:
    raise UserError(str(error)) from error


def check(job: Job, cloud: Cloud, model: bytes) -> int:
  """The number of the server's profile that goes with a job.

  Args:
    model: the name of the target's network.
  Raises:
    ValueError: in one line with what the server has, where it does not go with the job.
  """
  cloud.check_model(model)
  wire, sampling = wire_of(job), job.sampling
  told = dict(top_p=sampling.top_p, cfg_scale=sampling.cfg_scale)
  profile = find_profile(cloud.description, wire, top_k=sampling.top_k, **told)
  check_profile(cloud.description, profile.id, wire, max_len=job.max_len, **told)
  trained = job.pipeline.sampling().cfg_interval  # no profile tells it
  if sampling.is_guided and sampling.cfg_interval != trained:
    raise UserError(f"Must have --cfg-interval {trained}, by which a server guides, we instead got {sampling.cfg_interval}")
  return profile.id


def decode(
  job: Job, batches: Batches, cloud: Cloud, options: dict[str, Any], *, profile: int, report: ReportFn
) -> tuple[Batches, MethodRun]:
  """Decodes all rows one after the other.

  Args:
    profile: as `check` returned it.
  Returns:
    What was finished, as batches, and as a run; it has a ``failure`` where that is not all.
  Raises:
    CloudError, MessageError: where no row was finished.
  """
  pipeline, sampling, parts = job.pipeline, job.sampling, job.decoder().parts
  keys = jax.random.wrap_key_data(np.concatenate(batches.key_data)[: batches.num])
  condition = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: batches.num], *batches.condition)
  captions = [job.captions[prompt] for prompt in batches.prompt] if isinstance(pipeline.host, CaptionHost) else None
  kwargs = dict(drafter=parts.drafter, wire=wire_of(job), max_len=job.max_len, captions=captions, profile=profile)
  kwargs |= dict(end_token=pipeline.host.end_token, target_prefix=parts.target_prefix)
  kwargs |= {name: getattr(sampling, name) for name in ("temperature", "top_p", "cfg_scale")}
  found, failure, watch, start = [], None, Watch(), time.perf_counter()
  with contextlib.ExitStack() as stack:
    journal = None if options["journal"] is None else stack.enter_context(Journal(options["journal"]))
    kwargs |= dict(journal=journal, policy=Policy(give_up_s=options["give_up"]), watch=watch)
    rows = rows_over_cloud(parts.params.draft, keys, condition, cloud=cloud, **kwargs)

    def work():
      with pipeline.precision():  # holds for one thread
        return jax.device_get(next(rows))

    for row in range(batches.num):
      report(f"Decoding {job.noun} {row + 1} of {batches.num} by {job.method.title}, over {options['cloud']}")
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
  whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *results)
  run = MethodRun(job.decoder().method, by_batch, whole, 0.0, [seconds], failure=failure)
  run.messages = Messages(join_traffic(traffic), None, None, options["cloud"], watch.resumes)
  return batches, run


def lost(times: int) -> str:
  """One line about streams that a server lost while it decoded for us."""
  often = "once" if times == 1 else f"{times} times"
  return f"The server lost a stream {often}, as one does that is started again; the edge resumed it"


def first_rows(batches: Batches, num: int) -> Batches:
  """The first ``num`` rows in batches of the same size."""
  count = -(-num // batches.rows)
  return Batches(batches.prompt[:num], batches.sample[:num], batches.key_data[:count], batches.condition[:count])


def _read(path: Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as error:
    raise UserError(f"Cannot read {path}: {error.strerror}") from error
