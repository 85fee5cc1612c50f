"""Sentences in pages agree with their tables."""

import json
import statistics

import numpy as np
import pytest

from experiments.configs import scenes
from experiments.engine import claims, lossy, seeds
from experiments.run import RESULTS, documents
from jaxspec.rules.distances import distance_table
from jaxspec.run.loading import load_pipeline

DOCS = RESULTS.parents[1] / "docs" / "results"


def rows_of(name: str) -> dict[str, dict]:
  """Rows of a committed table by their label."""
  return {row["label"]: row for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]}


def table_of(name: str) -> list[str]:
  """Lines of a committed table."""
  return [line for line in (RESULTS / f"{name}.md").read_text().splitlines() if line.startswith("| ")]


def detectable_points(name: str, starts: tuple[str, ...] = ("",)) -> list[float]:
  """Smallest and largest detectable difference of accuracy from the first row, over rows with these labels."""
  found = [row["minus_first"] for label, row in rows_of(name).items() if "minus_first" in row and label.startswith(starts)]
  return [round(100 * pick(one["class_accuracy"]["detectable"] for one in found), 1) for pick in (min, max)]


def test_maps_of_digits():
  """docs/var.md and the pages of both methods: significant differences from the target."""
  rows = rows_of("hosts_table10_var")
  change = lambda label, metric: rows[label]["minus_first"][metric]
  for label in ("draft alone", *(f"CoDe, {first} of 6 maps" for first in (2, 3, 4, 5))):
    found = change(label, "class_accuracy")
    assert found["adjusted"] < 0.05 and found["value"] < -0.065, label
  for rate in (20, 30, 40):
    found = change(f"CIAR at {rate} % calls", "class_accuracy")
    assert found["adjusted"] > 0.05 and -0.0245 < found["value"] < -0.015
    assert (change(f"CIAR at {rate} % calls", "kid_digits")["adjusted"] < 0.05) == (rate != 30)
  for label in ("exact, map rule, gamma 2", "exact, place rule, gamma 2"):
    assert min(change(label, metric)["adjusted"] for metric in ("class_accuracy", "kid_digits")) > 0.05
  assert detectable_points("hosts_table10_var", ("exact",)) == [3.8, 3.9]
  lines = {line.split("|")[1].strip(): line.split("|") for line in table_of("hosts_table10_var")}
  speed = lambda start, batch: [
    float(cells[12 + (batch == 8)].split()[0]) for label, cells in lines.items() if label.startswith(start)
  ]
  of = lambda start, batch: (min(speed(start, batch)), max(speed(start, batch)))
  assert of("exact", 1) == (0.63, 0.72) and of("exact", 8) == (0.38, 0.56) and of("CIAR", 1) == (0.79, 0.82)
  assert of("CoDe", 1) == (1.18, 1.52) and 3 < speed("draft alone", 1)[0] < 4


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
  assert [round(speed(f"CIAR at {rate} % calls", 1), 1) for rate in (20, 40)] == [1.9, 1.4]
  assert round(speed("target, 25 steps", 1), 1) == 3.8 and speed("target, 50 steps", 8) > speed("CIAR at 20 % calls", 8)


def test_lossy_methods_on_scenes():
  """results/lossy.md: losses of correct images, and saved calls."""
  rows = rows_of("scenes_lossy")
  right, plain = {label: row["metrics"]["right"]["value"] for label, row in rows.items()}, rows["plain decoding"]
  saved = {label: 1 - row["calls_per_image"] / plain["calls_per_image"] for label, row in rows.items()}
  lost = {label: right["plain decoding"] - value for label, value in right.items()}
  assert lost["static groups of 10"] == pytest.approx(0.40, abs=0.005)
  assert lost["CIAR, everything local"] == pytest.approx(0.66, abs=0.005)
  others = set(rows) - {"static groups of 10", "CIAR, everything local"}
  assert max(lost[label] for label in others) < 0.02
  drafted = {label for label in others if "LANTERN" in label}
  assert len(drafted) == 3 and all(saved[label] == pytest.approx(0.85, abs=0.005) for label in drafted)
  jacobi = {label for label in others if label.startswith(("GSD", "scaled"))}
  assert len(jacobi) == 5 and all(saved[label] == pytest.approx(0.44, abs=0.006) for label in jacobi)
  assert saved["GSD, G 50, no gap"] - saved["GSD, G 50"] < 0.01
  exact = rows_of("scenes_speed")["speculative, one layer"]
  assert 1 - statistics.mean(exact["target_calls"]) / 144 == pytest.approx(0.85, abs=0.005)


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


