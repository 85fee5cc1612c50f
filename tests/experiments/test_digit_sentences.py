"""Sentences in pages about continuous tokens, scales and denoising steps of digits agree with their tables."""

import json

import numpy as np
import pytest

from experiments.run import RESULTS
from jaxspec.statistics import correct_table, paired_share_difference
from tests.experiments.measured import detectable_points, rows_of, table_of


def test_maps_of_digits():
  """docs/var.md and the pages of both methods: significant differences from the target."""
  rows = rows_of("hosts_table10_var")
  change = lambda label, metric: rows[label]["minus_first"][metric]
  for label in ("draft alone", *(f"CoDe, {first} of 6 scales" for first in (2, 3, 4, 5))):
    found = change(label, "class_accuracy")
    assert found["adjusted"] < 0.05 and found["value"] <= -0.065, label
  for rate in (20, 30, 40):
    found = change(f"CIAR at {rate} % calls", "class_accuracy")
    assert found["adjusted"] > 0.05 and -0.0225 < found["value"] <= -0.015
    assert (change(f"CIAR at {rate} % calls", "kid_digits")["adjusted"] < 0.05) == (rate == 20)
  for label in ("exact, map rule, gamma 2", "exact, place rule, gamma 2"):
    assert min(change(label, metric)["adjusted"] for metric in ("class_accuracy", "kid_digits")) > 0.05
  assert detectable_points("hosts_table10_var", ("exact",)) == [3.7, 3.9]
  calls = {"map rule, gamma 2": 4.15, "place rule, gamma 2": 4.39, "map rule, gamma 3": 3.96}
  assert {label: round(rows[f"exact, {label}"]["figures"]["calls_per_image"], 2) for label in calls} == calls
  lines = {line.split("|")[1].strip(): line.split("|") for line in table_of("hosts_table10_var")}
  speed = lambda start, batch: [
    float(cells[12 + (batch == 8)].split()[0]) for label, cells in lines.items() if label.startswith(start)
  ]
  of = lambda start, batch: (min(speed(start, batch)), max(speed(start, batch)))
  assert of("exact", 1) == (0.69, 0.78) and of("exact", 8) == (0.39, 0.57) and of("CIAR", 1) == (0.87, 0.88)
  assert of("CoDe", 1) == (1.28, 1.64) and 3 < speed("draft alone", 1)[0] < 4


def test_steps_of_digits():
  """docs/dit.md and the card of the pair: significant differences from the target."""
  rows = rows_of("hosts_table10_dit")
  change = lambda label, metric: rows[label]["minus_first"][metric]
  lost = {"draft alone": 67.4, "CIAR at 20 % calls": 52.6, "CIAR at 30 % calls": 40.4, "CIAR at 40 % calls": 21.8}
  lost |= {f"the first {share} % by the target": points for share, points in ((25, 65.8), (50, 48.9), (75, 7.2))}
  for label, points in lost.items():
    found = change(label, "class_accuracy")
    assert found["adjusted"] < 0.05 and 100 * found["value"] == pytest.approx(-points, abs=0.051), label
  exact = [label for label in rows if label.startswith("exact")]
  assert len(exact) == 5 and detectable_points("hosts_table10_dit", ("exact",)) == [4.1, 4.5]
  for label in exact:
    assert min(change(label, metric)["adjusted"] for metric in ("class_accuracy", "kid_digits")) > 0.05, label
  for steps in (50, 25, 12):
    label = f"target, {steps} steps"
    assert change(label, "class_accuracy")["adjusted"] > 0.05
    assert (change(label, "kid_digits")["adjusted"] < 0.05) == (steps != 50)
  for label, share in {"target": 0.939, "draft alone": 0.265}.items():
    assert rows[label]["metrics"]["class_accuracy"]["value"] == pytest.approx(share), label
  calls = {"draft network, gamma 8": 34.6, "draft network, gamma 4": 39.7, "frozen draft, gamma 4": 77.2}
  lines = {line.split("|")[1].strip(): line.split("|") for line in table_of("hosts_table10_dit")}
  for label, percent in calls.items():
    assert float(lines[f"exact, {label}"][2]) == pytest.approx(percent, abs=0.051), label
    assert float(lines[f"exact, {label}"][2]) < float(lines["CIAR at 40 % calls"][2]) or "frozen" in label
  for gamma in (2, 4, 8):
    along = lines[f"exact, draft network, gamma {gamma}"][5].split()
    assert (along[0], along[-1]) == ("92", "20")
  speed = lambda label, batch: float(lines[label][12 + (batch == 8)].split()[0])
  drafted = [f"exact, draft network, gamma {gamma}" for gamma in (2, 4, 8)]
  assert [speed(label, 1) for label in (drafted[0], drafted[-1])] == [0.66, 0.42]
  assert [speed(label, 8) for label in (drafted[0], drafted[-1])] == [0.64, 0.31]
  assert max(speed(label, batch) for label in exact for batch in (1, 8)) < 0.7
  assert [round(100 / 34.6 / speed(drafted[-1], batch)) for batch in (1, 8)] == [7, 9]  # plain passes for a round
  assert [round(speed(f"CIAR at {rate} % calls", 1), 1) for rate in (20, 40)] == [1.9, 1.4]
  assert round(speed("target, 25 steps", 1), 1) == 3.8 and speed("target, 50 steps", 8) > speed("CIAR at 20 % calls", 8)


