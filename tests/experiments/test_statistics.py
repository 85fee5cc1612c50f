"""Intervals, ratios and smallest differences of tables, against counting by hand."""

import math

import numpy as np
import pytest

from experiments.engine import statistics
from experiments.engine.classes import compare
from experiments.engine.kinds import speed
from experiments.engine.pass_times import CloudPass, ExchangePasses
from experiments.engine.race import Exchange, cloud_tokens, with_floors
from experiments.engine.schedules import Round
from jaxspec.core.state import Counters, DecodeResult, Origin


def test_a_share_of_nothing_has_an_interval():
  found = statistics.wilson_of(0.0, 64)
  assert found.value == 0 and found.low == pytest.approx(0, abs=1e-12) and 0.05 < found.high < 0.06
  row = {"metrics": {"class_accuracy": dict(value=0.0, low=0.0, high=0.0)}, "figures": {"images": 64}}
  assert statistics.metric_of(row, "class_accuracy") == found and statistics.metric_of(row, "kid_target") is None


def test_alpha_without_width_is_of_images():
  figures = {"alpha": dict(value=0.0, low=0.0, high=0.0), "images": 8}
  found = statistics.alpha_of({"figures": figures})
  assert found.value == 0 == found.low and 0.3 < found.high < 0.5
  figures["alpha"] |= dict(high=0.1)
  assert statistics.alpha_of({"figures": figures}) == (0, 0, 0.1)
  assert statistics.alpha_of({"figures": {}}) is None and statistics.alpha_of({}) is None
  assert statistics.acceptance(np.zeros(3), np.zeros(3)) == (0, 0, 1)
  assert statistics.acceptance(np.array([1, 2]), np.array([2, 4])).value == 0.5


def test_ratios_are_of_turns():
  assert statistics.ratio([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) == (2.0, 1.0, 3.0)
  rows = [dict(batch=1, label="a", seconds=[2.0] * 6), dict(batch=1, label="b", seconds=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5])]
  document = {"base": "a", "rows": rows}
  base, (found, p_value) = statistics.time_ratios(document)
  assert base is None and (found.low, found.high) == pytest.approx((2 / 1.5, 2)) and found.level >= 0.95
  assert p_value == pytest.approx(2 / 64)
  assert statistics.over(rows[1], document, "b").median == 1 and statistics.over(rows[1], document, None) is None


def test_smallest_differences():
  half = statistics.Estimate(0, -1, 1)
  wanted = math.sqrt(2) * (1.96 + 0.8416) / 1.96
  assert statistics.smallest_between([half, None], 10_000) == pytest.approx(wanted, rel=1e-3)
  rows = [dict(batch=1, label=label, seconds=seconds) for label, seconds in (("a", [1.0] * 9), ("b", [0.5, 1.0, 2.0] * 3))]
  found = statistics.smallest_ratio({"base": "a", "rows": rows})
  error = np.std(np.log([0.5, 1.0, 2.0] * 3), ddof=1) / 3
  assert found == pytest.approx(math.exp(error * (2.306 + 0.889)), rel=1e-3)  # Student's t of 8 degrees of freedom
  single = [row | {"seconds": row["seconds"][:1]} for row in rows]
  assert statistics.smallest_ratio({"base": "a", "rows": single}) is None
  # The two-sample statistic of this size has this critical value (tables give 1.36 sqrt(2 / n)).
  assert statistics.smallest_ks(2000, 1) == pytest.approx(1.358 * math.sqrt(2 / 2000), rel=1e-3)


def test_difference_of_summaries():
  found = statistics.of_summaries(statistics.Estimate(1.0, 0.7, 1.3), statistics.Estimate(0.0, -0.4, 0.4), 10_000)
  assert (found.low, found.high) == pytest.approx((0.5, 1.5)) and found.p_value == pytest.approx(8.9e-5, rel=0.05)


def test_floor_of_edge_and_cloud():
  def row(label, seconds, target_calls, draft_calls, tokens=(0, 0)):
    calls = {"target_calls": target_calls, "draft_calls": draft_calls, "cloud_tokens": tokens}
    return {"label": label, "batch": 2, "seconds": seconds} | calls

  rows = [
    row("plain decoding", [1.0, 1.0], [100, 100], [0, 0]), row("inter-1 alone", [0.2, 0.2], [0, 0], [100, 100]),
    row("inter-1, window 1", [0.8, 0.8], [20, 40], [110, 90], [120, 60]),
  ]  # fmt: skip
  passes = ExchangePasses(0.001, (CloudPass(8, 1, 8, 0.003), CloudPass(16, 2, 8, 0.004)))
  exchanges = {"inter-1, window 1": Exchange(passes, [[[Round(110, 110, 111)], [Round(90, None, 91)]]], window=1)}
  plain, alone, gated = with_floors(rows, {1: 0.001, 2: 0.002, 4: 0.008}, exchanges)
  assert not {"floor", "token_floor", "pass_floor"} & (set(plain) | set(alone))
  assert gated["floor"] == pytest.approx(1 / (0.3 + 0.2))  # 30 calls of 10 ms, 100 passes of 2 ms
  # 30 passes over 90 / 30 tokens, halfway between 2 and 8 ms.
  assert gated["token_floor"] == pytest.approx(1 / (0.2 + 30 * 0.005))
  # The longer row needs 110 passes of the edge and one call with 111 inputs, 8 in each of 14 narrow passes.
  assert gated["pass_floor"] == pytest.approx(1 / (0.11 + 14 * 0.003))
  assert gated["pass_s"]["edge"] == 0.001 and gated["pass_s"]["cloud"][0] == passes.cloud[0]._asdict()