def test_ends_and_prefixes_of_continuous_tokens():
  """results/continuous_tokens.md: ends of chains, and the cost of a prefix, with the exact rule."""
  found = {}
  for name in ("ends", "prefix"):
    rows = json.loads((RESULTS / f"cspd_{name}_causal.json").read_text())["rows"]
    found[name] = [row["figures"] for row in rows if row["label"] == "exact"]
  value = lambda one: one["alpha"]["value"]
  assert [round(value(one), 2) for one in found["ends"]] == [0.45, 0.59, 0.68]
  assert [round(value(one), 2) for one in found["prefix"]] == [0.69, 0.68, 0.64]
  assert [round(one["calls_per_image"], 1) for one in found["prefix"]] == [22.2, 23.7, 30.2]
  rows = json.loads((RESULTS / "cspd_temperature_causal.json").read_text())["rows"]
  alpha = {(row["label"], row["walked"]["cfg_scale"], row["walked"]["temperature"]): row["figures"]["alpha"] for row in rows}
  apart = {key[:2] for key in alpha if key[2] == 0.9 and alpha[key]["high"] < alpha[*key[:2], 1.0]["low"]}
  assert apart == {("published", 2.0)}


def test_speed_of_continuous_tokens():
  """results/continuous_tokens.md: times over the target alone."""

  def speeds(name):
    head, *body = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_of(name)]
    rows = [dict(zip(head, cells)) for cells in body]
    return {(row["decode"], row["batch"]): float(row["speed over target"].split()[0]) for row in rows}

  larger, digits, mar = (speeds(f"cspd_speed_{name}") for name in ("causal", "digits", "mar"))
  assert [larger[f"exact {gamma}", "1"] for gamma in (3, 7, 15, 31)] == [1.41, 1.53, 1.44, 0.90]
  wide = [value for (label, batch), value in larger.items() if label.startswith("exact") and batch != "1"]
  assert (min(wide), max(wide)) == (0.31, 0.98)
  rules = [value for (label, _), value in digits.items() if label.startswith(("exact", "published"))]
  assert (min(rules), max(rules)) == (0.15, 0.70)
  assert [mar[f"{rule} {gamma}", "1"] for rule in ("released", "exact") for gamma in (4, 8)] == [1.19, 1.32, 0.37, 0.24]
  assert (mar["released 4", "8"], mar["exact 4", "8"]) == (0.71, 0.23)
  assert round(mar["parallel 15", "1"] / mar["released 4", "1"], 1) == 2.4


def test_walks_of_groups_and_factors_on_scenes():
  """results/lossy.md: neither changes the number of calls."""
  for name, first, last in (
    ("gsd_groups", "GSD, G 3", "GSD, G 50"),
    ("lantern_factors", "LANTERN++, lambda 1.5", "LANTERN++, lambda 20"),
  ):
    rows = rows_of(f"scenes_{name}")
    walked = [row["calls_per_image"] for label, row in rows.items() if label.startswith(("GSD", "LANTERN"))]
    assert max(walked) - min(walked) <= 0.2 and {first, last} <= rows.keys()
    assert table_of(f"scenes_{name}") and "no difference is significant" in (RESULTS / f"scenes_{name}.md").read_text()


