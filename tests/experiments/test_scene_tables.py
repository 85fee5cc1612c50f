"""Tables of scenes: the reader recovers painted scenes; harm is significant, no harm is not."""

import json

import numpy as np
import pytest
import scipy.stats

from experiments.engine import claims, predictions, seeds, statistics
from experiments.engine.outlook import Cost, Outlook, cost_of, outlook_sentences
from experiments.engine.rows import CLOSED, PLAIN, row
from experiments.engine.scene_images import Scenes
from experiments.engine.tables import render
from jaxspec.evaluation.scenes import FLAT_WORLD
from tests.experiments.painted_tables import NUM, bench, document, scorer


def test_the_judge_reads_what_was_painted():
  judge = scorer().judge(bench())
  found = judge.figures(PLAIN.but(label=claims.PLAIN), bench().decode(PLAIN))
  wanted = np.arange(NUM) % 6 != 0
  np.testing.assert_array_equal(found["per_image"]["right"], wanted)
  np.testing.assert_array_equal(judge.hits(bench().decode(PLAIN, 10)), wanted[:10])
  right = found["metrics"]["right"]
  assert right["value"] == pytest.approx(wanted.mean()) and right["low"] < right["value"] < right["high"]
  assert sum(task["count"] for name, task in found["tasks"].items() if name not in ("all", "train")) == NUM
  assert found["open"]["p_value"] > 0.02 and set(found["aspects"]) >= {"style", "cell", "size", "background"}
  assert json.loads(json.dumps(found)) == found
  assert judge.about()["captions"] == {"num": NUM, "split": "validation", "seed": 5, "materials": FLAT_WORLD}


@pytest.mark.slow
def test_harm_shows_and_no_harm_does_not():
  found = claims.verdicts(document())
  order = lambda label, metric: found[label, metric].order  # of plain decoding against the row
  assert order("wrong", "right") == 1 and order("white", "unfaithful") == 1
  for label in ("harmless", f"{claims.PLAIN}, another seed"):
    assert order(label, "right") == order(label, "unfaithful") == 0
  wrong = found["wrong", "right"]
  assert wrong.difference.value == pytest.approx(wrong.value - wrong.other) and wrong.p_value < 1e-3
  smallest, told = claims.sentences(document())
  assert "correct images" in smallest and "distance of unconstrained attributes" in smallest
  assert "wrong is worse by correct images" in told and "harmless is" not in told


@pytest.mark.slow
def test_mcnemar_by_hand():
  """Single images: the p value is that of the exact test of discordant pairs."""
  rows = {entry["label"]: np.array(entry["per_image"]["right"]) for entry in document()["rows"]}
  lost, won = (int(np.sum(rows[claims.PLAIN] > rows["wrong"])), int(np.sum(rows[claims.PLAIN] < rows["wrong"])))
  exact = scipy.stats.binomtest(min(lost, won), lost + won).pvalue
  (plain, *_, wrong, _) = document()["rows"]
  found = statistics.difference(plain, wrong, "right").p_value
  assert found == pytest.approx(exact, abs=1e-3)


def test_a_subject_is_compared_by_how_far_it_is_from_plain_decoding():
  table = document("white")
  found = claims.verdicts(table)
  assert found[claims.PLAIN, "unfaithful"].order == -1  # the row is nearer than the subject
  for label in ("harmless", f"{claims.PLAIN}, another seed"):
    assert found[label, "unfaithful"].difference.value > 0
  assert found["wrong", "right"].order == 1
  assert "subject_minus_row" not in next(entry for entry in table["rows"] if entry["label"] == "white")


def test_a_row_is_compared_with_the_row_that_it_names():
  rows = [entry | ({"against": "harmless"} if entry["label"] == "white" else {}) for entry in document()["rows"]]
  table = document() | {"rows": rows}
  found, named = claims.verdicts(table), {entry["label"]: entry for entry in rows}
  assert found["white", "right"].reference == "harmless" and found["wrong", "right"].reference == claims.PLAIN
  assert found["white", "right"].difference == statistics.difference(named["harmless"], named["white"], "right")
  assert found["white", "unfaithful"].reference == claims.PLAIN  # a distance from plain decoding
  text = render(table)
  assert "| compared with |" in text and "or the row that is named" in text and "compared with" not in render(document())
  assert claims.reference_of({"against": "a row that was left out"}, table) == claims.PLAIN


def test_a_table_is_printed():
  text = render(document(margin=0.3))
  lines = [line for line in text.splitlines() if line.startswith("|")]
  head = [cell.strip() for cell in lines[0].split("|")]
  assert {"calls saved, %", "correct, %", "difference, points", "differs by less than 30 points", "by chance"} <= set(head)
  cells = dict(zip(head, (cell.strip() for cell in next(line for line in lines if "| harmless |" in line).split("|"))))
  assert cells["calls saved, %"] == "50.0" and cells["differs by less than 30 points"].startswith("yes (p ")
  wrong = next(line for line in lines if "| wrong |" in line)
  assert "not shown (p " in wrong and "[-" in wrong
  assert "Computed before the rows were drawn" in text and f"The table has {NUM}." in text and "A note." in text
  cloud = render(document() | {"layout": "cloud"})
  assert "cloud calls, %" in cloud and "by the edge, %" in cloud


