"""Sentences of docs/results/sqs.md agree with the tables of `sqs`."""

import json

import pytest

from experiments.engine import sweep_claims
from experiments.engine.sweep_claims import Pair
from experiments.run import RESULTS

PAGE = (RESULTS.parents[1] / "docs" / "results" / "sqs.md").read_text()
ALL = ("0.2", "0.4", "0.6", "0.8", "1")
FIRSTS = ("0.001", "0.005", "0.02", "0.1")


@pytest.fixture(scope="module")
def sweep():
  return json.loads((RESULTS / "sqs_sweep.json").read_text())


@pytest.fixture(scope="module")
def orders(sweep):
  return {pair: sweep_claims.order_of(verdict) for pair, verdict in sweep_claims.verdicts(sweep).items()}


def cell(sweep, label: str, temperature: str, name: str = "ms_per_token") -> float:
  (row,) = [row for row in sweep["rows"] if row["label"] == label]
  return row["at"][temperature][name][0]


def test_times_of_a_pass(sweep):
  config = sweep["config"]
  plain = config["cloud_ms"] + config["cloud_token_ms"]
  assert config["edge_ms"] == pytest.approx(0.10, abs=0.005) and plain == pytest.approx(0.45, abs=0.005)
  assert config["cloud_token_ms"] == pytest.approx(0.03, abs=0.005) and plain / config["edge_ms"] == pytest.approx(
    4, abs=0.5
  )
  assert (config["max_drafts"], config["budget"], sweep["num_rows"], sweep["num_prompts"]) == (5, 5000, 64, 32)
  assert config["spread"]["edge"] == pytest.approx([0.089, 0.110], abs=5e-4)
  cells = {(row["label"], t): at["ms_per_token"] for row in sweep["rows"] for t, at in row["at"].items()}
  faster = {where: found for where, found in cells.items() if found[0] < plain}
  assert set(faster) == {(f"C-SQS, beta_1 = 0.02, {name}", "0.2") for name in ("published", "quick")}
  assert all(high > plain for _, _, high in faster.values())  # not significantly faster than plain decoding


@pytest.mark.slow
def test_a_small_support_is_best_and_there_is_no_crossover(sweep, orders):
  assert sweep["subject"] == "K-SQS, K = 4"
  slower = lambda support: [orders[Pair(f"K-SQS, K = {support}", "K-SQS, K = 4", t)] for t in ALL]
  assert slower(8) == [1, 1, 0, 0, 0] and all(slower(support) == [1] * 5 for support in (16, 32, 64, 128))
  cold, hot = (
    [cell(sweep, name, t) for name in ("K-SQS, K = 32", "C-SQS, beta_1 = 0.005, published")] for t in ("0.2", "1")
  )
  assert cold[0] > cold[1] and hot[0] < hot[1]  # the crossover of figure 2
  for temperature, factor in zip(ALL, (1.96, 1.8, 1.6, 1.6, 1.5)):
    assert orders[Pair("K-SQS, K = 32", "K-SQS, K = 4", temperature)] == 1
    ratio = cell(sweep, "K-SQS, K = 32", temperature) / cell(sweep, "K-SQS, K = 4", temperature)
    assert ratio == pytest.approx(factor, abs=0.1)
  assert cell(sweep, "K-SQS, K = 32", "1", "tokens_per_round") == pytest.approx(2.3, abs=0.05)
  assert cell(sweep, "K-SQS, K = 4", "1", "tokens_per_round") == pytest.approx(1.8, abs=0.05)
  faster = {pair for pair, order in orders.items() if pair.other == "K-SQS, K = 4" and order == -1}
  assert faster == {Pair(f"C-SQS, beta_1 = 0.02, {name}", "K-SQS, K = 4", "0.2") for name in ("fixed", "published", "quick")}