def test_further_steps_of_digits():
  """docs/dit.md: last steps by the target, DDIM, and the weighted score; paired with the rows of the first table."""
  rows, first = rows_of("hosts_further_dit"), rows_of("hosts_table10_dit")
  right = lambda row: np.array(row["per_image"]["class_accuracy"])
  assert (right(rows["target"]) == right(first["target"])).all()
  weighted = {rate: rows[f"CIAR, weighted score, at {rate} % calls"] for rate in (20, 30, 40)}
  pairs = {f"last {share}": (rows[f"the last {share} % by the target"], first[f"the first {share} % by the target"])
           for share in (25, 50, 75)}  # fmt: skip
  pairs |= {f"weighted {rate}": (row, first[f"CIAR at {rate} % calls"]) for rate, row in weighted.items()}
  pairs["weighted over last"] = (weighted[40], rows["the last 40 % by the target"])
  pairs["DDIM over weighted"] = (rows["target, 20 steps of DDIM"], weighted[40])
  found = correct_table({name: paired_share_difference(right(a), right(b)) for name, (a, b) in pairs.items()})
  points = lambda name: [round(100 * value, 1) for value in found[name].difference[:3]]
  assert [points(f"last {share}")[0] for share in (25, 50, 75)] == [15.4, 40.8, 6.8]
  assert points("weighted 20") == [16.1, 12.7, 19.4] and points("weighted 30") == [13.3, 10.1, 16.4]
  assert points("weighted 40") == [3.8, 1.5, 6.1] and points("weighted over last") == [5.5, 3.1, 7.9]
  assert points("DDIM over weighted") == [14.7, 11.5, 17.8]
  assert max(one.adjusted for one in found.values()) < 0.01
  change = lambda label: rows[label]["minus_first"]["class_accuracy"]
  assert detectable_points("hosts_further_dit", ("the last 75",)) == [2.5, 2.5]
  ddim = {steps: change(f"target, {steps} steps of DDIM") for steps in (50, 25, 20, 12)}
  assert [steps for steps, one in ddim.items() if one["adjusted"] < 0.05] == [25] and round(
    100 * ddim[25]["value"], 1
  ) == -4.0
  assert change("the last 75 % by the target")["adjusted"] > 0.05
  lines = {line.split("|")[1].strip(): line.split("|") for line in table_of("hosts_further_dit")}
  speed = lambda label, column: float(lines[label][column].split()[0])
  found = [[speed(f"CIAR, weighted score, at {rate} % calls", column) for rate in (20, 30, 40)] for column in (-3, -2)]
  assert [round(one, 1) for one in found[0]] == [2.0, 1.5, 1.4] and all(1.05 < one < 1.25 for one in found[1])
  assert [round(speed("target, 20 steps", column), 1) for column in (-3, -2)] == [4.6, 4.9]


