"""Tables of links: significant differences in a sweep, long runs of the threshold, and times of a pass."""

import dataclasses

import numpy as np
import pytest

from experiments.configs import sqs
from experiments.engine import sweep_claims, threshold_runs
from experiments.engine.experiment import Lab
from experiments.engine.sweep_claims import Pair
from tests import shallow

PROMPTS = 32


def _row(label: str, ms, **options) -> dict:
  noise = np.linspace(0.9, 1.1, PROMPTS)  # prompts differ more than rows
  settings = {"sparsifier": "topk", "beta1": 0.01, "eta": 0.0} | options
  return {"label": label, "options": settings, "at": {t: {"by_prompt": list(noise + value)} for t, value in ms.items()}}


def _document() -> dict:
  wiggle = np.linspace(-1e-3, 1e-3, PROMPTS)[::-1]
  rows = [
    _row("base", {"0.2": 1.0, "1": 1.0}),
    _row("fast when cold", {"0.2": 0.99 + wiggle, "1": 1.0 + wiggle}),
    _row("fixed", {"0.2": 1.1, "1": 1.0 + wiggle}, sparsifier="conformal"),
    _row("moving", {"0.2": 1.1 + wiggle, "1": 0.9}, sparsifier="conformal", eta=0.1),
  ]
  return {"rows": rows, "subject": "base", "num_prompts": PROMPTS}


def test_rows_are_compared_with_the_subject_and_controllers_with_their_fixed_threshold():
  document = _document()
  labels = {(pair.label, pair.other) for pair in sweep_claims.pairs(document)}
  assert labels == {("fast when cold", "base"), ("fixed", "base"), ("moving", "base"), ("moving", "fixed")}
  orders = {pair: sweep_claims.order_of(verdict) for pair, verdict in sweep_claims.verdicts(document).items()}
  assert orders[Pair("fast when cold", "base", "0.2")] == -1 and orders[Pair("fast when cold", "base", "1")] == 0
  assert orders[Pair("fixed", "base", "0.2")] == 1 and orders[Pair("moving", "fixed", "0.2")] == 0
  assert orders[Pair("moving", "fixed", "1")] == -1
  text = "\n".join(sweep_claims.sentences(document))
  assert "Holm's correction over 8 comparisons" in text
  assert "moving, against the fixed threshold of the same beta_1: faster at T = 1." in text
  words = sweep_claims.words_of(document)
  assert words["fast when cold", "0.2"] == "faster" and words["fixed", "0.2"] == "slower" and words["fixed", "1"] == ""


def test_figures_of_a_threshold_obey_the_identity_and_name_paths_above_the_bound():
  eta, alpha, first = 0.1, 0.05, 0.2
  fed = np.array([[5.0, 1.0], [30.0, 20.0]])  # sums of texts of 50 tokens
  last = first - eta * (np.cumsum(fed, axis=1) - alpha * 50 * np.array([1, 2]))
  path = {"tokens": np.full((2, 2), 50.0), "fed": fed, "dropped": fed / 2, "support": np.ones((2, 2)), "threshold": last}
  found = threshold_runs.figures(path, 2, beta1=first, eta=eta, alpha=alpha)
  assert found["fed"] == pytest.approx(alpha + (first - found["threshold"]) / (eta * 100))  # Lemma 2, signed
  assert found["bound"] == pytest.approx(alpha + (first + eta * (1 - alpha)) / (eta * 100))
  assert found["over"] == 1 and found["worst"] == pytest.approx(0.5) and found["dropped"] == pytest.approx(0.14)
  assert threshold_runs.figures(path, 1, beta1=first, eta=0.0, alpha=alpha)["bound"] is None


def test_times_of_a_pass_are_given_together():
  with pytest.raises(ValueError, match="edge_ms and cloud_ms together"):
    dataclasses.replace(sqs.TABLES["sweep"], edge_ms=1.0)
  table = dataclasses.replace(sqs.TABLES["sweep"], edge_ms=1.0, cloud_ms=6.0)
  assert table.passes(None, None).compute.cloud_s == pytest.approx(6e-3)  # nothing is measured


@pytest.mark.slow
def test_tables_of_the_shipped_pair(tmp_path):
  lab, bundle = Lab(tmp_path), str(shallow.write(tmp_path / "bundles", "wordnet"))
  small = dict(bundle=bundle, prompts=("river:", "to walk:"), tokens=12)
  sweep, codecs, runs = (
    dataclasses.replace(sqs.TABLES[name], **small, **given)
    for name, given in (
      ("sweep", dict(temperatures=(0.6,), rows=sqs.TABLES["sweep"].rows[5:8], subject="K-SQS, K = 128", busy=1.0)),
      ("codecs", dict(temperatures=(0.6,), rows=sqs.TABLES["codecs"].rows[-3:], busy=1.0)),
      ("long_runs", dict(rows=sqs.TABLES["long_runs"].rows[2:3], texts=3)),
    )
  )
  found = sweep.measure(lab)
  assert found["config"]["edge_ms"] > 0 and found["config"]["cloud_ms"] + found["config"]["cloud_token_ms"] > 0
  assert all(len(row["at"]["0.6"]["by_prompt"]) == 2 for row in found["rows"])
  assert len(sweep_claims.sentences(found)) == 2
  trimmed, lazy, half = codecs.measure(lab)["rows"]
  assert trimmed["drafts_per_round"] == lazy["drafts_per_round"]  # the same drafts, coded differently
  assert lazy["coded_bits_per_token"][0] < trimmed["coded_bits_per_token"][0] < half["coded_bits_per_token"][0]
  (row,) = runs.measure(lab)["rows"]
  alpha, eta, first = (row["options"][name] for name in ("alpha", "eta", "beta1"))
  for after in row["after"].values():
    assert after["over"] == 0 and after["worst"] <= after["bound"]
    assert after["fed"] == pytest.approx(alpha + (first - after["threshold"]) / (eta * after["tokens"]), abs=1e-4)
  again = runs.measure(lab)["rows"][0]["after"]
  assert again == row["after"]
