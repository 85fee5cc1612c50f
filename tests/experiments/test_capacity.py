"""The tables of docs/capacity.md equal the module's output, and its figures equal arithmetic by hand."""

from pathlib import Path

import pytest

from experiments import capacity as capacity_module
from experiments.capacity import CALL_DOWN, CALL_UP, Capacity, fleet, main, report, simulated, speculation, two_digits
from experiments.server.simulation import Load, simulate
from jaxspec.serving.server.scheduler import Policy
from tests.exit_status import status_of

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"


@pytest.fixture(scope="module")
def printed():
  return report(Capacity())


def test_the_page_is_what_the_module_prints(printed):
  begin, end = "prints. -->\n", "<!-- Until"
  assert PAGE.read_text().partition(begin)[2].partition(end)[0] == printed


def test_figures_by_hand(printed):
  capacity = Capacity()
  assert capacity.row_bytes == 134_217_728 and two_digits(capacity.step_s) == 0.022
  assert two_digits(capacity.calls_per_s) == 2900 and two_digits(capacity.at_once) == 230
  small, middle, large = (fleet(capacity, devices) for devices in (10**3, 10**5, 10**7))
  assert (small.at_once, small.replicas, small.cores) == (100, 1, 2)
  assert (middle.at_once, middle.replicas, middle.cores) == (10**4, 44, 107)
  assert large.replicas == 4350 and two_digits(large.calls_per_s) == 8.9e6
  assert two_digits(middle.up_bps) == 360e6 and two_digits(middle.down_bps) == 78e6
  assert "| 44 + 1 |" in printed and "| 4,350 in 87 cells |" in printed and "31 GB" in printed


def test_places_of_the_draft_network_by_hand():
  """Two drafts of acceptance 0.71: 2.21 tokens; a step of 3 inputs takes 6.1 ms of arithmetic and 5.4 ms for caches."""
  found, plain_s, step_s = speculation(Capacity(), 2), 16e9 / 4.8e12 + 5.369e-3, 6.144e-3 + 5.369e-3
  assert found.tokens == pytest.approx(2.2141)
  assert found.on_devices == pytest.approx(64 * 2.2141 / step_s, rel=1e-3)
  assert found.on_devices / found.on_server == pytest.approx(1 + 2 * 0.25 * plain_s / step_s, rel=1e-3)
  five_g, four_g, _ = found.networks_s
  assert four_g - five_g == pytest.approx(0.04 / 2.2141) and five_g == pytest.approx((step_s + 0.02) / 2.2141, rel=1e-3)
  assert found.pays_below_s == pytest.approx(2.2141 * plain_s - step_s - 0.01, rel=1e-2)
  assert speculation(Capacity(device_pass_s=1e-4), 2).pays_below_s > 0 > found.pays_below_s


def test_which_limit_counts():
  assert Capacity(max_rows=1).step_s == pytest.approx((16e9 + 3 * 134_217_728) / 4.8e12)  # the weights
  full = Capacity(memory=16e9 + 10 * 134_217_728)
  assert full.at_once == 10 and fleet(full, 1000).replicas == 10
  with pytest.raises(ValueError, match="memory for the weights"):
    Capacity(memory=16e9)
  with pytest.raises(ValueError, match="params above 0"):
    Capacity(params=0)
  with pytest.raises(ValueError, match="acceptance of at most 1, we instead got 71"):
    Capacity(acceptance=71)


def test_the_simulation_agrees_with_the_formula():
  """For a small server, up to 0.7 of its capacity; above it, throughput saturates and calls wait."""
  capacity = Capacity(max_rows=4, think_s=0.1)
  for share in (0.3, 0.7):
    devices = round(share * capacity.calls_per_s * capacity.round_s)
    found = simulated(capacity, devices, calls=2000)
    assert found.calls_per_s == pytest.approx(devices / capacity.round_s, rel=0.05)
    assert capacity.step_s <= found.median_s < 2 * capacity.step_s and found.rows <= 4
  full = simulated(capacity, 2 * devices, calls=2000)
  assert full.calls_per_s == pytest.approx(capacity.calls_per_s, rel=0.01) and full.rows == 4
  assert full.median_s > 2 * capacity.step_s and full == simulated(capacity, 2 * devices, calls=2000)
  assert simulated(capacity, 2, calls=500, max_wait_s=1.0).median_s > simulated(capacity, 2, calls=500).median_s


def test_devices_that_begin_and_end():
  """A single device needs the time of its pauses and steps; many devices share full steps."""
  policy, step_s = Policy(4), lambda rows: 0.01 + 0.001 * rows
  alone = simulate(Load(1, 0.02, each=200), step_s, policy)
  assert alone.calls_per_s == pytest.approx(1 / 0.031, rel=0.05) and alone.rows == 1
  assert alone.median_s == alone.p99_s == pytest.approx(0.011)
  crowd = simulate(Load(40, 1e-4, each=50), step_s, policy)
  assert crowd.rows == pytest.approx(4, rel=0.01) and crowd.calls_per_s == pytest.approx(4 / 0.014, rel=0.01)
  late = simulate(Load(2, 0.001, each=10, apart_s=10.0), step_s, policy)
  assert late.rows == 1 and late.calls_per_s == pytest.approx(2.0, rel=0.05)


def test_what_surrounds_a_frame():
  """The client counts as much."""
  client = pytest.importorskip("jaxspec.serving.edge.grpc_client", exc_type=ImportError)
  from jaxspec.serving.wire.v1 import encoding

  frame = bytes(400)
  up, down = encoding.verify_request(bytes(16), 100, 0, frame), encoding.verify_reply(100, 0, frame)
  assert len(up) - len(frame) + client.FRAMING + client.UNARY.up == pytest.approx(CALL_UP, abs=3)
  assert len(down) - len(frame) + client.FRAMING + client.UNARY.down == pytest.approx(CALL_DOWN, abs=3)


def test_the_command(capsys, monkeypatch):
  monkeypatch.setattr(capacity_module, "report", lambda capacity: f"{capacity.max_rows} rows")
  assert status_of(main, "--set", "max_rows=8") == 0 and capsys.readouterr().out == "8 rows"
  assert status_of(main, "--set", "rows=8") == 2
  assert status_of(main, "--set", "params=-1") == 2
  assert all(line.startswith("Error: Must have") for line in capsys.readouterr().err.splitlines())
