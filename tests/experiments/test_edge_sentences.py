"""Sentences in pages about local acceptance agree with their tables."""

import json
import re
import statistics

import numpy as np
import pytest

from experiments.configs.scenes_ciar import AS_PUBLISHED, MERGED
from experiments.engine import seeds
from experiments.engine.rows import PAPER_PREFIX
from experiments.engine.statistics import wall_ratio
from experiments.run import RESULTS
from jaxspec.methods import Ciar
from jaxspec.run.loading import load_pipeline
from tests.experiments.measured import DOCS, committed, rows_of, table_of, verdicts_of


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
  assert (taken(first) - edge) / mean(first, "target_calls") == pytest.approx(3.2, abs=0.05)
  assert taken(plain) / mean(plain, "target_calls") == pytest.approx(1.5, abs=0.05)
  rows = by_batch("cspd_speed_causal")
  exact = rows["exact 7", 1]
  assert 1e3 * statistics.median(exact["seconds"]) / statistics.mean(exact["target_calls"]) == pytest.approx(11.1, abs=0.05)
  assert 1e3 * statistics.median(rows["target", 1]["seconds"]) / 64 == pytest.approx(4.1, abs=0.06)
  assert exact["predicted"] == pytest.approx(2.93, abs=0.005)


def test_the_published_settings_together():
  """results/ciar.md: CIAR as published beside the default at equal calls; the rows have the settings of the method."""
  found = verdicts_of("scenes_ciar_published")
  labels = ("20 %", "30 %", "40 %", "window 4, 15 %")
  compared = [found[f"as published, {words}", "right"] for words in labels]
  assert [one.reference for one in compared] == [f"CIAR, {words}" for words in labels]
  assert [one.p_value < 0.05 for one in compared] == [False, False, True, True]
  assert [round(100 * one.difference.value, 1) for one in compared[2:]] == [5.2, 5.2]
  published = Ciar.published()
  assert AS_PUBLISHED | {"draft": None} == {"draft": None, "score": published.score, "inject": published.inject}
  assert published.target_prefix == PAPER_PREFIX


def test_a_greedy_edge():
  """results/ciar.md: a greedy edge beside one that samples, and the share of the edge's likeliest tokens."""
  rows, found = rows_of("scenes_ciar_greedy"), verdicts_of("scenes_ciar_greedy")
  share = lambda label: round(100 * rows[label]["cloud"]["likeliest"][0], 1)
  assert share("every token verified, exact") == 99.4
  right = lambda label: round(100 * rows[label]["metrics"]["right"]["value"], 1)
  assert (right("greedy edge, alone"), right("sampling edge, alone")) == (0, 5.6)
  assert (right("greedy edge, 30 % calls"), right("sampling edge, 30 % calls")) == (63.7, 63.0)
  assert found["greedy edge, alone", "right"].p_value < 0.05 < found["greedy edge, 30 % calls", "right"].p_value
  assert round(100 * found["greedy edge, 30 % calls", "right"].detectable, 1) == 4.0


NEAR_SYNONYMS = {
  # rate: learnt radii, entropy and interval of merged codes, LANTERN, the least and the most of the others, detectable
  20: (-19.5, 2.9, 3.4, 2.1, -18.8, -16.7, 7.1),
  30: (-28.5, 9.1, 8.5, -6.9, -27.3, -17.7, None),
  40: (-24.4, 21.7, 23.7, -3.4, -24.8, -7.0, 7.2),
}
LANTERN = "LANTERN, delta 0.2, k 1,000"
OF_MERGED = "Entropy of merged codes", "CIAR of merged codes"