@pytest.mark.slow
def test_adapting_costs_when_hot(sweep, orders):
  against = lambda first, name, temperature: orders[
    Pair(f"C-SQS, beta_1 = {first}, {name}", f"C-SQS, beta_1 = {first}, fixed", temperature)
  ]
  assert [against(first, "published", "1") for first in FIRSTS] == [1, 1, 1, 0]
  assert all(against(first, "quick", temperature) == 1 for first in FIRSTS for temperature in ("0.6", "0.8", "1"))
  assert [against(first, "quick", "0.2") for first in FIRSTS] == [-1, -1, 0, 0]
  label = "C-SQS, beta_1 = 0.02, {}"
  supports = [cell(sweep, label.format(name), "1", "mean_support") for name in ("quick", "fixed")]
  assert supports == pytest.approx([244, 6], abs=0.5)
  (quick,) = [row for row in sweep["rows"] if row["label"] == label.format("quick")]
  assert quick["at"]["1"]["final_beta"] < 0 and quick["options"]["support"] == 256
  drafts = [cell(sweep, label.format(name), "1", "drafts_per_round") for name in ("quick", "fixed")]
  rejected = [cell(sweep, label.format(name), "1", "resampling_rate") for name in ("quick", "fixed")]
  assert drafts == pytest.approx([3.0, 4.8], abs=0.05) and rejected == pytest.approx([0.73, 0.93], abs=0.005)


def test_the_budget_alone_has_the_published_orders(sweep):
  budget = json.loads((RESULTS / "sqs_budget.json").read_text())
  found = sweep_claims.verdicts(budget)
  assert budget["subject"] == "K-SQS, K = 32" and len(found) == 36 and budget["config"]["max_drafts"] == 80
  assert (budget["num_rows"], budget["num_prompts"]) == (128, 32)
  against = {pair: found[pair] for pair in found if pair.other == "K-SQS, K = 32"}
  order = lambda label: [sweep_claims.order_of(against[Pair(label, "K-SQS, K = 32", t)]) for t in ("0.2", "0.6", "1")]
  assert order("C-SQS, beta_1 = 0.005, published") == [1, 1, -1] and order("C-SQS, beta_1 = 0.005, quick") == [1, 0, -1]
  assert order("C-SQS, beta_1 = 0.02, published") == [1, 1, 1] and order("K-SQS, K = 64") == [-1, -1, -1]
  adapting = [verdict for pair, verdict in found.items() if pair.other.endswith("fixed")]
  assert len(adapting) == 12 and max(map(sweep_claims.order_of, adapting)) == 0
  least = [verdict.detectable for verdict in adapting]
  assert (round(min(least), 2), round(max(least), 1)) == (0.01, 0.3)
  for label, other, temperature in (
    ("C-SQS, beta_1 = 0.005, published", "K-SQS, K = 32", "0.2"),
    ("C-SQS, beta_1 = 0.005, published", "K-SQS, K = 32", "0.6"),
    ("C-SQS, beta_1 = 0.005, published", "K-SQS, K = 32", "1"),
    ("C-SQS, beta_1 = 0.005, quick", "K-SQS, K = 32", "0.2"),
    ("C-SQS, beta_1 = 0.005, quick", "K-SQS, K = 32", "1"),
    ("C-SQS, beta_1 = 0.005, published", "C-SQS, beta_1 = 0.005, fixed", "1"),
    ("C-SQS, beta_1 = 0.02, published", "C-SQS, beta_1 = 0.02, fixed", "1"),
  ):
    one = found[Pair(label, other, temperature)].difference
    low, high = sorted((abs(one.low), abs(one.high)))
    assert f"{abs(one.value):.2f} [{low:.2f}, {high:.2f}]" in PAGE, (label, temperature)
  drafts = [cell(budget, f"K-SQS, K = {support}", "0.2", "drafts_per_round") for support in (4, 32)]
  assert drafts == pytest.approx([49, 13], abs=0.5)
  assert cell(budget, "K-SQS, K = 4", "0.2", "tokens_per_round") == pytest.approx(3.8, abs=0.05)  # one is the target's own
  moving = "C-SQS, beta_1 = 0.005, published"
  assert cell(budget, moving, "1", "mean_support") == pytest.approx(161, abs=0.5)
  assert cell(budget, moving, "1", "drafts_per_round") == pytest.approx(4.3, abs=0.05)
  for row in budget["rows"]:
    for temperature in row["at"]:
      assert cell(sweep, row["label"], temperature) < cell(budget, row["label"], temperature)
  times = [cell(table, f"K-SQS, K = {support}", "0.2") for support in (4, 32) for table in (sweep, budget)]
  assert times == pytest.approx([0.48, 2.64, 0.94, 1.79], abs=0.005)