def test_continuous_tokens_of_digits():
  """results/continuous_tokens.md: effects of rules on digits of the causal pair."""
  rows = rows_of("cspd_digits_causal")
  change = {label: row["minus_first"]["class_accuracy"] for label, row in rows.items() if label != "target"}
  lost = {label: round(-100 * one["value"]) for label, one in change.items()}
  assert (lost["released, gamma 4"], lost["released, gamma 8"], lost["draft alone"]) == (30, 36, 46)
  shows = {label for label, one in change.items() if one["adjusted"] < 0.05}
  assert shows == {"released, gamma 4", "released, gamma 8", "draft alone"}
  kept = [label for label in change if label.startswith(("published", "exact"))]
  assert len(kept) == 4 and all(0.35 <= rows[label]["figures"]["calls_per_image"] / 64 <= 0.405 for label in kept)
  assert all(round(rows[f"released, gamma {gamma}"]["figures"]["alpha"]["value"], 2) == 0.97 for gamma in (4, 8))
  assert detectable_points("cspd_digits_causal", ("published", "exact")) == [5.7, 6.2]
  assert [round(value) for value in detectable_points("cspd_digits_mar")] == [19, 31]


def test_acceptance_of_continuous_tokens():
  """results/continuous_tokens.md: alignment, draft length and guidance."""
  documents = {
    name: json.loads((RESULTS / f"cspd_{name}_causal.json").read_text()) for name in ("alignment", "gamma", "guidance")
  }
  alpha = {
    name: {(row["label"], *row["walked"].values()): row["figures"]["alpha"] for row in document["rows"]}
    for name, document in documents.items()
  }
  short = {key: round(one["value"], 2) for key, one in alpha["alignment"].items()}
  assert (short["published, not aligned", 4], short["published", 4]) == (0.22, 0.69)
  assert {round(one["value"], 2) for one in alpha["gamma"].values()} <= {0.67, 0.68, 0.69}
  assert max(one["low"] for one in alpha["gamma"].values()) < min(one["high"] for one in alpha["gamma"].values())
  share = {
    row["walked"]["gamma"]: row["figures"]["accepted_share"]
    for row in documents["gamma"]["rows"]
    if row["label"] == "published"
  }
  assert (round(share[4], 2), round(share[32], 2)) == (0.42, 0.08)
  guided = alpha["guidance"]
  for rule, values in (("published", [0.69, 0.67, 0.64]), ("exact", [0.68, 0.66, 0.63])):
    found = [guided[rule, 4, scale] for scale in (1.0, 2.0, 3.0)]
    assert [one["value"] for one in found] == pytest.approx(values, abs=0.0051) and found[0]["low"] > found[2]["high"]


def test_the_released_program_on_digits():
  """results/continuous_tokens.md: images of whole blocks beside the target in as many iterations."""
  rows = rows_of("cspd_digits_blocks_mar")
  change = {label: row["minus_first"]["class_accuracy"] for label, row in rows.items() if "minus_first" in row}
  assert [label for label, one in change.items() if one["adjusted"] < 0.05] == ["draft alone"]
  assert round(100 * change["draft alone"]["value"]) == -17
  calls = [rows[f"program, gamma {gamma}"]["figures"]["calls_per_image"] for gamma in (4, 8, 16, 32)]
  assert calls == [17, 9, 5, 3] == [rows[f"target, {n} iterations"]["figures"]["calls_per_image"] for n in (17, 9, 5, 3)]
  assert [round(value) for value in detectable_points("cspd_digits_blocks_mar", tuple(change))] == [14, 17]
  accepted = [rows[f"program, gamma {gamma}"]["figures"]["alpha"]["value"] for gamma in (4, 8, 16, 32)]
  assert 0.49 < min(accepted) < max(accepted) < 0.51