def test_lossy_methods_without_top_p():
  """results/lossy.md, results/discrete.md: losses of relaxed rules, and their bias."""
  rows, text = rows_of("scenes_audit"), (RESULTS / "scenes_audit.md").read_text()
  right = {label: 100 * row["metrics"]["right"]["value"] for label, row in rows.items()}
  saved = {label: 100 * (1 - row["calls_per_image"] / 144) for label, row in rows.items()}
  audited = claims.verdicts(documents(RESULTS)["scenes_audit"])
  lost = {"GSD, G 50": 12.9, "GSD, G 50, no gap": 63.7, "static groups of 10": 40.4, "scaled by 5": 5.1}
  for label, points in lost.items():
    verdict = audited[label, "right"]
    assert verdict.reference == "SJD, coupled" and verdict.order == 1
    assert 100 * verdict.difference.value == pytest.approx(points, abs=0.051), label
  assert round(right["plain decoding"]) == 65 and round(right["GSD, G 50, no gap"]) == 2
  kept = {label for (label, metric), verdict in audited.items() if metric == "right" and not verdict.order}
  assert kept == rows.keys() - lost.keys() - {"plain decoding"}
  detectable = lambda label: round(100 * audited[label, "right"].detectable, 1)
  assert [detectable(label) for label in ("GSD, G 3", "GSD, G 10", "LANTERN++, lambda 10")] == [2.2, 4.8, 5.7]
  assert audited["scaled by 5", "right"].p_value == pytest.approx(0.044, abs=0.0005)
  calls = {"GSD, G 50, no gap": 57.2, "GSD, G 50": 45.8, "SJD, coupled": 45.2, "static groups of 10": 49.7}
  assert {label: round(saved[label], 1) for label in calls} == calls
  assert all(
    saved[label] - saved["SJD, coupled"] < 0.7 for label in rows if label.startswith(("scaled", "GSD, G 3", "GSD, G 10"))
  )
  assert saved["LANTERN++, lambda 10"] - saved["speculative, one layer"] < 0.3
  rivals, pairs = rows_of("scenes_gsd_rivals"), claims.verdicts(documents(RESULTS)["scenes_gsd_rivals"])
  points_lost = lambda label: round(100 * pairs[label, "right"].difference.value, 1)
  calls_saved = lambda label: round(100 * (1 - rivals[label]["calls_per_image"] / 144), 1)
  fixed = [f"static groups of {size}" for size in (3, 10, 25, 50)]
  assert [round(points_lost(label)) for label in fixed] == [16, 40, 52, 57]
  assert [calls_saved(label) for label in (fixed[0], fixed[-1])] == [46.0, 53.5]
  assert rivals["GSD, as published"]["per_image"] == rivals["SJD, fresh"]["per_image"]
  wide = "GSD, as published, G 50, any distance"
  assert points_lost(wide) == 9.0 and calls_saved(wide) <= calls_saved("SJD, fresh")
  free = pairs["GSD, as published, any distance", "right"]
  assert (free.reference, free.order, round(100 * free.difference.value, 1)) == ("SJD, fresh", 0, 3.9)
  assert (round(100 * free.detectable, 1), round(100 * pairs["scaled by 2", "right"].detectable, 1)) == (5.4, 5.0)
  assert pairs["scaled by 5", "right"].p_value == pytest.approx(0.053, abs=0.0005)
  points = lossy.points(documents(RESULTS), lossy.WITHOUT_TOP_P)
  assert {point.label for point in points if point.loses} == {
    "GSD, G 50", "GSD, G 50, no gap", "GSD, G 50, distance 0.5", "GSD, G 50, distance 1", "GSD, G 50, distance 2",
    "GSD, G 50, gap 0.02", "GSD, G 50, gap 0.05", "GSD, G 50, gap 0.5", wide, *fixed, "scaled by 5",
    *(f"rows, width {width}" for width in (2, 4, 6, 8)),
  }  # fmt: skip
  near = claims.verdicts(documents(RESULTS)["scenes_lantern_neighbours"])
  lenders = [near[f"LANTERN++, k {k}", "right"] for k in (3, 5, 10, 50, 200)]
  assert {verdict.reference for verdict in lenders} == {"speculative, one layer"}
  assert [round(100 * verdict.difference.value, 1) for verdict in lenders] == [2.0, 1.8, 2.1, 3.1, 4.7]
  assert not any(verdict.order for verdict in near.values())
  assert [round(100 * pick(verdict.detectable for verdict in lenders), 1) for pick in (min, max)] == [3.4, 7.1]
  assert "+0.90 (p 0.089, 5 rows)" in (RESULTS / "scenes_lantern_neighbours.md").read_text()
  assert "+0.65 (p 0.06, 9 rows)" in text
  bias = {label: row["audit"]["tv"]["value"] for label, row in rows.items() if row["audit"]}
  found = [bias[label] for label in ("GSD, G 50", "scaled by 2", "static groups of 10", "GSD, G 50, no gap")]
  assert [round(value, 4) for value in found[:2]] == [0.0036, 0.0040] and [round(x, 3) for x in found[2:]] == [0.019, 0.088]
  shown = lambda label: [round(100 * value, 1) for value in audited[label, "right"].difference[:3]]
  assert shown("GSD, G 50") == [12.9, 9.5, 16.2] and shown("scaled by 2") == [-0.2, -2.6, 2.3]


