"""The scheduler without threads or clocks: who is served next, and how long anybody waits."""

import math

import numpy as np
import pytest

from jaxspec.server.scheduler import Plan, Policy, Queues, Waiting, plan

PATTERNS = 10_000


def waiting(stream, program="a", since=0.0, tenant="", passed=0):
  return Waiting(bytes([stream]), program, since, tenant, passed)


def test_nothing_waits():
  assert plan(0.0, Queues(), Policy(4)) is None


def test_the_program_of_the_oldest_call_runs_with_its_oldest_calls():
  asked = [waiting(1, "b", 3.0), waiting(2, "a", 1.0), waiting(3, "a", 2.0), waiting(4, "a", 0.5), waiting(5, "b", 0.9)]
  assert plan(9.0, Queues(asked), Policy(2)) == Plan(None, "a", (bytes([4]), bytes([2])))
  assert plan(9.0, Queues(asked[::-1]), Policy(2)) == Plan(None, "a", (bytes([4]), bytes([2])))


def test_tenants_take_turns():
  asked = [waiting(number, since=number, tenant="many") for number in range(6)] + [waiting(9, since=9.0, tenant="one")]
  assert plan(9.0, Queues(asked), Policy(3)).asked == (bytes([0]), bytes([9]), bytes([1]))
  first = plan(9.0, Queues(asked, served={"many": 5}), Policy(1))
  assert first.asked == (bytes([9]),)  # whoever was served longest ago comes first
  assert plan(9.0, Queues(asked, served={"many": 5, "one": 6}), Policy(1)).asked == (bytes([0]),)


def test_forced_rows_take_what_is_left_or_their_turn():
  asked, forced = [waiting(1, since=1.0)], [waiting(2, since=0.0), waiting(3, "b", 0.0), waiting(4, since=2.0)]
  assert plan(9.0, Queues(asked, forced), Policy(2)) == Plan(None, "a", (bytes([1]),), (bytes([2]),))
  assert plan(9.0, Queues(asked, forced), Policy(9)) == Plan(None, "a", (bytes([1]),), (bytes([2]), bytes([4])))
  assert plan(9.0, Queues((), forced), Policy(9)).forced == (bytes([2]), bytes([4]))
  late = [waiting(2, since=0.0, passed=4)]
  assert plan(9.0, Queues(asked, late), Policy(1)) == Plan(None, "a", (), (bytes([2]),))


def test_conditions_are_read_when_it_is_quiet_or_due():
  asked, opens = [waiting(1)], [waiting(7, since=1.0), waiting(8, since=0.0)]
  assert plan(9.0, Queues(opens=opens), Policy(2)) == Plan(bytes([8]))
  assert plan(9.0, Queues(asked, opens=opens), Policy(2)) == Plan(None, "a", (bytes([1]),))
  due = [waiting(8, passed=4)]
  assert plan(9.0, Queues(asked, opens=due), Policy(2)) == Plan(bytes([8]), "a", (bytes([1]),))
  assert plan(9.0, Queues(asked, opens=due, since_prefill=3), Policy(2)).prefill is None


def test_calls_may_wait_for_others():
  policy = Policy(3, max_wait_s=0.5)
  asked = [waiting(1, since=1.0), waiting(2, since=1.2)]
  assert plan(1.3, Queues(asked), policy) == 1.5
  assert plan(1.5, Queues(asked), policy).asked == (bytes([1]), bytes([2]))
  assert plan(1.3, Queues([*asked, waiting(3, since=1.3)]), policy).program == "a"
  assert plan(1.3, Queues(asked, opens=[waiting(9, passed=9)]), policy) == Plan(bytes([9]))


class Simulation:
  """Arrivals at random; every step takes one second. It counts the steps and conditions that each call waited for."""

  def __init__(self, generator, *, tenants):
    self.generator, self.programs = generator, int(generator.integers(1, 4))
    self.policy = Policy(int(generator.integers(1, 5)))
    self.streams, self.tenants, self.load = int(generator.integers(1, 25)), tenants, generator.uniform(0.05, 1.0)
    self.asked, self.forced, self.opens, self.served = {}, {}, {}, {}
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
      entry = Waiting(stream.to_bytes(4), program, now - 1 + 1e-3 * stream, tenant)
      if kind < 0.1:
        self.opens[stream] = entry
      elif kind < 0.2:
        self.forced[stream] = entry
      else:
        self.asked[stream] = entry
    ready = len(self.asked) + len(self.forced)  # forced rows that were passed over take their turn
    for stream in self.asked:
      most = math.ceil(ready / self.policy.max_rows) if self.tenants == 1 else ready * self.turn
      self.bounds.setdefault(stream, [self.programs + most, 0, 0])

  def run(self, now):
    queues = Queues(
      tuple(self.asked.values()), tuple(self.forced.values()), tuple(self.opens.values()), self.served, self.since_prefill
    )
    found = plan(now, queues, self.policy)
    if found is None:
      assert not (self.asked or self.forced or self.opens)
      return
    taken = [int.from_bytes(name) for name in (*found.asked, *found.forced)]
    assert len(taken) == len(set(taken)) <= self.policy.max_rows and (taken or found.prefill is not None)
    assert all(int.from_bytes(name) in self.asked for name in found.asked)
    assert all(int.from_bytes(name) in self.forced for name in found.forced)
    of_program = {(self.asked | self.forced)[stream].program for stream in taken}
    assert of_program <= {found.program}
    if found.prefill is not None:
      assert self.since_prefill >= self.policy.patience or not (self.asked or self.forced)
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
      entry = self.asked.pop(stream, None) or self.forced.pop(stream)
      self.served[entry.tenant] = int(now)
      self.idle.append(stream)
      if stream in self.bounds:
        most, steps, conditions = self.bounds.pop(stream)
        self.waits.append((steps, conditions, most))
    for kind in (self.asked, self.forced, self.opens):
      for stream, entry in kind.items():
        kind[stream] = entry._replace(passed=entry.passed + 1)


@pytest.mark.parametrize("tenants", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_how_long_a_call_waits(tenants):
  """Random arrivals. With several tenants a call waits for those that came before, each at most until its tenant's turn."""
  generator, waits = np.random.default_rng(tenants), 0
  for _ in range(PATTERNS // 2):
    simulation = Simulation(generator, tenants=tenants)
    for now in range(8):
      simulation.arrive(float(now))
      simulation.run(float(now))
    now = 8  # nobody comes any more
    while simulation.asked or simulation.forced or simulation.opens:
      simulation.run(float(now))
      now += 1
    for steps, conditions, most in simulation.waits:
      assert steps <= most and conditions <= 1 + steps // simulation.policy.patience, (steps, conditions, most)
    waits += len(simulation.waits)
  assert waits > PATTERNS