def test_a_table_of_floors_prints_rows_with_and_without_passes():
  """The third column of floors is that of newer tables; older ones are printed without it."""
  turns = {"seconds": [1.0] * 6, "target_calls": [9] * 6, "draft_calls": [9] * 6, "batch": 1}
  floors = {"floor": 3.0, "token_floor": 2.0}
  for newer in ({}, {"pass_floor": 1.25, "pass_s": {"edge": 0.001, "cloud": []}}):
    rows = [turns | {"label": "plain", "draft_calls": [0] * 6}, turns | {"label": "CIAR"} | floors | newer]
    document = {"layout": "cloud", "base": "plain", "source": "scenes", "num_tokens": 16, "rows": rows}
    columns = {column.head: column.cell(rows[1], document) for column in speed.race_columns(document)}
    assert columns["floor by tokens"] == "2.00" and columns["floor by passes"] == ("1.25" if newer else "")
    assert ("Floor by passes" in speed.race_intro(document)) == bool(newer)


def test_tokens_that_the_cloud_must_read():
  """All before its last own token, and rejected drafts: a row that ends locally, one of the edge alone, and a plain one."""
  local, draft, own = (int(kind) for kind in (Origin.LOCAL, Origin.DRAFT, Origin.BONUS))
  origin = np.array([[local, draft, own, local], [local] * 4, [own] * 4])
  counters = Counters(*(np.array(values) for values in ([1, 1, 3], [3, 0, 0], [1, 0, 0], [2, 4, 0], [1, 0, 4], [4, 4, 0])))
  result = DecodeResult(origin, np.full(3, 4), counters, origin == draft, origin, origin)
  np.testing.assert_array_equal(cloud_tokens(result), [2 + 2, 0, 3])


def test_distances_tell_distributions_apart():
  a, b = np.random.default_rng(0).normal(size=(2, 2000, 3))
  assert compare(a, b)["p"] > 0.01
  assert compare(a, b + np.array([0, 0, 0.3]))["p"] < 1e-6


def test_chosen_lengths_are_compared_with_the_fastest_fixed_one():
  seconds = {"base": 4.0, "a, gamma 3": 2.0, "a, gamma 7": 3.0, "a, gamma auto": 2.5, "b": 8.0}
  rows = [
    dict(batch=batch, label=label, seconds=[time * (1 + batch * (label == "a, gamma 7"))] * 6)
    for batch in (1, 4)
    for label, time in seconds.items()
  ]
  document = {"base": "base", "rows": rows}
  assert statistics.over_best_fixed(rows[3], document) == pytest.approx((0.8,) * 3)
  assert statistics.over_best_fixed(rows[1], document) is None
  lowest = statistics.lowest_speeds(document)
  assert lowest["a, gamma 7"] == (pytest.approx(4 / 15), 4) and lowest["b"][0] == 0.5 and "base" not in lowest


def test_a_race_compares_with_a_named_row_too():
  seconds = {"base": 4.0, "default": 2.0, "other": 1.6}
  rows = [dict(batch=1, label=label, seconds=[time] * 6) for label, time in seconds.items()]
  document = {"base": "base", "rows": rows, "against": "default"}
  assert [speed.against(row, document) for row in rows] == ["", "", "1.25 [1.25, 1.25]"]
  assert speed.against(rows[2], {"base": "base", "rows": rows}) == ""


def test_speeds_over_the_batch_are_drawn(tmp_path):
  pytest.importorskip("matplotlib")
  from experiments.figures import batches

  labels = {"plain": 1.0, "EAGLE": 0.5, "SJD, window auto": 0.8}
  rows = [dict(batch=b, label=label, seconds=[time * b + 0.01 * turn for turn in range(6)])
          for b in (1, 4, 64) for label, time in labels.items()]  # fmt: skip
  raced = batches.measured({"base": "plain", "source": "scenes", "rows": rows})
  assert list(raced) == ["EAGLE", "SJD, window auto"] and list(raced["EAGLE"]) == [1, 4, 64]
  given = batches.imposed({"rows": [dict(label="sjd", batch=4, over_plain=dict(median=2.0, low=1.5, high=2.5))]})
  batches.draw({"scenes": raced, "GPT-B": given}, tmp_path / "batches.png")
  assert (tmp_path / "batches.png").stat().st_size > 5000