def test_no_rule_saves_calls_beyond_its_exact_method():
  """lossy.md, results/lossy.md, which_method.md: at most 1.2 calls an image without a significant loss."""
  saved = []
  for name, document in lossy.of_scenes(documents(RESULTS)).items():
    if "lift" in document:
      continue
    verdicts, rows = claims.verdicts(document), {row["label"]: row for row in document["rows"]}
    for row in document["rows"]:
      exact = lossy.reference_of(row, document)
      if exact["method"] != "ar" and not verdicts[row["label"], "right"].order:
        saved.append(exact["calls_per_image"] - row["calls_per_image"])
    assert rows
  assert len(saved) > 25 and 1.1 < max(saved) < 1.2


def test_limits_of_groups():
  """results/lossy.md: losses of groups of 50 over the largest distance of their tokens."""
  rows, found = rows_of("scenes_gsd_thresholds"), claims.verdicts(documents(RESULTS)["scenes_gsd_thresholds"])
  limited = lambda name, values: [f"GSD, G 50, {name} {value:g}" for value in values]
  distances, gaps = limited("distance", (0.25, 0.5, 1, 2)), limited("gap", (0.02, 0.05, 0.5))
  gaps.insert(2, "GSD, G 50")  # 0.15
  lost = lambda labels: [round(100 * found[label, "right"].difference.value, 1) for label in labels]
  assert lost(distances) == [2.5, 6.1, 10.5, 11.5] and lost(gaps) == [9.0, 10.9, 12.9, 14.8]
  assert [found[label, "right"].order for label in (*distances, *gaps)] == [0, *[1] * 7]
  assert round(100 * found[distances[0], "right"].detectable, 1) == 3.5
  assert all(45 < 100 * (1 - rows[label]["calls_per_image"] / 144) < 46 for label in (*distances, *gaps))


def test_power_of_comparisons_with_exact_rows():
  """lossy.md, results/lossy.md, methods: detectable differences from the exact method with the same drafts."""
  for name, start, ends in (
    ("gsd_groups", "GSD", [1.8, 2.3]),
    ("lantern_factors", "LANTERN++", [3.1, 3.8]),
    ("lantern_trees", "LANTERN++", [3.3, 3.9]),
  ):
    found = claims.verdicts(documents(RESULTS)[f"scenes_{name}"])
    own = [one for (label, metric), one in found.items() if label.startswith(start) and metric == "right"]
    assert all(one.reference != "plain decoding" and not one.order for one in own)
    assert [round(100 * pick(one.detectable for one in own), 1) for pick in (min, max)] == ends


@pytest.mark.slow
def test_few_tokens_of_scenes_are_as_near_as_published():
  """results/lossy.md, scenes:gsd_rivals: pairs of tokens within the published distance, and none beyond "any distance"."""
  pipeline = load_pipeline("scenes")
  embedding = pipeline.decoder(scenes.published().value(pipeline)).context.space.embedding()
  distances = np.asarray(distance_table(embedding, source="embedding").values)[np.triu_indices(len(embedding), 1)]
  assert (distances < 0.5).sum() == 8 and distances.max() < scenes.NO_LIMIT