@pytest.mark.parametrize("percent", NEAR_SYNONYMS)
def test_scores_where_codes_have_near_synonyms(percent):
  """results/ciar.md, lossy.md: a constant radius, learnt radii, merged codes and rivals in the lifted world."""
  rows, found = rows_of(f"lifted_ciar_{percent}"), verdicts_of(f"lifted_ciar_{percent}")
  change = {label.partition("(")[0]: found[label, "right"] for label in rows if (label, "right") in found}
  points = {label: round(-100 * one.difference.value, 1) for label, one in change.items()}
  learnt, entropy, interval, lantern, least, most, detectable = NEAR_SYNONYMS[percent]
  assert [points[label] for label in ("CIAR, learnt radii", *OF_MERGED, LANTERN)] == [learnt, entropy, interval, lantern]
  rivals = "Entropy", "Entropy-Lens", "U-HLM", "Random", "CoDe"
  assert (min(points[label] for label in rivals), max(points[label] for label in rivals)) == (least, most)
  assert all(change[label].p_value < 0.05 and change[label].reference == "CIAR, radius 0.5" for label in rivals)
  assert all((change[label].p_value < 0.05) == (percent > 20) for label in OF_MERGED) and change["CIAR, learnt radii"].order
  if percent == 20:
    assert sorted(round(100 * change[label].detectable, 1) for label in OF_MERGED) == [5.6, 5.9]
  assert (change[LANTERN].p_value < 0.05) == (percent == 30)
  assert detectable in (None, round(100 * change[LANTERN].detectable, 1))
  right = {label.partition("(")[0]: 100 * row["metrics"]["right"]["value"] for label, row in rows.items()}
  assert all(8.2 <= round(right[label], 1) <= 11 for label in rivals[:3]) and 9.3 <= round(right["Random"], 1) <= 13.7
  assert (round(right[LANTERN], 1), round(right["plain decoding"], 1)) == (29.6, 63.4)
  begins = f"| [{percent} %](../../experiments/results/lifted_"
  (line,) = [line for line in (DOCS / "ciar.md").read_text().splitlines() if line.startswith(begins)]
  order = "CIAR, radius 0.5", "CIAR, learnt radii", "Entropy", "Entropy-Lens", "U-HLM", "Random", "CoDe", *OF_MERGED
  assert [cell.strip() for cell in line.split("|")[2:-1]] == [f"{right[label]:.1f}" for label in order]
  assert round(100 * rows[LANTERN]["calls_per_image"] / 144, 1) == 14.6
  assert round(100 * rows["U-HLM"]["cloud"]["call_rate"], 1) == {20: 20.3, 30: 30.6, 40: 41.0}[percent]
  (left,) = [
    text for text in json.loads((RESULTS / f"lifted_ciar_{percent}.json").read_text())["left_out"] if "max-prob" in text
  ]
  assert {20: "0.1676", 30: "0.2733", 40: "0.2826"}[percent] in left and "max-prob" not in rows
  if percent == 30:
    lost = [right["plain decoding"] - value for label, value in right.items() if not label.startswith("plain")]
    assert (round(min(lost)), round(max(lost))) == (18, 55)


@pytest.mark.parametrize("percent, ciar, random, code", [(20, 25, 55, 62), (30, 9, 49, 59), (40, 2, 41, 54)])
def test_an_edge_that_asks_more_often_on_scenes(percent, ciar, random, code):
  """results/lossy.md, results/ciar.md: losses below plain decoding, and rows that differ from CIAR."""
  name = f"scenes_ciar_comparison_{percent}"
  rows, text = rows_of(name), (RESULTS / f"{name}.md").read_text()
  right = {label.partition("(")[0]: 100 * row["metrics"]["right"]["value"] for label, row in rows.items()}
  lost = {label: right["plain decoding"] - value for label, value in right.items()}
  for label, points in {"CIAR": ciar, "Random": random, "CoDe": code}.items():
    assert lost[label] == pytest.approx(points, abs=0.56), label
  assert right["plain decoding"] == pytest.approx(71.9, abs=0.05)
  apart = text.partition("Against CIAR, after Holm")[2]
  is_worse = {label: f" {label} is worse by correct images" in apart for label in rows if label != "CIAR"}
  assert is_worse["Random"] and is_worse[f"CoDe({percent / 100:g})"] and is_worse["Entropy-Lens"] == (percent < 40)
  assert not (is_worse["Entropy"] or is_worse["max-prob"] or is_worse["U-HLM"])
  assert ("plain decoding is better by correct images" in apart) == (percent < 40)
  found = verdicts_of(name)
  detectable = {label: round(100 * found[label, "right"].detectable, 1) for label in rows if label != "CIAR"}
  near = [detectable[label] for label in ("Entropy", "max-prob", "U-HLM")]
  assert (min(near), max(near)) == {20: (5.5, 5.7), 30: (4.6, 4.7), 40: (2.7, 3.1)}[percent]
  assert percent != 40 or detectable["plain decoding"] == 5.5
  (line,) = [
    line
    for line in (DOCS / "ciar.md").read_text().splitlines()
    if line.startswith(f"| [{percent} %](../../experiments/results/scenes_")
  ]
  order = "CIAR", "U-HLM", "Entropy", "max-prob", "Entropy-Lens", "Random", "CoDe"
  assert [cell.strip() for cell in line.split("|")[2:-1]] == [f"{right[label]:.1f}" for label in order]


