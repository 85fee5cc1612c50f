"""Tables of the server: counts by hand; attackers against a toy; a few schedules of real networks."""

import asyncio
import collections
import dataclasses
import math

import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.configs.server import TABLES
from experiments.engine.experiment import Lab
from experiments.server import ahead, faults, networks, overhead, recovery
from experiments.server.attacker import NEVER, SHARES, Attacker, Plan
from experiments.server.faulty import Fault
from experiments.server.memory import Samples
from experiments.server.trace import write_trace
from jaxspec.core.overrides import override
from jaxspec.serving.server.server import Server
from jaxspec.serving.wire.link_model import NETWORKS, RoundSeconds
from tests import shallow
from tests.experiments.server.test_trace import recorded
from tests.serving.edge.toy_engine import ToyEngine


def test_schedules_of_one_fault_are_all_of_them():
  found = list(faults.singles(52, 1))
  assert len(found) == len(Fault) * 52 + 2 * 51 and len(set(map(repr, found))) == len(found)
  kinds = collections.Counter(schedule.name for schedule in found)
  assert kinds["DROP_REPLY"] == 52 and kinds["EDGE_DIES_AFTER"] == 51
  assert len(list(faults.singles(52, 10))) == (len(Fault) + 2) * 6
  outcomes = [faults.Outcome(True, 54, 1, 2.0), faults.Outcome(False, 52, 0, 0.0)]
  figures = faults.summed(outcomes, 52)
  assert figures == {"schedules": 2, "differing": 1, "more_attempts": 1.0, "resumes": 0.5, "late_s": 1.0}
  assert faults.cells_of({"fault": "x"} | figures) == ["x", "2", "1", "1.00", "0.50", "1.00"]


def test_a_slope_is_found_and_a_flat_line_is_flat():
  generator = np.random.default_rng(0)
  for slope in (0.0, 40.0):
    samples = Samples()
    for done in range(0, 100_000, 500):
      warm = 1e6 * min(1.0, done / 10_000)
      samples.add(done, int(5e8 + warm + slope * done + generator.normal(0, 1e5)))
    value, low, high = samples.slope()
    assert low < slope < high and high - low < 3 and abs(value - slope) < 1.5
  few = Samples()
  few.add(1, 10**6)
  assert math.isnan(few.slope()[0]) and "1 MB" in few.described("call") and "bytes" not in few.described("call")
  assert Samples().described("call") == "not sampled."


def test_parts_of_a_round_add_up():
  seconds = {name: 0.01 * index for index, name in enumerate(overhead.PARTS)} | {overhead.CALL: 1.0, overhead.HANDLER: 0.6}
  found = overhead.split(2.0, seconds)
  assert found[overhead.TOTAL] == 2.0 and sum(found[name] for name in overhead.PARTS) == pytest.approx(2.0)


def test_timed_functions_do_not_count_what_is_timed_inside():
  parts = overhead.Parts()
  inner = parts._timed(lambda: sum(range(200_000)), "inner")
  outer = parts._timed(lambda: (inner(), inner()), "outer")
  outer()
  assert 0 < parts.seconds["outer"] < parts.seconds["inner"]


def test_a_network_against_its_model():
  """Twice the modelled latency is a ratio of two, and of one for the other model."""
  network = NETWORKS["4g"]
  near = [networks.Run(1.0 + 0.1 * index, 10, 0, 0, 0, (1,)) for index in range(4)]
  far = [run._replace(seconds=run.seconds + 2 * 10 * network.latency_s) for run in near]
  entry = networks.compared(near, [*far[:-1], far[-1]._replace(tokens=(2,))], network, 20, np.arange(4))
  assert entry["link"][0] == pytest.approx(2.0) and entry["link_each_way"][0] == pytest.approx(1.0)
  assert entry["beyond_ms"][0] == pytest.approx(1e3 * network.latency_s) and entry["differing"] == 1
  assert entry["ms_per_token"][0] == pytest.approx(1e3 * (1.15 + 1.0) / 20)
  assert networks.cells_of(entry)[0] == "10"
  faster = networks.compared(far, near, network, 20, np.arange(4))["link"]
  assert faster[1] <= faster[0] <= faster[2] and faster[0] == pytest.approx(-2.0), "noise may bring a difference below 0"