def test_exact_methods_on_scenes():
  """results/lossy.md: equivalence to plain decoding within 2 points of correct images."""
  rows, lines = rows_of("scenes_exact"), table_of("scenes_exact")
  assert {row["method"] for row in rows.values()} == {"ar", "speculative", "eagle", "eagle-chain", "sjd"}
  assert all(row["images"] == 7296 for row in rows.values()) and all("| yes (p 0.0" in line for line in lines[2:])
  assert "no difference is significant" in (RESULTS / "scenes_exact.md").read_text()


def test_bias_of_walks():
  """results/discrete.md: bias of groups and factors per token, over 16 images."""
  read = lambda name: json.loads((RESULTS / f"{name}.json").read_text())["rows"]
  first, *_, last = read("audit_gsd")
  assert last["label"] == "group-size 50" and round(last["tv"]["value"], 2) == 0.08
  assert first["tokens_per_call"]["high"] > last["tokens_per_call"]["low"]
  factors = read("audit_lantern")
  assert max(row["tv"]["value"] for row in factors) < 0.003
  assert max(row["tokens_per_call"]["low"] for row in factors) < min(row["tokens_per_call"]["high"] for row in factors)


def test_what_a_call_costs():
  """results/speed.md: a call of CIAR and a round of exact CSpD beside a plain step, in milliseconds."""
  by_batch = lambda name: {
    (row["label"], row["batch"]): row for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]
  }
  rows = by_batch("scenes_ciar_speed")
  taken = lambda label: 1e3 * statistics.median(rows[label, 1]["seconds"])
  mean = lambda label, counter: statistics.mean(rows[label, 1][counter])
  first, alone, plain = "CIAR, window 1", "CIAR alone", "plain decoding"
  edge = mean(first, "draft_calls") / mean(alone, "draft_calls") * taken(alone)
  assert (taken(first) - edge) / mean(first, "target_calls") == pytest.approx(3.1, abs=0.05)
  assert taken(plain) / mean(plain, "target_calls") == pytest.approx(1.2, abs=0.05)
  rows = by_batch("cspd_speed_causal")
  exact = rows["exact 7", 1]
  assert 1e3 * statistics.median(exact["seconds"]) / statistics.mean(exact["target_calls"]) == pytest.approx(11.1, abs=0.05)
  assert 1e3 * statistics.median(rows["target", 1]["seconds"]) / 64 == pytest.approx(4.1, abs=0.06)
  assert exact["predicted"] == pytest.approx(2.93, abs=0.005)


@pytest.mark.parametrize("percent, ciar, random, code", [(20, 25, 55, 62), (30, 9, 49, 58), (40, 2, 41, 54)])
def test_an_edge_that_asks_more_often_on_scenes(percent, ciar, random, code):
  """results/lossy.md, results/ciar.md: losses below plain decoding, and rows that differ from CIAR."""
  name = f"scenes_ciar_comparison_{percent}"
  rows, text = rows_of(name), (RESULTS / f"{name}.md").read_text()
  right = {label.partition("(")[0]: 100 * row["metrics"]["right"]["value"] for label, row in rows.items()}
  lost = {label: right["plain decoding"] - value for label, value in right.items()}
  for label, points in {"CIAR": ciar, "Random": random, "CoDe": code}.items():
    assert lost[label] == pytest.approx(points, abs=0.56), label
  assert right["plain decoding"] == pytest.approx(71.4 if percent == 30 else 71.9, abs=0.05)
  apart = text.partition("Against CIAR, after Holm")[2]
  is_worse = {label: f" {label} is worse by correct images" in apart for label in rows if label != "CIAR"}
  assert is_worse["Random"] and is_worse[f"CoDe({percent / 100:g})"] and is_worse["Entropy-Lens"] == (percent < 40)
  assert not (is_worse["Entropy"] or is_worse["max-prob"] or is_worse["U-HLM"])
  assert ("plain decoding is better by correct images" in apart) == (percent < 40)
  found = claims.verdicts(documents(RESULTS)[name])
  detectable = {label: round(100 * found[label, "right"].detectable, 1) for label in rows if label != "CIAR"}
  near = [detectable[label] for label in ("Entropy", "max-prob", "U-HLM")]
  assert (min(near), max(near)) == {20: (5.4, 5.6), 30: (4.5, 4.7), 40: (2.6, 3.1)}[percent]
  assert percent != 40 or detectable["plain decoding"] == 5.4
  (line,) = [line for line in (DOCS / "ciar.md").read_text().splitlines() if line.startswith(f"| [{percent} %](")]
  order = "CIAR", "U-HLM", "Entropy", "max-prob", "Entropy-Lens", "Random", "CoDe"
  assert [cell.strip() for cell in line.split("|")[2:-1]] == [f"{right[label]:.1f}" for label in order]


