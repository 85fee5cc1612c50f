"""Passes of the cloud, recomputed from origins and rounds, equal those that ran."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core.state import Counters, DecodeResult
from jaxspec.intervals.scores import Random
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.cloud_calls import cloud_calls, cloud_passes
from jaxspec.statistics import FEWEST_CLUSTERS
from jaxspec.verifiers.ciar_target import CiarVerifier
from tests.ciar_pair import keys_of, markov_gated
from tests.helpers import markov_fns
from tests.sqs_pair import tables

P, Q = tables(8, 5)
WIDTHS = (4, 6)


@pytest.mark.slow
def test_recomputed_passes_are_those_that_ran():
  """Thresholds from one without local tokens to one with few cloud calls."""
  _, kwargs = markov_gated(P, Q, window=3, max_run=4, score_fn=Random())
  plain, ran = markov_fns(8), []

  def apply(*args, **options):
    jax.debug.callback(lambda: ran.append(1))
    return plain.apply(*args, **options)

  kwargs["verifier"] = CiarVerifier(
    plain._replace(apply=apply), jaxspec.lossless, warp=jaxspec.Warp(), window=3, widths=WIDTHS
  )
  prompt = ClassLabels(jnp.zeros((1,), jnp.int32))
  decode = jax.jit(lambda params: jaxspec.speculate(params, keys_of(1), prompt, max_len=60, **kwargs))
  for tau in (-1.0, 0.6, 0.9):
    ran.clear()
    out = jax.tree.map(np.asarray, decode(markov_gated(P, Q, window=3, tau=tau)[0]))
    jax.effects_barrier()
    (passes,) = cloud_passes(out, window=3, widest=WIDTHS[-1])
    # The prefill always runs; it counts as a call if the cloud drew token 0.
    assert passes == len(ran) - int(out.origin[0, 0] == jaxspec.Origin.LOCAL)
    calls = int(out.counters.target_calls[0])
    assert passes == calls if tau < 0 else passes > calls
    assert cloud_calls(out).call_rate == calls / 60


def test_intervals_of_call_rates_are_rates():
  """One row calls for every token, the others never: no interval leaves [0, 1], and a few rows have none."""
  for num in (FEWEST_CLUSTERS - 1, FEWEST_CLUSTERS):
    counts = np.full(num, 8)
    calls = np.where(np.arange(num) == 0, 8, 0)
    origin = np.where(calls[:, None] > 0, int(jaxspec.Origin.BONUS), int(jaxspec.Origin.LOCAL)) * np.ones((1, 8), int)
    counters = Counters(counts, counts, counts, 8 - calls, calls, counts)
    for flipped in (calls, 8 - calls):
      counters = counters.replace(target_calls=flipped)
      found = cloud_calls(DecodeResult(origin, counts, counters, origin > 0, origin, origin))
      assert found.call_rate == pytest.approx(flipped.sum() / (8 * num))
      assert (found.interval is None) == (num < FEWEST_CLUSTERS)
      low, high = found.interval or (0.0, 1.0)
      assert 0 <= low < found.call_rate < high <= 1
