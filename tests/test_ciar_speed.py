"""The table of CIAR's wall clock: its floor and its cells, from times that are made up."""

import pytest

from experiments import ciar_speed


def row(name, seconds, target_calls, draft_calls):
  timing = {"median": 1.0, "low": 0.5, "high": 2.0}
  return {"method": name, "seconds": seconds, "target_calls": target_calls, "draft_calls": draft_calls, "wall_ratio": timing}


def test_floor_and_cells():
  rows = [
    row("ar", [1.0, 1.0], [100, 100], [0, 0]),
    row("inter-1 alone", [0.2, 0.2], [0, 0], [100, 100]),
    row("inter-1, window 1", [0.8, 0.8], [20, 40], [110, 90]),
  ]
  plain, alone, gated = ciar_speed.with_floors(rows)
  assert "floor" not in plain and alone["floor"] == pytest.approx(5)  # as fast as it is
  assert gated["floor"] == pytest.approx(1 / (0.3 + 0.2))  # 30 calls of 10 ms, 100 passes of 2 ms
  document = {
    "command": "c", "source": "s", "repeats": 2, "rows": [plain, alone, gated], "skipped": ["left out x"],
    "versions": {"jax": "1"}, "machine": {"kind": "cpu", "cpus": 2},
  }  # fmt: skip
  text = ciar_speed.render(document)
  assert "| inter-1, window 1 | 30 (20 to 40) | 100 | 800 | 1.00 [0.50, 2.00] | 2.00 |\n\nleft out x" in text
  assert "| inter-1 alone | 0 (0 to 0) | 100 | 200 | 1.00 [0.50, 2.00] |  |" in text


def test_devices_ask_at_one_rate():
  rows = ciar_speed.rows_of(0.25)
  assert {row.get("cloud_rate") for row in rows.values()} == {None, 0.25}
  assert [name for name, row in rows.items() if "tau" in row] == ["inter-1 alone", "inter-2 alone"]