def test_an_edge_that_keeps_tokens_on_scenes():
  """results/lossy.md: correct images at 30 % cloud calls, in points below plain decoding."""
  rows = rows_of("scenes_ciar_comparison_30")
  right = {label: 100 * row["metrics"]["right"]["value"] for label, row in rows.items()}
  lost = {label: round(right["plain decoding"] - value) for label, value in right.items()}
  assert lost["CIAR"] == 9 and lost["Random"] == 49 and lost["CoDe(0.3)"] == 58
  assert [lost[label] for label in ("U-HLM", "Entropy", "max-prob", "Entropy-Lens")] == [10, 11, 11, 16]
  below = {label: right["CIAR"] - value for label, value in right.items()}
  assert [round(below[label]) for label in ("Entropy-Lens", "Random", "CoDe(0.3)")] == [7, 41, 50]
  assert all(1 <= below[label] <= 3 for label in ("U-HLM", "Entropy", "max-prob"))
  apart = (RESULTS / "scenes_ciar_comparison_30.md").read_text().partition("Against CIAR, after Holm")[2]
  assert all(f"{label} is worse by correct images" in apart for label in ("Entropy-Lens", "Random", "CoDe(0.3)"))
  assert not any(f"{label} is worse by correct images" in apart for label in ("; Entropy", "max-prob", "U-HLM"))
  assert right["CIAR"] == pytest.approx(62.8, abs=0.05) and below["plain decoding"] == pytest.approx(-8.6, abs=0.05)
  assert all(abs(row["calls_per_image"] / 144 - 0.3) < 0.01 for row in rows.values() if row["method"] == "ciar")


def test_threshold_prefix_and_discrete_sets():
  """results/ciar.md: correct images over one setting of CIAR, and the detectable difference."""
  right = lambda name: {label: 100 * row["metrics"]["right"]["value"] for label, row in rows_of(name).items()}
  walked = right("scenes_ciar_tau")
  for rate, value in {50: 71.1, 40: 71.9, 30: 63.9, 25: 58.2, 20: 48.0, 10: 18.6}.items():
    assert walked[f"CIAR at {rate} %"] == pytest.approx(value, abs=0.06)
  assert walked["plain decoding"] == pytest.approx(71.7, abs=0.06)
  over_prefix = right("scenes_ciar_prefix")
  for share, value in {"0": 66.8, "0.06": 63.9, "0.12": 60.5, "0.2": 50.0}.items():
    assert over_prefix[f"prefix {share}"] == pytest.approx(value, abs=0.06)
  (line,) = [line for line in (DOCS / "lossy.md").read_text().splitlines() if "a prefix of 6 % is better than none" in line]
  assert "not significant" in line and "8.1 points" in line
  sets = right("scenes_ciar_discrete")
  found = claims.verdicts(documents(RESULTS)["scenes_ciar_discrete"])
  detectable = [100 * found[label, "right"].detectable for label in sets if label.startswith("k ")]
  assert len(sets) == 9 and (round(min(detectable), 1), round(max(detectable), 1)) == (3.9, 4.3)
  assert all(abs(value - sets["CIAR"]) < 0.45 for label, value in sets.items() if label.startswith("k "))


def trained_means(name):
  """Correct images in percent by setting, over its trainings."""
  groups = seeds.settings_of(documents(RESULTS)[name])
  assert all(len(found) == 3 for found in groups.values())
  return {setting: 100 * statistics.mean(found) for setting, found in groups.items()}


