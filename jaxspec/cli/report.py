"""The figures of ``jaxspec generate`` as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from typing import Any

import jax
import numpy as np

from jaxspec.checkpoints import Checkpoint
from jaxspec.cli.batches import Batches
from jaxspec.cli.decoding import MethodRun
from jaxspec.cli.job import Job, draft_name
from jaxspec.cli.sections import sections_of


def figures(run: MethodRun) -> dict[str, Any]:
  """Every figure of one method as plain numbers."""
  total = {name: int(values.sum()) for name, values in run.counters().items()}
  tokens, seconds = run.num_tokens, run.median_s
  found = {
    "tokens": tokens,
    "run_s": seconds,
    "run_s_each": run.run_s,
    "compile_s": run.compile_s,
    "tokens_per_s": tokens / seconds,
    "acceptance": total["accepted"] / total["drafted"] if total["drafted"] else None,
    "tokens_per_target_call": tokens / total["target_calls"] if total["target_calls"] else float("inf"),
    **total,
  }
  if isinstance(run.outputs, np.ndarray):
    found |= {"pixels_s": run.pixels_s, "images_per_s": run.num / seconds}
  return found | {section.key: section.figures(run) for section in sections_of(run)}


def speedup(runs: list[MethodRun]) -> float | None:
  """Seconds per token of plain decoding over those of speculation; None if only one method ran."""
  return runs[1].token_s / runs[0].token_s if len(runs) == 2 else None


def document(job: Job, batches: Batches, runs: list[MethodRun], files: dict[str, Any]) -> dict[str, Any]:
  """Settings, versions, figures, and counters and tokens of every row; the first run is that of the job's method."""
  by_method = {run.name: figures(run) for run in runs}
  rows = []
  for index, (prompt, sample) in enumerate(zip(batches.prompt, batches.sample)):
    row = {"prompt": job.captions[prompt], "prompt_index": int(prompt), "sample": int(sample)}
    if job.noun == "text":
      row["prompt_tokens"] = int(np.sum(job.condition.mask[prompt]))
    rows.append(row | {run.name: _row(job, run, index) for run in runs})
  cloud = {"cloud": by_method[runs[0].name]["cloud"]} if "cloud" in by_method[runs[0].name] else {}
  return {
    "settings": job.settings(),
    "networks": _networks(job),
    "max_tokens": job.max_len,
    "batch": {"rows": batches.rows, "batches": len(batches.key_data), f"{job.noun}s": batches.num},
    "methods": by_method,
    **cloud,
    "speedup": speedup(runs),
    f"{job.noun}s": rows,
    "warnings": job.warnings,
    "files": {name: str(path) for name, path in files.items()},
    **environment(),
  }


def _row(job: Job, run: MethodRun, index: int) -> dict[str, Any]:
  """Counters of one row; its tokens if they are ids or maps of ids, and its text."""
  row: dict[str, Any] = {name: int(values[index]) for name, values in run.counters().items()}
  tokens = run.result.tokens[index, : run.result.lengths[index]]
  if tokens.ndim > 1:
    is_map = np.issubdtype(tokens.dtype, np.integer)
    return row | ({"maps": [one[one >= 0].tolist() for one in np.asarray(tokens)]} if is_map else {})
  if job.noun == "text":
    row |= {"text": run.outputs[index], "ended": int(tokens[-1]) in (job.pipeline.host.end_token or ())}
  return row | {"tokens": tokens.tolist()}


def _networks(job: Job) -> dict[str, Any]:
  """Where the networks come from."""
  host, draft = job.pipeline.host, job.decoder().draft
  parts = {name: str(part.path) for name, part in vars(host).items() if isinstance(part, Checkpoint)}
  name = draft_name(job.method)
  path = name if draft is None or name not in job.pipeline.drafts else str(job.pipeline.drafts.checkpoint(name).path)
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


def interval_fields(value: Any) -> Any:
  """A figure with an interval as ``value``, ``low`` and ``high``; anything else as it is."""
  return {name: getattr(value, name) for name in ("value", "low", "high")} if hasattr(value, "low") else value


def finite(value: Any) -> Any:
  """Plain Python values; numbers that JSON does not know, such as an infinite budget, become None."""
  if isinstance(value, dict):
    return {key: finite(entry) for key, entry in value.items()}
  if isinstance(value, list | tuple):
    return [finite(entry) for entry in value]
  if isinstance(value, np.generic):
    value = value.item()
  return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(document: dict[str, Any]) -> str:
  """A document of figures as text that every JSON reader takes."""
  text = json.dumps(finite(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
  try:
    text.encode()
  except UnicodeEncodeError:  # a file name of other bytes
    text = json.dumps(finite(document), indent=2, allow_nan=False) + "\n"
  return text