def test_digits_without_guidance():
  """results/continuous_tokens.md: the MAR pair without guidance."""
  rows = rows_of("cspd_digits_plain_mar")
  change = {label: row["minus_first"]["class_accuracy"] for label, row in rows.items() if "minus_first" in row}
  assert [label for label, one in change.items() if one["adjusted"] < 0.05] == ["draft alone"]
  assert round(100 * change["draft alone"]["value"], 1) == -16.7
  assert rows["target"]["metrics"]["class_accuracy"]["value"] == pytest.approx(0.575)
  assert [round(value) for value in detectable_points("cspd_digits_plain_mar", tuple(change))] == [17, 25]
  calls = [round(rows[f"{name}, gamma 4"]["figures"]["calls_per_image"]) for name in ("exact", "released")]
  assert calls == [44, 16]


def test_digits_with_guidance():
  """results/continuous_tokens.md: the causal pair with guidance."""
  rows = rows_of("cspd_digits_guided_causal")
  change = {label: row["minus_first"]["class_accuracy"] for label, row in rows.items() if "minus_first" in row}
  assert [label for label, one in change.items() if one["adjusted"] < 0.05] == ["draft alone"]
  assert round(100 * change["draft alone"]["value"]) == -45
  assert rows["target"]["metrics"]["class_accuracy"]["value"] == pytest.approx(0.927)
  rules = [label for label in rows if "gamma" in label]
  shares = [round(100 * rows[label]["figures"]["calls_per_image"] / 64) for label in rules]
  assert (len(rules), min(shares), max(shares)) == (4, 37, 42)
  assert [round(value, 1) for value in detectable_points("cspd_digits_guided_causal", tuple(rules))] == [4.0, 4.3]


def test_acceptance_of_the_mar_pair():
  """results/continuous_tokens.md: alignment and draft length on the MAR pair."""
  alpha = lambda name: {
    (row["label"], row["walked"]["gamma"]): row["figures"]["alpha"]
    for row in json.loads((RESULTS / f"cspd_{name}_mar.json").read_text())["rows"]
  }
  found = {key: one["value"] for key, one in alpha("alignment").items()}
  rules = ("published, not aligned", "published", "released, not aligned", "released")
  assert [found[rule, 4] for rule in rules] == pytest.approx([0.005, 0.22, 0.88, 0.92], abs=0.0051)
  assert round(found[rules[0], 4], 3) == 0.005
  over = alpha("gamma")
  for rule, values in {"published": {0.22}, "released": {0.92, 0.93, 0.94}}.items():
    intervals = [one for (label, _), one in over.items() if label == rule]
    assert {round(one["value"], 2) for one in intervals} <= values and len(intervals) == 4
    assert max(one["low"] for one in intervals) < min(one["high"] for one in intervals)


def test_prefixes_of_the_mar_pair():
  """results/continuous_tokens.md: calls over the prefix, with the released test and program."""
  rows = json.loads((RESULTS / "cspd_prefix_mar.json").read_text())["rows"]
  for rule, calls in {"released": [10.6, 12.7, 18.0], "program": [9, 11, 16]}.items():
    found = [row["figures"] for row in rows if row["label"] == rule and row["walked"]["gamma"] == 8]
    assert [round(one["calls_per_image"], 1) for one in found] == calls
  alphas = [row["figures"]["alpha"] for row in rows]
  assert len(alphas) == 18 and max(one["low"] for one in alphas) < min(one["high"] for one in alphas)