def test_windows_of_the_edge():
  """results/ciar.md: at 15 % calls each longer window is better than the previous one."""
  rows = rows_of("scenes_ciar_window")
  names = [f"window {window}" for window in (1, 2, 4, 8)]
  right = [100 * rows[name]["metrics"]["right"]["value"] for name in names]
  assert right == pytest.approx([32.8, 43.4, 51.4, 58.8], abs=0.06)
  assert [round(100 * rows[name]["cloud"]["accepted"]) for name in names] == [6, 11, 19, 33]
  assert all(abs(rows[name]["cloud"]["call_rate"] - 0.15) < 0.005 for name in names)
  found = claims.verdicts(documents(RESULTS)["scenes_ciar_window"])
  steps = [found[name, "right"] for name in names[1:]]
  assert [step.reference for step in steps] == names[:-1]
  assert [round(-100 * step.difference.value, 1) for step in steps] == [10.5, 8.0, 7.4]
  assert all(step.order == -1 for step in steps) and max(step.p_value for step in steps) == pytest.approx(0.012, abs=0.0005)
  exact = rows_of("scenes_lantern_factors")["speculative, one layer"]
  assert round(100 * exact["metrics"]["right"]["value"], 1) == 71.7 and round(exact["calls_per_image"] / 144, 2) == 0.15


def test_depth_of_edge_networks():
  """results/ciar.md: correct images over three trainings of each depth, at 30 % calls."""
  means, text = trained_means("scenes_ciar_depth"), (RESULTS / "scenes_ciar_depth.md").read_text()
  assert means == pytest.approx({"1 layer": 48.3, "2 layers": 64.8, "3 layers": 68.8}, abs=0.06)
  assert "Smallest true difference detectable with 80 % power: 4.6 points" in text
  assert all(
    abs(row["calls_per_image"] / 144 - 0.3) < 0.005 for row in rows_of("scenes_ciar_depth").values() if row.get("setting")
  )


@pytest.mark.parametrize(
  "name, base, expected, smallest",
  [
    ("loss", {"the whole loss": 64.8},
     {"without centre": 66.9, "without upper": 63.3, "without lower": 65.2, "without anchor": 65.0}, 5.9),
    ("heads", {"1 head": 64.8},
     {"2 heads, ensemble": 64.3, "2 heads, voting": 64.3, "3 heads, ensemble": 64.5, "3 heads, voting": 64.6}, 8.8),
    ("scores", {"CIAR": 64.8},
     {"published bounds": 64.8, "radius 0.5 for all tokens": 63.0, "additive U": 64.3, "volume": 64.3}, 6.6),
    ("inject", {"off": 64.8}, {"on": 61.7}, 8.1),
    ("guidance", {"unguided": 64.8}, {"guided": 66.5}, 5.2),
  ],
)  # fmt: skip
def test_settings_of_edge_networks_without_a_significant_difference(name, base, expected, smallest):
  """results/ciar.md: correct images over three trainings of each setting, at 30 % calls; none differs from the first."""
  table = f"scenes_ciar_{name}"
  assert trained_means(table) == pytest.approx(base | expected, abs=0.06)
  found = seeds.compare(documents(RESULTS)[table])
  assert all(corrected.adjusted > 0.05 for corrected in found.against.values())
  assert f"Smallest true difference detectable with 80 % power: {smallest} points" in (RESULTS / f"{table}.md").read_text()


def test_weights_of_the_loss():
  """results/ciar.md: correct images over three trainings of each weight, at 30 % calls; one differs significantly."""
  means, text = trained_means("scenes_ciar_weights"), (RESULTS / "scenes_ciar_weights.md").read_text()
  expected = {
    "the whole loss": 64.8, "variation 0": 63.7, "variation 4": 65.1, "cross entropy 0": 65.8, "cross entropy 1": 64.6,
    "divergence 0": 66.5, "divergence 4": 64.5, "alpha 0": 67.1, "alpha 4": 59.5,
  }  # fmt: skip
  assert means == pytest.approx(expected, abs=0.06)
  found = seeds.compare(documents(RESULTS)["scenes_ciar_weights"])
  significant = {name: corrected.adjusted for name, corrected in found.against.items() if corrected.adjusted < 0.05}
  assert significant == pytest.approx({"alpha 4": 0.014}, abs=0.0005)
  assert "Smallest true difference detectable with 80 % power: 5.7 points" in text