@pytest.mark.parametrize("percent, eagle, lantern", [(20, 25.0, 15.4), (30, 8.9, -0.7), (40, 1.6, -8.0)])
def test_methods_that_verify_every_draft_beside_ciar(percent, eagle, lantern):
  """results/ciar.md, results/lossy.md: EAGLE-2 and LANTERN against CIAR at each rate."""
  name = f"scenes_ciar_comparison_{percent}"
  rows, found = rows_of(name), verdicts_of(name)
  for label, points, calls, right in (("EAGLE-2", eagle, 15.5, 71.9), (LANTERN, lantern, 14.7, 62.3)):
    verdict, row = found[label, "right"], rows[label]
    assert -100 * verdict.difference.value == pytest.approx(points, abs=0.051) and verdict.reference == "CIAR"
    assert (verdict.order == 0) == (abs(points) < 2), label
    assert round(100 * row["calls_per_image"] / 144, 1) == calls
    assert round(100 * row["metrics"]["right"]["value"], 1) == right
  assert percent != 30 or round(100 * found[LANTERN, "right"].detectable, 1) == 6.5


def test_speed_beside_correct_images():
  """results/ciar.md: single images at each rate."""
  tables = [rows_of(f"scenes_ciar_comparison_{percent}") for percent in (20, 30, 40)]
  speed = lambda row: round(wall_ratio(row).median, 2)
  assert [speed(rows["CIAR"]) for rows in tables] == [1.44, 1.26, 1.13]
  assert [speed(tables[0][label]) for label in (LANTERN, "EAGLE-2")] == [2.34, 1.99]
  assert all(len(rows["CIAR"]["wall"]["own"]) == 5 for rows in tables)
  scores = [speed(tables[1][label]) for label in ("CIAR", "Entropy", "Entropy-Lens", "max-prob", "Random", "U-HLM")]
  assert (min(scores), max(scores)) == (1.24, 1.38)


def test_an_edge_that_keeps_tokens_on_scenes():
  """results/lossy.md: correct images at 30 % cloud calls, in points below plain decoding."""
  rows = rows_of("scenes_ciar_comparison_30")
  right = {label: 100 * row["metrics"]["right"]["value"] for label, row in rows.items()}
  lost = {label: round(right["plain decoding"] - value) for label, value in right.items()}
  assert lost["CIAR"] == 9 and lost["Random"] == 49 and lost["CoDe(0.3)"] == 59
  assert [lost[label] for label in ("U-HLM", "Entropy", "max-prob", "Entropy-Lens")] == [10, 11, 12, 16]
  below = {label: right["CIAR"] - value for label, value in right.items()}
  assert [round(below[label]) for label in ("Entropy-Lens", "Random", "CoDe(0.3)")] == [7, 41, 50]
  assert all(1 <= below[label] <= 3 for label in ("U-HLM", "Entropy", "max-prob"))
  apart = (RESULTS / "scenes_ciar_comparison_30.md").read_text().partition("Against CIAR, after Holm")[2]
  assert all(f"{label} is worse by correct images" in apart for label in ("Entropy-Lens", "Random", "CoDe(0.3)"))
  assert not any(f"{label} is worse by correct images" in apart for label in ("; Entropy", "max-prob", "U-HLM"))
  assert right["CIAR"] == pytest.approx(63.0, abs=0.05) and below["plain decoding"] == pytest.approx(-8.9, abs=0.05)
  assert all(abs(row["calls_per_image"] / 144 - 0.3) < 0.01 for row in rows.values() if row["method"] == "ciar")


