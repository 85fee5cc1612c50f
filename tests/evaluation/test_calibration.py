"""Calibration with the full decoder reaches the target rate on other keys and prompts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.drafters.ciar_drafter import CiarDrafter
from jaxspec.evaluation.threshold_search import find_threshold, find_threshold_by_few, prompts_hash, quantile_threshold
from jaxspec.intervals.gate import constant_gate
from jaxspec.intervals.scores import IntervalScore, Random
from jaxspec.models.conditions import Caption, ClassLabels
from jaxspec.models.heads.inter_head import with_inter_head
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.run.cloud_calls import cloud_calls
from jaxspec.verifiers.ciar_target import CiarVerifier
from tests.ciar_pair import gated_params, markov_gated
from tests.helpers import CAPTIONS, random_params, side
from tests.sqs_pair import tables


@pytest.mark.slow
@pytest.mark.long_runs
def test_calibrated_threshold_holds_on_held_out_prompts():
  """CIAR's own score on random networks whose rates depend on the caption. The test has other captions and other keys."""
  rows, target, config = 4096, 0.3, dataclasses.replace(CAPTIONS, num_layers=1, dim=16)
  cloud, edge = llamagen_fns(config), with_inter_head(llamagen_fns(config), config.vocab_size)
  sides = [side(random_params(fns, seed)) for seed, fns in enumerate((edge, cloud))]
  drafter = CiarDrafter(edge, IntervalScore(), constant_gate, most_drafts=3, max_run=8)
  verifier = CiarVerifier(cloud, jaxspec.lossless, warp=jaxspec.Warp(), window=3, widths=(1, 12))
  captions = Caption(
    jnp.asarray(np.random.default_rng(0).normal(size=(2, rows, 5, 6)), jnp.float32), jnp.ones((2, rows, 5), bool)
  )

  def outcome(tau, part):
    params = jaxspec.SpecParams(gated_params(sides[0], tau), sides[1])
    prompts = jax.tree.map(lambda leaf: leaf[part], captions)
    return jaxspec.speculate(params, jax.random.key(part), prompts, drafter=drafter, verifier=verifier, max_len=16)

  rates = np.asarray(outcome(0.1, 0).counters.target_calls) / 16
  assert rates.std() > 0.05  # rows differ: the caption matters, not the threshold alone
  start = quantile_threshold(outcome(-1.0, 0).report.scores, target)
  found = find_threshold(lambda tau: cloud_calls(outcome(tau, 0)).call_rate, target, start=start)
  held_out = cloud_calls(outcome(found.tau, 1))
  assert abs(found.rate - target) <= 0.005 and abs(held_out.call_rate - target) <= 0.005, (found, held_out)


@pytest.mark.slow
def test_figures_of_a_decode():
  """Random scores are continuous."""
  rows, length = 100, 60
  params, kwargs = markov_gated(*tables(8, 5), window=3, max_run=8, widths=(4, 12), tau=0.5, score_fn=Random())
  prompt = ClassLabels(jnp.zeros((rows,), jnp.int32))
  out = jaxspec.speculate(params, jax.random.key(0), prompt, max_len=length, **kwargs)
  figures = cloud_calls(out)
  origin = np.asarray(out.origin)
  assert figures.local == (origin == Origin.LOCAL).mean() and figures.accepted == (origin == Origin.DRAFT).mean()
  assert figures.local + figures.accepted + figures.by_cloud == pytest.approx(1)
  assert figures.call_rate == pytest.approx(np.asarray(out.counters.target_calls).mean() / length)
  assert figures.interval[0] < figures.call_rate < figures.interval[1]
  assert figures.steps_cloud == pytest.approx(1 / figures.call_rate)


def test_search_on_a_known_curve():
  curve = lambda tau: 1 / (1 + tau)
  for start in (1e-4, 1.0, 1e3):
    assert find_threshold(curve, 0.3, start=start).tau == pytest.approx(7 / 3, rel=0.01)
  with pytest.raises(ValueError, match="a rate that a threshold reaches"):
    find_threshold(lambda tau: 0.5, 0.3, start=1.0)
  with pytest.raises(ValueError, match="start above 0"):
    find_threshold(curve, 0.3, start=0.0)


def test_a_search_from_a_near_start_takes_small_steps():
  tried = []

  def curve(tau):
    tried.append(tau)
    return 1 / (1 + tau)

  found = find_threshold(curve, 0.3, start=2.2, factor=1.1, tolerance=0.004)
  assert found.tau == pytest.approx(7 / 3, rel=0.02) and len(tried) <= 3 and tried[1] == pytest.approx(2.42)
  with pytest.raises(ValueError, match="factor above 1"):
    find_threshold(curve, 0.3, start=1.0, factor=1.0)


def test_most_trials_are_those_of_a_few_images():
  trials = {"all": 0, "few": 0}

  def curve(which, shift):
    def rate_of(tau):
      trials[which] += 1
      return shift + 1 / (1 + tau)

    return rate_of

  settings = dict(start=100.0, tolerance=0.002)
  found = find_threshold_by_few(curve("all", 0.0), curve("few", 0.05), 0.3, **settings)
  assert abs(found.rate - 0.3) <= 0.002 and found.tau == pytest.approx(7 / 3, rel=0.02)
  assert trials["all"] <= 3 < trials["few"]
  # Few images that hardly differ from all: two trials of all, at the same threshold.
  trials["all"] = 0
  found = find_threshold_by_few(curve("all", 0.0), curve("few", 1e-4), 0.3, **settings)
  assert abs(found.rate - 0.3) <= 0.002 and trials["all"] == 2
  # A rate that the few images cannot reach ends the search among them only.
  few = lambda tau: min(1 / (1 + tau), 0.3)
  assert abs(find_threshold_by_few(curve("all", -0.1), few, 0.3, **settings).rate - 0.3) <= 0.002
  trials["all"] = 0
  with pytest.raises(ValueError, match="a rate that a threshold reaches"):
    find_threshold_by_few(curve("all", 0.0), lambda tau: 0.6, 0.3, **settings)
  assert trials["all"] == 0
  with pytest.raises(ValueError, match="a rate that a threshold reaches"):
    find_threshold_by_few(lambda tau: 0.6, curve("few", 0.0), 0.3, **settings)


def test_quantiles_and_hashes():
  scores = np.array([[np.nan, 0.1, 0.2], [0.3, 0.4, np.nan]])
  assert quantile_threshold(scores, 0.5) == pytest.approx(0.25)
  assert quantile_threshold(scores, 0) == 0.4 and quantile_threshold(scores, 1) == 0.1
  for bad in ((scores, 2.0), (np.full(3, np.nan), 0.5)):
    with pytest.raises(ValueError, match="Must have"):
      quantile_threshold(*bad)
  assert prompts_hash(["a", "b"]) == prompts_hash(["a", "b"]) != prompts_hash(["b", "a"])
