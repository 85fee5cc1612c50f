"""Up to three methods with the same key, decoded round by round as a stream of events.

The method with the least time so far runs the next round. So the methods advance at equal times, as if each had the machine
for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxspec.evaluation.audit import summarize_audit
from jaxspec.rules.audited import TokenAudit
from jaxspec.run.document import document
from jaxspec.run.figures import figures
from jaxspec.run.generation import Generation
from jaxspec.run.json_values import finite, interval_fields
from jaxspec.run.run import in_turns
from jaxspec.serving import messages
from jaxspec.studio import reproduce, row_images
from jaxspec.studio.link_cost import cost_of
from jaxspec.studio.method_run import MethodRun, uncertainty
from jaxspec.studio.result_store import ComparisonResult
from jaxspec.studio.schema import ComparisonRequest
from jaxspec.studio.studio_session import Resolved, StudioSession
from jaxspec.studio.trace_count import TraceCount, counted

Event = dict[str, Any]


def compare(session: StudioSession, resolved: Resolved, stopped: Callable[[], bool]) -> Iterator[Event | ComparisonResult]:
  """Decodes all entrants.

  Args:
    stopped: whether the request is cancelled; called between rounds.
  Yields:
    Events as JSON, and last the result. A cancelled comparison ends without another event.
  """
  decodes = [MethodRun(entrant, resolved) for entrant in resolved.entrants]
  job = decodes[0].entrant.job
  names = [each.entrant.job.method.name for each in decodes]
  shape = {"captions": job.captions, "max_len": job.max_len, "methods": names}
  warnings = dict.fromkeys(warning for each in decodes for warning in each.entrant.job.warnings)
  yield {"event": "started", **shape, "warnings": list(warnings)}
  for index, each in enumerate(decodes):
    if stopped():
      return
    compiles = each.entrant.program not in session.compiled
    yield {"event": "warming", "lane": index, "compiles": compiles}
    each.warm(session)
    yield {"event": "ready", "lane": index, "compile_s": each.compile_s, "traces": each.count.traces}
  live = list(range(len(decodes)))
  while live:
    if stopped():
      return
    index = min(live, key=lambda at: decodes[at].seconds)
    found = decodes[index].step()
    if found is None:
      live.remove(index)
      continue
    yield {"event": "round", "lane": index, **found, "traces": decodes[index].count.traces}
    if (images := decodes[index].preview()) is not None:
      yield {"event": "images", "lane": index, "images": images}
  runs, found = [], []
  for index, each in enumerate(decodes):
    if stopped():
      return
    run = each.run()
    runs.append(run)
    found.append(_figures(resolved.request, run, each.count.traces))
    if job.noun == "text":
      shown = {"texts": run.texts}
    else:
      shown = {"images": [row_images.data_url(image) for image in run.need_images()]}
    yield {"event": "done", "lane": index, **shown, "figures": found[-1]}
  yield _finished(session, resolved, runs, found)


def _figures(request: ComparisonRequest, run: Generation, traces: int) -> Event:
  """Figures of a method; JSON."""
  job = run.job
  found: Event = {"method": run.name, "title": run.method.title, "is_exact": run.method.is_exact}
  if request.messages and messages.has_messages(job):
    try:
      run.messages = messages.send(run)
    except ValueError as error:
      found["no_messages"] = str(error)
  found |= figures(run)
  uncertain = uncertainty(run.result)
  found["doubts_are"] = None if uncertain is None else uncertain[0]
  found["traces"] = traces
  cost = cost_of(run, job.pipeline.family.space.vocab_size)
  found["link"] = None if cost is None else cost._asdict()
  if isinstance(run.result.metrics, TokenAudit):
    found["audit"] = _audit(run)
  if request.whole:
    found |= _whole(run)
  return finite(found)


def _audit(run: Generation) -> Event:
  """Distances of the distributions of tokens from the target's."""
  metrics = run.result.metrics
  found = summarize_audit(metrics, run.result.lengths, run.result.counters.target_calls)
  fields = found._asdict()
  return {"tv_sum": float(np.sum(metrics.tv)) / run.num} | {
    name: fields[name] if name == "worst" else interval_fields(fields[name]) for name in fields
  }


def _whole(run: Generation) -> Event:
  """The same decode in one program: its seconds, its traces, and whether its tokens are equal."""
  count = TraceCount()
  with counted(count):
    (whole,) = in_turns([run.job.but(audit=False)], run.batches, repeats=1)
  same = bool(np.array_equal(whole.tokens, run.tokens))
  return {"whole_s": whole.median_s, "whole_traces": count.traces, "whole_same": same}


def _finished(session: StudioSession, resolved: Resolved, runs: list[Generation], found: list[Event]) -> ComparisonResult:
  jobs = [entrant.job for entrant in resolved.entrants]
  documents = [document([run], {}) for run in runs]
  about = session.kind, resolved.request, session.networks
  return ComparisonResult(
    document=finite({"race": documents, "figures": found}),
    picture=row_images.sheet(runs) if jobs[0].noun == "image" else None,
    commands=[reproduce.command(job, *about) for job in jobs],
    snippets=[reproduce.snippet(job, *about) for job in jobs],
  )
