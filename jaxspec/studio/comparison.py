"""A race: up to three methods with the same key, round by round, as a stream of events.

The next round belongs to the method with the least time so far. What stands side by side has therefore taken the same time,
as if each method had the machine for itself.
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
from jaxspec.studio.link_cost import crossing
from jaxspec.studio.method_run import Lane, uncertainty
from jaxspec.studio.result_store import Finished
from jaxspec.studio.studio_session import Resolved, Session
from jaxspec.studio.trace_count import Count, counted

Event = dict[str, Any]


def race(session: Session, resolved: Resolved, stopped: Callable[[], bool]) -> Iterator[Event | Finished]:
  """Decodes all entrants; the last item is what can be kept.

  Args:
    stopped: asked between two rounds; a race that is stopped ends without another event.
  """
  lanes = [Lane(entrant, resolved) for entrant in resolved.entrants]
  job = lanes[0].entrant.job
  shape = {"captions": job.captions, "max_len": job.max_len, "methods": [lane.entrant.job.method.name for lane in lanes]}
  warnings = dict.fromkeys(warning for lane in lanes for warning in lane.entrant.job.warnings)
  yield {"event": "started", **shape, "warnings": list(warnings)}
  for index, lane in enumerate(lanes):
    if stopped():
      return
    compiles = lane.entrant.program not in session.compiled
    yield {"event": "warming", "lane": index, "compiles": compiles}
    lane.warm(session)
    yield {"event": "ready", "lane": index, "compile_s": lane.compile_s, "traces": lane.count.traces}
  live = list(range(len(lanes)))
  while live:
    if stopped():
      return
    index = min(live, key=lambda at: lanes[at].seconds)
    found = lanes[index].step()
    if found is None:
      live.remove(index)
      continue
    yield {"event": "round", "lane": index, **found, "traces": lanes[index].count.traces}
    if (images := lanes[index].preview()) is not None:
      yield {"event": "images", "lane": index, "images": images}
  runs, found = [], []
  for index, lane in enumerate(lanes):
    if stopped():
      return
    run = lane.run()
    runs.append(run)
    found.append(_figures(session, resolved, lane, run))
    if job.noun == "text":
      shown = {"texts": run.texts}
    else:
      shown = {"images": [row_images.data_url(image) for image in run.need_images()]}
    yield {"event": "done", "lane": index, **shown, "figures": found[-1]}
  yield _finished(session, resolved, runs, found)


def _figures(session: Session, resolved: Resolved, lane: Lane, run: Generation) -> Event:
  """Figures of a method; JSON."""
  job, asked = lane.entrant.job, resolved.asked
  found: Event = {"method": run.name, "title": run.method.title, "is_exact": run.method.is_exact}
  if asked.messages and messages.has_messages(job):
    try:
      run.messages = messages.send(run)
    except ValueError as error:
      found["no_messages"] = str(error)
  found |= figures(run)
  doubts = uncertainty(run.result)
  found["doubts_are"] = None if doubts is None else doubts[0]
  found["traces"] = lane.count.traces
  crossed = crossing(run, job.pipeline.family.space.vocab_size)
  found["link"] = None if crossed is None else crossed._asdict()
  if isinstance(run.result.metrics, TokenAudit):
    found["audit"] = _audit(run)
  if asked.whole:
    found |= _whole(resolved, lane, run)
  return finite(found)


def _audit(run: Generation) -> Event:
  """Distances of the distributions of tokens from the target's."""
  metrics = run.result.metrics
  found = summarize_audit(metrics, run.result.lengths, run.result.counters.target_calls)
  fields = found._asdict()
  return {"tv_sum": float(np.sum(metrics.tv)) / run.num} | {
    name: fields[name] if name == "worst" else interval_fields(fields[name]) for name in fields
  }


def _whole(resolved: Resolved, lane: Lane, run: Generation) -> Event:
  """The same decode in one program: its seconds, whether its tokens are the same, and its traces."""
  count = Count()
  with counted(count):
    (whole,) = in_turns([lane.entrant.job.but(audit=False)], resolved.batches, repeats=1)
  same = bool(np.array_equal(whole.tokens, run.tokens))
  return {"whole_s": whole.median_s, "whole_traces": count.traces, "whole_same": same}


def _finished(session: Session, resolved: Resolved, runs: list[Generation], found: list[Event]) -> Finished:
  jobs = [entrant.job for entrant in resolved.entrants]
  documents = [document([run], {}) for run in runs]
  about = session.kind, resolved.asked, session.networks
  return Finished(
    document=finite({"race": documents, "figures": found}),
    picture=row_images.sheet(runs) if jobs[0].noun == "image" else None,
    commands=[reproduce.command(job, *about) for job in jobs],
    snippets=[reproduce.snippet(job, *about) for job in jobs],
  )