def test_ends_and_prefixes_of_continuous_tokens():
  """results/continuous_tokens.md: ends of chains, and the cost of a prefix, with the exact rule."""
  found = {}
  for name in ("ends", "prefix"):
    rows = json.loads((RESULTS / f"cspd_{name}_causal.json").read_text())["rows"]
    found[name] = [row["figures"] for row in rows if row["label"] == "exact"]
  value = lambda one: one["alpha"]["value"]
  assert [round(value(one), 2) for one in found["ends"]] == [0.45, 0.59, 0.68]
  assert [round(value(one), 2) for one in found["prefix"]] == [0.69, 0.68, 0.64]
  assert [round(one["calls_per_image"], 1) for one in found["prefix"]] == [22.2, 23.7, 29.8]
  rows = json.loads((RESULTS / "cspd_temperature_causal.json").read_text())["rows"]
  alpha = {(row["label"], row["walked"]["cfg_scale"], row["walked"]["temperature"]): row["figures"]["alpha"] for row in rows}
  apart = {key[:2] for key in alpha if key[2] == 0.9 and alpha[key]["high"] < alpha[*key[:2], 1.0]["low"]}
  assert apart == {("published", 2.0)}


def test_speed_of_continuous_tokens():
  """results/continuous_tokens.md: times over the target alone."""

  def rows_of_speed(name):
    head, *body = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_of(f"cspd_speed_{name}")]
    return [dict(zip(head, cells)) for cells in body]

  tables = {name: rows_of_speed(name) for name in ("causal", "digits", "mar", "blocks_mar")}
  larger, digits, mar, blocks = (
    {(row["decode"], row["batch"]): float(row["speed over target"].split()[0]) for row in rows} for rows in tables.values()
  )
  spans = {"1": (1.95, 3.0), "8": (1.54, 2.41), "32": (1.71, 2.5)}
  for batch, span in spans.items():
    assert span == tuple(blocks[f"program {gamma}", batch] for gamma in (4, 32))
    assert span == (min(found := [blocks[f"program {gamma}", batch] for gamma in (4, 8, 16, 32)]), max(found))
  prefixes = [blocks[f"program 8{words}", "1"] for words in ("", ", prefix 0.05", ", prefix 0.15")]
  assert prefixes == [2.33, 2.25, 2.03]
  slower = [row["over the target at equal calls"] for row in tables["blocks_mar"] if row["decode"].startswith("program")]
  assert all(float(cell.rstrip("]").split(", ")[1]) < 1 for cell in slower)
  free = [row for row in tables["blocks_mar"] if row["decode"] in {f"program {gamma}" for gamma in (4, 8, 16, 32)}]
  medians = [float(row["over the target at equal calls"].split()[0]) for row in free]
  assert (min(medians), max(medians)) == (0.51, 0.77)
  assert [larger[f"exact {gamma}", "1"] for gamma in (3, 7, 15, 31)] == [1.41, 1.53, 1.44, 0.90]
  wide = [value for (label, batch), value in larger.items() if label.startswith("exact") and batch != "1"]
  assert (min(wide), max(wide)) == (0.31, 0.98)
  rules = [value for (label, _), value in digits.items() if label.startswith(("exact", "published"))]
  assert (min(rules), max(rules)) == (0.13, 0.70)
  assert [mar[f"{rule} {gamma}", "1"] for rule in ("released", "exact") for gamma in (4, 8)] == [1.19, 1.25, 0.37, 0.24]
  assert (mar["released 4", "8"], mar["exact 4", "8"]) == (0.68, 0.22)
  equal = {(row["decode"], row["batch"]): row["over the target at equal calls"] for row in tables["mar"]}
  shown = {("released 4", "1"): "0.46", ("released 8", "1"): "0.36", ("released 4", "8"): "0.34"}
  assert all(
    equal[row].startswith(value) and float(equal[row].rstrip("]").split(", ")[1]) < 1 for row, value in shown.items()
  )
  for name in ("digits", "mar", "blocks_mar"):
    assert all(0 < float(row["p, Holm"]) < 0.0125 for row in tables[name] if row["decode"] != "target")
