"""Files that ``jaxspec generate`` writes for other commands to read."""

from __future__ import annotations

from pathlib import Path

from jaxspec.cli.decoding import MethodRun
from jaxspec.cli.errors import UserError
from jaxspec.cli.job import Job
from jaxspec.cli.outputs import write_whole
from jaxspec.cli.report import finite
from jaxspec.hosts.base import Encoded
from jaxspec.hosts.features import write_features
from jaxspec.models.conditions import Caption
from jaxspec.recorded_acceptance import RecordedAcceptance


def save_features(path: Path, encoded: Encoded) -> None:
  """Features of prompts, for ``--features``.

  Raises:
    UserError: for networks that read prompts otherwise.
  """
  if not isinstance(encoded.condition, Caption):
    raise UserError("--save-features goes with networks that read prompts through a text encoder")
  write_whole(path, lambda work: write_features(work, encoded.condition, encoded.captions))


def save_acceptance(path: Path, job: Job, run: MethodRun) -> None:
  """The accepted drafts of every round, for ``jaxspec bench-model --acceptance``."""
  source = finite({"networks": job.pipeline.name, "max_tokens": job.max_len, **job.settings()})
  found = RecordedAcceptance.of(job.decoder(), run.result, source)
  write_whole(path, lambda work: work.write_text(found.as_json(), encoding="utf-8"))