def test_merged_codes_and_published_bounds():
  """results/ciar.md: scores beside CIAR at its rates, and the edge's likeliest tokens among accepted drafts."""
  rows, found = rows_of("scenes_ciar_merged"), verdicts_of("scenes_ciar_merged")
  merged = [found[f"{name} of merged codes, {rate} %", "right"] for name in ("Entropy", "CIAR") for rate in (20, 30, 40)]
  assert all(one.order == 0 and one.reference.startswith("CIAR, ") for one in merged)
  least = [round(100 * one.detectable, 1) for one in merged]
  assert (min(least), max(least)) == (1.8, 5.5)
  for rate in (20, 30):
    ours, published = (rows[f"{name}, {rate} %"]["per_image"] for name in ("CIAR", "CIAR, published bounds"))
    assert all(ours[name] == published[name] for name in ("target_calls", "right"))
  last = found["CIAR, published bounds, 40 %", "right"]
  assert last.order == 0 and 100 * last.difference.value == pytest.approx(2.3, abs=0.05)
  assert 100 * last.detectable == pytest.approx(5.0, abs=0.05)
  likeliest = [100 * row["cloud"]["likeliest"][0] for row in rows.values() if row["method"] == "ciar"]
  assert (round(min(likeliest), 1), round(max(likeliest), 1)) == (96.5, 98.9)


@pytest.mark.slow
def test_a_tenth_of_the_codes_is_merged():
  """results/ciar.md, scenes_ciar:merged: the share of codes with another one within the distance."""
  pipeline = load_pipeline("scenes")
  codes = np.asarray(pipeline.family.space.codebook(), np.float64)
  codes /= np.linalg.norm(codes, axis=1, keepdims=True)
  distance = np.sqrt(np.maximum(2 - 2 * codes @ codes.T, 0))
  np.fill_diagonal(distance, np.inf)
  assert np.mean(distance.min(axis=1) <= float(MERGED.partition(":")[2])) == pytest.approx(0.1, abs=0.005)


@pytest.mark.slow
def test_sources_of_the_tokens_of_the_map():
  """ciar.md, below the figure: shares of four images, up to tokens that flip by rounding."""
  pipeline = load_pipeline("scenes")
  captions = ["a cat", "two stars", "a red heart and a blue star", "a dog and a tree"]
  method = pipeline.method("ciar", draft="inter-2", gamma=1, cloud_rate=0.3, target_prefix=0.06)
  counters = pipeline(captions, key=3, method=method).counters
  shares = [100 * np.sum(number) / (4 * 144) for number in (counters.local, counters.accepted)]
  text = " ".join((DOCS.parent / "ciar.md").read_text().split())
  written = re.search(r"The edge accepted (\d+) % of the tokens locally, the cloud accepted (\d+) % and drew (\d+) %", text)
  local, accepted, drawn = map(int, written.groups())
  assert shares == pytest.approx([local, accepted], abs=1.5) and local + accepted + drawn == 100


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
  assert "not significant" in line and "8.2 points" in line
  sets = right("scenes_ciar_discrete")
  found = verdicts_of("scenes_ciar_discrete")
  detectable = [100 * found[label, "right"].detectable for label in sets if label.startswith("k ")]
  assert len(sets) == 9 and (round(min(detectable), 1), round(max(detectable), 1)) == (3.9, 4.3)
  assert all(abs(value - sets["CIAR"]) < 0.45 for label, value in sets.items() if label.startswith("k "))


def trained_means(name):
  """Correct images in percent by setting, over its trainings."""
  groups = seeds.settings_of(committed()[name])
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
  found = verdicts_of("scenes_ciar_window")
  steps = [found[name, "right"] for name in names[1:]]
  assert [step.reference for step in steps] == names[:-1]
  assert [round(-100 * step.difference.value, 1) for step in steps] == [10.5, 8.0, 7.4]
  assert all(step.order == -1 for step in steps) and max(step.p_value for step in steps) == pytest.approx(0.012, abs=0.0005)
  exact = rows_of("scenes_methods")["speculative, one layer"]
  assert round(100 * exact["metrics"]["right"]["value"], 1) == 73.0 and round(exact["calls_per_image"] / 144, 2) == 0.15


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
  found = seeds.compare(committed()[table])
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
  found = seeds.compare(committed()["scenes_ciar_weights"])
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


def test_thresholds_on_other_captions():
  """results/ciar.md: calls in percent; calibrated and adaptive thresholds hold within half a point."""
  rows = rows_of("scenes_ciar_thresholds")
  calls = {label: 100 * row["calls_per_image"] / 144 for label, row in rows.items()}
  for rate, calibrated, conformal in ((20, 20.3, 20.0), (30, 30.5, 29.9), (40, 40.2, 39.6)):
    assert calls[f"calibrated, {rate} %"] == pytest.approx(calibrated, abs=0.06) and abs(calibrated - rate) <= 0.5
    assert calls[f"conformal, {rate} %"] == pytest.approx(conformal, abs=0.06) and abs(conformal - rate) <= 0.5
