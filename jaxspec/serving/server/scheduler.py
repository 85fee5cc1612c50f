"""The scheduler: the next step as a pure function of the waiting streams.

1. The program of the oldest call runs next.
2. Its rows go to tenants in turn, the least recently served first. The calls of a tenant are first come, first served.
3. The remaining rows are forced rows of the same program, which read committed tokens. A forced row that was skipped
   `Policy.patience` times counts as a call.
4. Verification has priority over prefill. At most one condition is read between two steps: when nothing else waits, or when
   a stream was skipped by `Policy.patience` steps and as many have run since the last prefill.

So a call waits for at most as many steps as there are programs, and ``ceil(ready / M)`` more.

On a mesh the rows of a step are divided over ``G`` groups of devices, and a stream waits for a row of the group that has
its cache. All groups run one program at once: rule 1 holds for all of them together, rules 2 and 3 in each, for ``M / G``
rows. A call then waits for at most as many steps as the fullest group needs for each program, and one for each forced row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Program(NamedTuple):
  """A compiled program of steps."""

  profile: int
  width: int  # inputs of a pass


class Waiting(NamedTuple):
  """A stream that waits."""

  stream: bytes
  program: Program  # not read for a prefill
  since: float  # start of its waiting time, seconds
  tenant: str = ""
  skipped: int = 0  # steps of other streams since then
  group: int = 0  # group of devices of its cache; not read for a prefill


class Queues(NamedTuple):
  """The streams that wait, each in one queue."""

  calls: Sequence[Waiting] = ()
  forced: Sequence[Waiting] = ()  # their cache lacks committed tokens
  opens: Sequence[Waiting] = ()  # prefills for which there is a slot
  served: Mapping[str, int] = {}  # tenant -> number of the step that served it last
  since_prefill: int = 1 << 30  # steps since the last prefill


class Policy(NamedTuple):
  """Settings of the scheduler."""

  max_rows: int  # M
  max_wait_s: float = 0.0  # most seconds that a call waits for others to share its step
  patience: int = 4  # steps
  groups: int = 1  # G, of devices; each has the same share of the rows


class Plan(NamedTuple):
  """The next step: read the condition of ``prefill``, then run ``program`` for the other streams."""

  prefill: bytes | None = None
  program: Program | None = None
  verified: tuple[bytes, ...] = ()
  forced: tuple[bytes, ...] = ()


def plan(now: float, queues: Queues, policy: Policy) -> Plan | float | None:
  """Plans the next step.

  Args:
    now: seconds, on the clock of `Waiting.since`.
  Returns:
    A `Plan`; or the time of the next plan if calls wait for others; or None if nothing waits.
  """
  overdue = [row for row in queues.forced if row.skipped >= policy.patience]
  rows = _rows([*queues.calls, *overdue], queues.served, policy) or _rows(queues.forced, queues.served, policy)
  prefill = _prefill(queues, policy, is_quiet=not rows)
  if not rows:
    return None if prefill is None else Plan(prefill)
  program = rows[0].program
  is_forced = {row.stream for row in queues.forced}
  wake_at = min(row.since for row in rows) + policy.max_wait_s
  is_full = len(rows) == policy.max_rows
  if not is_full and wake_at > now and not any(row.stream in is_forced for row in rows):
    return wake_at if prefill is None else Plan(prefill)
  taken = {row.stream for row in rows}
  free = [row for row in queues.forced if row.program == program and row.stream not in taken]
  rows = _with(rows, _oldest_first(free), policy)
  verified = tuple(row.stream for row in rows if row.stream not in is_forced)
  return Plan(prefill, program, verified, tuple(row.stream for row in rows if row.stream in is_forced))


def _rows(waiting: Sequence[Waiting], served: Mapping[str, int], policy: Policy) -> list[Waiting]:
  """Rows of the program of the oldest row, by tenants in turn, up to the size of each group."""
  if not waiting:
    return []
  program = _oldest_first(waiting)[0].program
  chosen: list[Waiting] = []
  for group in range(policy.groups):
    by_tenant: dict[str, list[Waiting]] = {}
    for row in _oldest_first([row for row in waiting if row.program == program and row.group == group]):
      by_tenant.setdefault(row.tenant, []).append(row)
    turns = sorted(by_tenant, key=lambda tenant: (served.get(tenant, -1), by_tenant[tenant][0].since))
    depth = max(map(len, by_tenant.values()), default=0)
    in_turn = [by_tenant[tenant][index] for index in range(depth) for tenant in turns if index < len(by_tenant[tenant])]
    chosen = _with(chosen, in_turn, policy)
  return chosen


def _with(rows: Sequence[Waiting], more: Sequence[Waiting], policy: Policy) -> list[Waiting]:
  """Rows, and more in their order up to the size of their groups."""
  room = [policy.max_rows // policy.groups] * policy.groups
  for row in rows:
    room[row.group] -= 1
  found = list(rows)
  for row in more:
    if room[row.group]:
      room[row.group] -= 1
      found.append(row)
  return found


def _prefill(queues: Queues, policy: Policy, *, is_quiet: bool) -> bytes | None:
  if not queues.opens:
    return None
  oldest = _oldest_first(queues.opens)[0]
  is_due = oldest.skipped >= policy.patience and queues.since_prefill >= policy.patience
  return oldest.stream if is_quiet or is_due else None


def _oldest_first(rows: Sequence[Waiting]) -> list[Waiting]:
  return sorted(rows, key=lambda row: (row.since, row.stream))