def test_parts_of_a_round():
  """results/speed.md: share of the networks in a round."""
  shares: dict[str, int] = {}
  for line in table_of("bench_rounds")[1:]:
    method, part, _, _, share = (cell.strip() for cell in line.split("|")[1:-1])
    if "network alone" in part:
      shares[method] = shares.get(method, 0) + int(share.removesuffix(" %"))
  assert sorted(shares[name] for name in ("speculative", "sjd", "eagle-chain")) == [83, 86, 88]


def test_speed_of_scenes():
  """README's table of speeds is that of the experiments."""
  readme = (RESULTS.parents[1] / "README.md").read_text()
  head, *body = [line.split("|")[1:-1] for line in table_of("scenes_speed")]
  cells = [dict(zip((name.strip() for name in head), (cell.strip() for cell in row))) for row in body]
  labels = {"speculative": "speculative, one layer", "eagle-chain": "EAGLE, chains", "eagle": "EAGLE-2"}
  for method, label in (labels | {"sjd": "SJD, coupled"}).items():
    (line,) = [line for line in readme.splitlines() if line.startswith(f"| `{method}`") and "x [" in line]
    for cell in (cell for cell in cells if cell["decode"] == label):
      speed = cell["speed over plain decoding"].partition(" ")[0]
      assert f"{speed}x {cell['95 % interval']}" in line, (method, cell["batch"])


def test_plans_compiled_for_tpus():
  """docs/many_devices.md: what fits in memory, and differences between plan and compiler."""
  head, *body = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_of("bench_tpu_plans")]
  rows = [dict(zip(head, cells)) for cells in body]
  assert len(rows) == 32
  fits = [row["fits"] for row in rows]
  assert fits.count("yes") == 25 and fits.count("the compiler fails: INTERNAL") == 6
  (large,) = (row for row in rows if row["fits"].startswith("no, 17.6 GB"))
  assert (large["model"], large["device"], large["batch"], large["method"]) == (
    "lumina-7b-768",
    "v5e:2x2",
    "16",
    "speculative",
  )
  janus = [row for row in rows if row["model"] == "janus-pro-7b"]
  page = (RESULTS.parents[1] / "docs" / "janus.md").read_text()
  for batch in ("1", "16"):
    for method, name in (("ar", "plain"), ("speculative", "with 1B")):
      cells = [row["together, GB"] for row in janus if (row["batch"], row["method"]) == (batch, method)]
      assert f"| {name}, batch {batch} | {' | '.join(cell or 'internal error of the compiler' for cell in cells)} |" in page
  assert [row["copies of caches in a round"] for row in janus] == ["0", "144", "0", "0", "0", "144", "", ""]
  assert all(0.995 <= float(row["of the plan"]) <= 1.09 for row in janus if row["fits"] == "yes")
  made = [row for row in rows if row["fits"] == "yes" and row not in janus]
  for row in made:
    share, is_large = float(row["of the plan"]), row["model"] != "llamagen-xl-t2i"
    one_plain = (row["batch"], row["method"]) == ("1", "ar")
    assert 0.93 <= share <= 1.03 if is_large else (round(share, 1) == 2.4 if one_plain else 1.15 <= share <= 1.27), row
    copies = int(row["copies of caches in a round"])
    assert 7 <= copies <= 12 if (row["batch"], row["method"]) == ("1", "speculative") else copies == 0, row


def test_thresholds_on_other_captions():
  """results/ciar.md: calls in percent; calibrated and adaptive thresholds hold within half a point."""
  rows = rows_of("scenes_ciar_thresholds")
  calls = {label: 100 * row["calls_per_image"] / 144 for label, row in rows.items()}
  for rate, calibrated, conformal in ((20, 20.3, 20.0), (30, 30.5, 29.9), (40, 40.2, 39.6)):
    assert calls[f"calibrated, {rate} %"] == pytest.approx(calibrated, abs=0.06) and abs(calibrated - rate) <= 0.5
    assert calls[f"conformal, {rate} %"] == pytest.approx(conformal, abs=0.06) and abs(conformal - rate) <= 0.5