def test_long_runs():
  document = json.loads((RESULTS / "sqs_long_runs.json").read_text())
  rows = {row["label"]: row["after"][str(document["config"]["texts"])] for row in document["rows"]}
  assert document["streams"] == 16 and document["config"]["texts"] == 20
  for label in ("published, beta_1 = 0.005", "published, beta_1 = 0.1", "quick, beta_1 = 0.1",
                "quick, beta_1 = 0.1, literal policy", "quick, beta_1 = 0.1, drafted policy"):  # fmt: skip
    found = rows[label]
    assert found["tokens"] == 4780
    assert f"| {label} | {found['worst']:.4f} | {found['bound']:.4f} | {found['over']} |" in PAGE
    assert found["over"] == (16 if "policy" in label else 0)
    if "policy" not in label:
      assert 0.8 * found["bound"] < found["worst"] < found["bound"]
  assert f"| fixed, beta_1 = 0.005 | {rows['fixed, beta_1 = 0.005']['worst']:.4f} | none | |" in PAGE
  moving = [found["support"] for label, found in rows.items() if not label.startswith("fixed")]
  assert (round(min(moving)), round(max(moving)), round(rows["fixed, beta_1 = 0.005"]["support"])) == (1112, 1282, 26)


def test_tables_of_the_page(sweep):
  """Every figure of the page's two tables is the table's."""
  for label, words in (
    ("K-SQS, K = 4", "K-SQS, K = 4"),
    ("K-SQS, K = 32", "K-SQS, K = 32"),
    ("C-SQS, beta_1 = 0.02, fixed", "C-SQS, beta_1 = 0.02, fixed threshold"),
    ("C-SQS, beta_1 = 0.02, published", "C-SQS, beta_1 = 0.02, published controller (eta 0.001)"),
    ("C-SQS, beta_1 = 0.02, quick", "C-SQS, beta_1 = 0.02, quick controller (eta 0.05)"),
  ):
    marks = sweep_claims.words_of(sweep)
    cells = []
    (row,) = [row for row in sweep["rows"] if row["label"] == label]
    for temperature in ("0.2", "0.6", "1"):
      value, low, high = row["at"][temperature]["ms_per_token"]
      mark = marks.get((label, temperature), "")
      cells.append(f"{value:.2f} [{low:.2f}, {high:.2f}]" + (f", {mark}" if mark else ""))
    assert f"| {words} | {' | '.join(cells)} |" in PAGE
  document = json.loads((RESULTS / "sqs_codecs.json").read_text())
  names = {"lazy, K = 64": "`lazy`", "trimmed, K = 64": "`trimmed`", "K-SQS, K = 64": "`paper`"}
  names["half precision"] = "half-precision distributions of the whole vocabulary"
  for label, words in names.items():
    rows = [row for row in document["rows"] if row["label"] == label]
    bits = ", ".join(f"{row['coded_bits_per_token'][0]:,.0f}" for row in rows)
    rates = []
    for temperature in (0.2, 0.6, 1.0):
      pays = [
        entry["mbps"]
        for entry in document["break_even"]
        if entry["temperature"] == temperature
        and entry["faster_above"] == label
        and entry["faster_below"] == "plain decoding"
      ]
      rates.append(f"{float(f'{pays[0]:.1g}'):,g}" if pays else "never")
    assert f"| {words} | {bits} | {', '.join(rates)} |" in PAGE
  for label, words in (("K-SQS, K = 64", "0.55 [0.53, 0.56]"), ("K-SQS, K = 8", "0.62 [0.60, 0.65]")):
    (row,) = [row for row in document["rows"] if row["label"] == label and row["temperature"] == 1.0]
    assert "{:.2f} [{:.2f}, {:.2f}]".format(*row["ms_per_token"]["20"]) == words and words in PAGE
  config, plain = document["config"], document["plain_ms"]
  (lazy,) = [row for row in document["rows"] if row["label"] == "lazy, K = 64" and row["temperature"] == 0.2]
  passes = (lazy["drafts_per_round"][0] + 0.5) / lazy["tokens_per_round"][0]  # and those that find the end of a round
  rates = []
  for edge_ms in config["spread"]["edge"]:
    ms = lazy["ms_without_uplink"] + passes * (edge_ms - config["edge_ms"])
    rates.append(lazy["uplink_bits_per_token"] / (plain - ms) / 1e3)
  assert rates == pytest.approx([1.8, 4.1], abs=0.4)
  of_64 = [row for row in document["rows"] if row["label"].endswith("K = 64")]
  for temperature in (0.2, 0.6, 1.0):
    rounds = {row["tokens_per_round"][0] for row in of_64 if row["temperature"] == temperature}
    assert len(rounds) == 1  # the same drafts
  assert rounds.pop() == pytest.approx(2.5, abs=0.05)
