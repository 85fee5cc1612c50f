"""The scheduler without threads or clocks: order of service, and waiting times."""

import math
from collections import Counter

import numpy as np
import pytest

from jaxspec.serving.server.scheduler import Plan, Policy, Queues, Waiting, plan
from tests.helpers import slow_but

PATTERNS = 4_000


def waiting(stream, program="a", since=0.0, tenant="", skipped=0, group=0):
  return Waiting(bytes([stream]), program, since, tenant, skipped, group)


def test_nothing_waits():
  assert plan(0.0, Queues(), Policy(4)) is None


def test_the_program_of_the_oldest_call_runs_with_its_oldest_calls():
  calls = [waiting(1, "b", 3.0), waiting(2, "a", 1.0), waiting(3, "a", 2.0), waiting(4, "a", 0.5), waiting(5, "b", 0.9)]
  assert plan(9.0, Queues(calls), Policy(2)) == Plan(None, "a", (bytes([4]), bytes([2])))
  assert plan(9.0, Queues(calls[::-1]), Policy(2)) == Plan(None, "a", (bytes([4]), bytes([2])))


def test_tenants_take_turns():
  calls = [waiting(number, since=number, tenant="many") for number in range(6)] + [waiting(9, since=9.0, tenant="one")]
  assert plan(9.0, Queues(calls), Policy(3)).verified == (bytes([0]), bytes([9]), bytes([1]))
  first = plan(9.0, Queues(calls, served={"many": 5}), Policy(1))
  assert first.verified == (bytes([9]),)  # the least recently served tenant comes first
  assert plan(9.0, Queues(calls, served={"many": 5, "one": 6}), Policy(1)).verified == (bytes([0]),)


def test_forced_rows_take_what_is_left_or_their_turn():
  calls, forced = [waiting(1, since=1.0)], [waiting(2, since=0.0), waiting(3, "b", 0.0), waiting(4, since=2.0)]
  assert plan(9.0, Queues(calls, forced), Policy(2)) == Plan(None, "a", (bytes([1]),), (bytes([2]),))
  assert plan(9.0, Queues(calls, forced), Policy(9)) == Plan(None, "a", (bytes([1]),), (bytes([2]), bytes([4])))
  assert plan(9.0, Queues((), forced), Policy(9)).forced == (bytes([2]), bytes([4]))
  late = [waiting(2, since=0.0, skipped=4)]
  assert plan(9.0, Queues(calls, late), Policy(1)) == Plan(None, "a", (), (bytes([2]),))


def test_conditions_are_read_when_it_is_quiet_or_due():
  calls, opens = [waiting(1)], [waiting(7, since=1.0), waiting(8, since=0.0)]
  assert plan(9.0, Queues(opens=opens), Policy(2)) == Plan(bytes([8]))
  assert plan(9.0, Queues(calls, opens=opens), Policy(2)) == Plan(None, "a", (bytes([1]),))
  due = [waiting(8, skipped=4)]
  assert plan(9.0, Queues(calls, opens=due), Policy(2)) == Plan(bytes([8]), "a", (bytes([1]),))
  assert plan(9.0, Queues(calls, opens=due, since_prefill=3), Policy(2)).prefill is None


def test_calls_may_wait_for_others():
  policy = Policy(3, max_wait_s=0.5)
  calls = [waiting(1, since=1.0), waiting(2, since=1.2)]
  assert plan(1.3, Queues(calls), policy) == 1.5
  assert plan(1.5, Queues(calls), policy).verified == (bytes([1]), bytes([2]))
  assert plan(1.3, Queues([*calls, waiting(3, since=1.3)]), policy).program == "a"
  assert plan(1.3, Queues(calls, opens=[waiting(9, skipped=9)]), policy) == Plan(bytes([9]))


def test_every_group_has_rows_of_its_own():
  """The oldest call of all groups determines the program; each group fills its own rows."""
  policy = Policy(4, groups=2)
  calls = [waiting(number, since=number) for number in (1, 2, 3)] + [waiting(4, "b", 0.5, group=1)]
  assert plan(9.0, Queues(calls), policy) == Plan(None, "b", (bytes([4]),))
  calls[3] = waiting(4, since=9.0, group=1)
  assert plan(9.0, Queues(calls), policy).verified == (bytes([1]), bytes([2]), bytes([4]))
  forced = [waiting(5, since=0.0), waiting(6, since=5.0, group=1), waiting(7, since=6.0, group=1)]
  assert plan(9.0, Queues(calls, forced), policy).forced == (bytes([6]),)
  assert plan(9.0, Queues((), forced), policy).forced == (bytes([5]), bytes([6]), bytes([7]))
  turns = [waiting(number, since=number, tenant="many", group=number % 2) for number in range(6)]
  turns.append(waiting(9, since=9.0, tenant="one", group=1))
  assert plan(9.0, Queues(turns), policy).verified == (bytes([0]), bytes([2]), bytes([1]), bytes([9]))


def test_a_group_with_room_may_wait():
  policy = Policy(4, max_wait_s=0.5, groups=2)
  calls = [waiting(1, since=1.0), waiting(2, since=1.1)]
  assert plan(1.3, Queues(calls), policy) == 1.5
  calls += [waiting(3, since=1.2, group=1), waiting(4, since=1.2, group=1)]
  assert len(plan(1.3, Queues(calls), policy).verified) == 4


