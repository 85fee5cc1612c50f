"""Files of ``jaxspec generate`` for other commands."""

from __future__ import annotations

from pathlib import Path

from jaxspec.core.command_line import UserError
from jaxspec.families.family import Encoded
from jaxspec.families.text_features import write_features
from jaxspec.io.whole_files import write_whole
from jaxspec.models.conditions import Caption
from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.run.generation import Generation
from jaxspec.run.json_values import finite


def save_features(path: Path, encoded: Encoded) -> None:
  """Features of prompts, for ``--features``.

  Raises:
    UserError: for networks without a text encoder.
  """
  if not isinstance(encoded.condition, Caption):
    raise UserError("--save-features goes with networks that read prompts through a text encoder")
  write_whole(path, lambda work: write_features(work, encoded.condition, encoded.captions))


def save_acceptance(path: Path, run: Generation) -> None:
  """The accepted drafts of every round, for ``jaxspec bench-model --acceptance``."""
  job = run.job
  source = finite({"networks": job.pipeline.name, "max_tokens": job.max_len, **job.settings()})
  found = RecordedAcceptance.of(job.decoder, run.result, source)
  write_whole(path, lambda work: work.write_text(found.as_json(), encoding="utf-8"))