def test_rates_are_held_or_missed():
  rows = [dict(entry) for entry in document()["rows"]]
  rows[2] |= {"wanted_rate": 0.5, "cloud": rows[2]["cloud"] | {"call_rate": 0.504}}
  rows[3] |= {"options": {"cloud_rate": 0.3}, "cloud": rows[3]["cloud"] | {"call_rate": 0.31}}
  text = render(document() | {"layout": "cloud", "rows": rows})
  assert "| 50, held |" in text and "| 30, **missed** |" in text


# --- beforehand ----------------------------------------------------------------------------------------------------------


class _Clock:
  """A bench of 64 images where every batch takes a second."""

  batch, prompts, samples = 8, ("a dog",) * 64, 1

  def __init__(self, missing):
    self.missing, self.timed = missing, []

  def seconds_a_batch(self, entry):
    self.timed.append(entry)
    self.missing -= self.missing > 0
    return 1.0

  def num_missing(self, entry):
    return self.missing


def test_what_a_row_costs():
  assert cost_of(_Clock(5), row("sjd"), 64, 2.0) == Cost("sjd", 4 + 2.0)
  clock = _Clock(5)
  found = cost_of(clock, row("ciar", "CIAR", rate=0.3), 64, 2.0)
  assert found == Cost("CIAR", 4 + 5 * 8 + 2.0)  # five decodes of all images in a search
  # One and five decodes of the first images, then two of all.
  assert cost_of(_Clock(8), row("ciar", "CIAR", rate=0.3), 16, 2.0) == Cost("CIAR", 2 + 5 * 2 + 2 * 8 + 2.0)
  assert dict(clock.timed[0].options)["tau"] == CLOSED and clock.timed[0].rate is None


def test_what_a_table_can_show():
  pilot = document(margin=0.3)["outlook"]
  (sentence,) = outlook_sentences(pilot)
  assert f"do not agree in {100 * pilot['pilot']['differ']:.0f} %" in sentence
  assert pilot["needed"] > NUM and pilot["needed_for_margin"] < pilot["needed"]
  assert f"{pilot['needed']:,} images with 8 comparisons" in sentence and "less than 30 points" in sentence
  silent = Outlook(8, (Cost("a", 61.0), Cost("b", 0.0)), None, 2, 0, 0.05, 0.0)
  assert silent.lines() == ["about 0:01:01, without the wall clock, for 2 rows of 8 images (a 0:01:01)"]
  assert silent.needed() is None and silent.needed_for_margin() is None


# --- trainings and audits ------------------------------------------------------------------------------------------------


def trained(**groups):
  rows = [
    {"setting": name, "label": f"{name} {seed}", "metrics": {"right": {"value": value}}}
    for name, values in groups.items()
    for seed, value in enumerate(values)
  ]
  return {"rows": [{"label": claims.PLAIN, "metrics": {"right": {"value": 0.7}}}, *rows]}


def test_trainings_are_the_units():
  values = dict(base=[0.60, 0.64, 0.62], same=[0.61, 0.63, 0.62], worse=[0.40, 0.44, 0.41])
  found = seeds.compare(trained(**values))
  assert found.base == "base" and found.degrees == 6 and found.seeds == dict.fromkeys(values, 3)
  within = sum(float(np.var(group, ddof=1)) for group in values.values()) / 3
  assert found.deviation == pytest.approx(np.sqrt(within))
  worse = found.against["worse"].difference
  t = (np.mean(values["worse"]) - np.mean(values["base"])) / np.sqrt(within * 2 / 3)
  assert worse.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t), 6), rel=1e-6) and worse.high < 0
  assert found.against["worse"].adjusted < 0.05 < found.against["same"].adjusted
  (sentence,) = seeds.sentences(trained(**values))
  assert "6 degrees of freedom" in sentence and "worse 41.7 %" in sentence
  assert seeds.sentences(trained(base=[0.6, 0.7])) == [] == seeds.sentences(trained(a=[0.6], b=[0.7]))


def test_rank_correlations_are_spearmans():
  generator = np.random.default_rng(0)
  first = generator.integers(0, 6, 12).astype(float)
  second = first + generator.normal(size=12)
  found, wanted = predictions.rank_correlation(first, second), scipy.stats.spearmanr(first, second)
  assert found.value == pytest.approx(wanted.statistic) and found.p_value == pytest.approx(wanted.pvalue, abs=0.01)
  assert predictions.rank_correlation(np.ones(5), np.arange(5)).p_value == 1


def test_audited_rows_are_compared_with_their_harm():
  table = document()
  bias = lambda value: {"audit": {"tv": {"value": value, "low": 0.0, "high": 1.0}}}
  named = {entry["label"]: entry for entry in table["rows"]}
  lossy = [named[label] | {"label": f"{label} {n}"} for n in range(2) for label in ("wrong", "white")]
  rows = [named[claims.PLAIN], named["harmless"] | bias(0.0)]  # an exact row has no harm to predict
  rows += [entry | bias(0.01 * n) for n, entry in enumerate(lossy, 1)]
  (sentence,) = predictions.sentences(table | {"rows": rows})
  assert "loss of correct images" in sentence and "4 rows" in sentence
  assert predictions.sentences(table) == []
  text = render(table | {"rows": rows})
  assert "TV per token" in text and sentence in text


def test_scorers_refuse_what_they_cannot_draw():
  for bad in ({"num": 1}, {"split": "val_style"}):
    with pytest.raises(ValueError, match="num from 2 and a split"):
      Scenes(**bad)
  texts = Scenes(8).texts()
  assert texts == Scenes(16).texts()[:8] and texts != Scenes(8, seed=3).texts()
