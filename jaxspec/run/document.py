"""Results as one JSON document: settings, versions, figures, and every row."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxspec.core.network import Network
from jaxspec.run.figures import figures, speedup
from jaxspec.run.generation import Generation, per_row
from jaxspec.run.job import Job, draft_name


def document(runs: Sequence[Generation], files: Mapping[str, Any]) -> dict[str, Any]:
  """Settings, versions, figures, and counters and tokens of every row.

  Args:
    runs: results of the same rows; the first gives the settings.
    files: written files, by name.
  """
  job, batches = runs[0].job, runs[0].batches
  by_method = {run.name: figures(run) for run in runs}
  rows = []
  for index, (prompt, sample) in enumerate(zip(batches.prompt, batches.sample)):
    row = {"prompt": job.captions[prompt], "prompt_index": int(prompt), "sample": int(sample)}
    if job.noun == "text":
      row["prompt_tokens"] = int(np.sum(job.condition.mask[prompt]))
    rows.append(row | {run.name: _row(run, index) for run in runs})
  cloud = {"cloud": by_method[runs[0].name]["cloud"]} if "cloud" in by_method[runs[0].name] else {}
  return {
    "settings": job.settings(),
    "networks": _networks(job),
    "max_tokens": job.max_len,
    "batch": {"rows": batches.rows, "batches": len(batches), f"{job.noun}s": batches.num},
    "methods": by_method,
    **cloud,
    "speedup": speedup(runs),
    f"{job.noun}s": rows,
    "warnings": job.warnings,
    "files": {name: str(path) for name, path in files.items()},
    **environment(),
  }


def _row(run: Generation, index: int) -> dict[str, Any]:
  """Counters of one row; its tokens if they are discrete or scales, and its text."""
  row: dict[str, Any] = {name: int(values[index]) for name, values in per_row(run.counters).items()}
  tokens = run.result.tokens[index, : run.result.lengths[index]]
  if tokens.ndim > 1:
    is_map = np.issubdtype(tokens.dtype, np.integer)
    return row | ({"scales": [one[one >= 0].tolist() for one in np.asarray(tokens)]} if is_map else {})
  if run.texts is not None:
    row |= {"text": run.texts[index], "ended": int(tokens[-1]) in (run.family.end_token or ())}
  return row | {"tokens": tokens.tolist()}


def _networks(job: Job) -> dict[str, Any]:
  """Sources of the networks."""
  family, draft = job.pipeline.family, job.decoder.draft
  parts = {name: str(part.path) for name, part in vars(family).items() if isinstance(part, Network)}
  name = draft_name(job.method)
  path = name
  if draft is not None and name is not None and name in job.pipeline.drafts:
    path = str(job.pipeline.drafts.loaded(name).path)
  return {"source": job.pipeline.name, **parts, "draft": path, "draft_guidance": draft is None or draft.is_guided}


def environment() -> dict[str, Any]:
  """Device and versions."""
  device = jax.devices()[0]
  return {
    "device": {"platform": device.platform, "kind": device.device_kind, "machine": platform.machine()},
    "versions": {
      "python": platform.python_version(),
      "jaxspec": importlib.metadata.version("jaxspec-decoding"),
      "jax": jax.__version__,
    },
  }