def test_drafts_sent_ahead_against_their_model():
  """Runs that take the seconds of the model are 1 over it; those of an edge that waits need no share of full acceptance."""
  case, network = TABLES["networks_ahead"].cases[0], NETWORKS["4g"]
  run = ahead.Run(0.2, 1.2, 1.3, 0.4, 10, 5, 0, 0, 0, (1,))  # 10 rounds: drafts of 60 ms, passes of 40 ms
  near = [run] * len(case.prompts)
  beside, round_s = 0.2 + 0.1 + 2 * network.latency_s, 0.1 + network.latency_s
  waits = [run._replace(seconds=beside + 10 * round_s)] * len(near)
  assert ahead.compared(waits, waits, near, "4g", 1, case)["over_model"][0] == pytest.approx(1.0)
  seconds = RoundSeconds(0.06, 0.04, network.latency_s).mean(0.5, 2)
  sent = [run._replace(seconds=beside + 10 * seconds, void=3)] * len(near)
  entry = ahead.compared(sent, waits, near, "4g", 2, case)
  assert entry["over_model"][0] == pytest.approx(1.0) and entry["over_waiting"][0] < 1 and entry["void"] == 3
  assert ahead.cells_of("x", "4g", entry)[:5] == ["x", "4g", "10.0", "50%", "3.0"]


def test_cases_are_compared_sequence_by_sequence():
  """With references of the same temperature; prompts are the clusters, with any number of continuations each."""
  table = TABLES["networks_sqs"]
  pairs = table.pairs(list(table.cases))
  assert len(pairs) == 2 * 3 * 2 and pairs["C-SQS, fast controller, T = 0.6", "K-SQS, K = 8"] == "K-SQS, K = 8, T = 0.6"
  assert table.pairs([case for case in table.cases if "C-SQS" in case.row.name]) == {}
  of = lambda factor: [networks.Run(factor * (1 + index), 1, 0, 0, 0, ()) for index in range(12)]
  found = networks.paired(of(0.5), of(1.0), np.arange(12) % 6, 0.999)
  assert tuple(found) == pytest.approx((0.5, 0.5, 0.5)), "a constant factor has no spread, though sequences differ"
  assert networks.shown({"a": found}, "a") == "0.50 [0.50, 0.50]" and networks.shown({}, "a") == ""


def test_stops_are_summed():
  stops = [recovery.Stop(0.1 * index, 1, 0, 100, 50, index > 0, 0.0) for index in range(3)]
  entry = recovery.summed(stops, what="link reset", decode="x", network=None)
  assert entry["late_s"] == pytest.approx([0.1, 0.0, 0.2]) and entry["differing"] == 1
  assert recovery.cells_of(entry)[2:6] == ["this machine", "3", "0.10 [0.00, 0.20]", ""]


@pytest.mark.slow
def test_attackers_get_the_statuses_of_the_protocol(tmp_path):
  """Every kind of input; the server returns documented statuses only, and keeps no stream."""
  for number in range(2):
    write_trace(tmp_path / f"{number}.json", recorded(number, lazy=number == 1)[0])
  with Server(ToyEngine()) as server:
    plan = Plan(server.address.removeprefix("grpc://"), "", str(tmp_path), number=600, slow=4, alone_s=0.0, seed=1)
    report = asyncio.run(Attacker(plan).run())
    assert server.engine_thread.failure is None
  assert not report["unexpected"] and sum(map(sum, map(dict.values, report["statuses"].values()))) == 600
  assert report["statuses"].keys() >= SHARES.keys() - {"token"}
  assert not {name for found in report["statuses"].values() for name in found} & set(NEVER)


@pytest.mark.slow
def test_faults_of_real_networks(tmp_path):
  """A few of the schedules of the table, on a short text of the shipped pair cut to one block."""
  table, bundle = override(TABLES["faults_lazy"], ["stride=8", "several=3", "calls=7"]), shallow.write(tmp_path, "wordnet")
  table = dataclasses.replace(table, case=dataclasses.replace(table.case, bundle=str(bundle), tokens=16))
  document = table.measure(Lab(tmp_path / "runs"))
  assert {entry["differing"] for entry in document["figures"]} == {0}
  assert sum(entry["schedules"] for entry in document["figures"]) >= 2 * len(Fault) + 3
  by_fault = {entry["fault"]: entry for entry in document["figures"]}
  assert by_fault["kill after"]["resumes"] > 0 == by_fault["drop reply"]["resumes"]