class Simulation:
  """Arrivals at random; every step takes one second. It counts the steps and conditions that each call waited for."""

  def __init__(self, generator, *, tenants, groups):
    self.generator, self.programs = generator, int(generator.integers(1, 4))
    self.policy = Policy(groups * int(generator.integers(1, 5)), groups=groups)
    self.streams, self.tenants, self.load = int(generator.integers(1, 25)), tenants, generator.uniform(0.05, 1.0)
    self.calls, self.forced, self.opens, self.served = {}, {}, {}, {}
    self.idle, self.since_prefill, self.next = list(range(self.streams)), 1 << 30, self.streams
    self.waits: list[tuple[int, int, int]] = []  # steps, conditions, bound of steps
    # How many steps it takes until the turn of a tenant has come; with one tenant all rows of a step are its own.
    self.turn = math.ceil(tenants / self.policy.max_rows)
    self.bounds: dict[int, list[int]] = {}

  def arrive(self, now):
    for stream in [stream for stream in self.idle if self.generator.random() < self.load]:
      self.idle.remove(stream)
      kind = self.generator.random()
      program, tenant = int(self.generator.integers(self.programs)), str(stream % self.tenants)
      group = stream % self.policy.groups
      entry = Waiting(stream.to_bytes(4), program, now - 1 + 1e-3 * stream, tenant, group=group)
      if kind < 0.1:
        self.opens[stream] = entry
      elif kind < 0.2:
        self.forced[stream] = entry
      else:
        self.calls[stream] = entry
    ready = len(self.calls) + len(self.forced)  # forced rows that were skipped over take their turn
    for stream in self.calls:
      most = math.ceil(ready / self.policy.max_rows) if self.tenants == 1 else ready * self.turn
      most = self.programs + most if self.policy.groups == 1 else self.steps_of_all()
      self.bounds.setdefault(stream, [most, 0, 0])

  def steps_of_all(self):
    """How many steps the fullest group needs for each program, and one for each forced row, whose turns come one by one."""
    waits = Counter((row.program, row.group) for row in (*self.calls.values(), *self.forced.values()))
    rows, groups = self.policy.max_rows // self.policy.groups, range(self.policy.groups)
    fullest = [max(waits[program, group] for group in groups) for program in range(self.programs)]
    return sum(math.ceil(number / rows) for number in fullest) + len(self.forced)

  def run(self, now):
    queues = Queues(
      tuple(self.calls.values()), tuple(self.forced.values()), tuple(self.opens.values()), self.served, self.since_prefill
    )
    found = plan(now, queues, self.policy)
    if found is None:
      assert not (self.calls or self.forced or self.opens)
      return
    taken = [int.from_bytes(name) for name in (*found.verified, *found.forced)]
    assert len(taken) == len(set(taken)) and (taken or found.prefill is not None)
    of_group = Counter(stream % self.policy.groups for stream in taken)
    assert max(of_group.values(), default=0) <= self.policy.max_rows // self.policy.groups
    assert all(int.from_bytes(name) in self.calls for name in found.verified)
    assert all(int.from_bytes(name) in self.forced for name in found.forced)
    of_program = {(self.calls | self.forced)[stream].program for stream in taken}
    assert of_program <= {found.program}
    if found.prefill is not None:
      assert self.since_prefill >= self.policy.patience or not (self.calls or self.forced)
      stream = int.from_bytes(found.prefill)
      self.idle.append(stream)
      del self.opens[stream]
      self.since_prefill = 0
    for stream, bound in self.bounds.items():
      bound[1] += 1
      bound[2] += found.prefill is not None
    if not taken:
      return
    self.since_prefill += 1
    for stream in taken:
      entry = self.calls.pop(stream, None) or self.forced.pop(stream)
      self.served[entry.tenant] = int(now)
      self.idle.append(stream)
      if stream in self.bounds:
        most, steps, conditions = self.bounds.pop(stream)
        self.waits.append((steps, conditions, most))
    for kind in (self.calls, self.forced, self.opens):
      for stream, entry in kind.items():
        kind[stream] = entry._replace(skipped=entry.skipped + 1)


@pytest.mark.parametrize(
  "tenants, groups, patterns",
  slow_but([(1, 1, PATTERNS // 2), (3, 1, PATTERNS // 2), (1, 3, PATTERNS // 20)], [(1, 3, PATTERNS // 20)]),
)
def test_how_long_a_call_waits(tenants, groups, patterns):
  """Random arrivals. With several tenants a call waits for those that came before, each at most until its tenant's turn."""
  generator, waits = np.random.default_rng(tenants), 0
  for _ in range(patterns):
    simulation = Simulation(generator, tenants=tenants, groups=groups)
    for now in range(8):
      simulation.arrive(float(now))
      simulation.run(float(now))
    now = 8  # no more calls
    while simulation.calls or simulation.forced or simulation.opens:
      simulation.run(float(now))
      now += 1
    for steps, conditions, most in simulation.waits:
      assert steps <= most and conditions <= 1 + steps // simulation.policy.patience, (steps, conditions, most)
    waits += len(simulation.waits)
  assert waits > 2 * patterns
