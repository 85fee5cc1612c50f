"""Figures of a diagnosis by other ways to the same numbers, and its advice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.evaluation.diagnosis import Diagnosis, ExactDraft, Tokens, diagnose, teacher_forced
from jaxspec.models import guidance
from jaxspec.models.conditions import Prefixed
from jaxspec.models.guidance import Guided
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.run.loading import load_pipeline
from jaxspec.statistics import Interval
from tests.cli import fake_bundle
from tests.helpers import TARGET, labels, random_params, slow_but


@pytest.mark.parametrize("guided", slow_but([False, True], [False]))
def test_teacher_forcing_is_one_pass_without_a_cache(guided):
  fns = llamagen_fns(TARGET)
  params, condition = random_params(fns, 0), labels(3)
  tokens = jax.random.randint(jax.random.key(1), (3, 7), 0, TARGET.vocab_size)
  if guided:
    fns, params = guidance.guided(fns), Guided(params, jnp.float32(2.0))

  @jax.jit
  def run(params, condition, tokens):
    whole = fns.apply(params, Prefixed(condition, tokens[:, :-1]), None, positions=None)[0]
    return whole, teacher_forced(fns, params, condition, tokens), teacher_forced(fns, params, condition, tokens[:, :1])

  whole, forced, one = (np.asarray(output.logits) for output in run(params, condition, tokens))
  np.testing.assert_allclose(forced, whole[:, -7:], atol=1e-5)
  np.testing.assert_allclose(one, whole[:, -7:][:, :1], atol=1e-5)


@pytest.mark.slow
def test_figures_of_a_bundle(tmp_path):
  """The tokens' probabilities are those of the distributions from which plain decoding drew; exact drafts are audited."""
  pipe = load_pipeline(fake_bundle.make_fake_bundle(tmp_path / "tiny"))
  job = pipe.job(["red apple", "blue cat", "a dog"], seed=3, temperature=0.7)
  found = diagnose(job, 2, samples=2)
  assert found.vocab_size == 16 and found.tokens.largest.shape == (6 * 16,)
  assert (found.tokens.own <= found.tokens.largest + 1e-6).all() and (found.tokens.own > 0).all()
  assert (found.tokens.near <= 1 - found.tokens.own + 1e-5).all() and (
    found.tokens.entropy <= np.log(8) + 1e-5
  ).all()  # top-k 8
  # The mean of log 1/p of drawn tokens estimates the entropy.
  surprise = -np.log(found.tokens.own)
  error = surprise - found.tokens.entropy
  assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))
  assert {draft.method for draft in found.exact} == {"speculative", "eagle-chain", "ngram", "sjd"}
  rates = [draft.tokens_per_call.value for draft in found.exact]
  assert rates == sorted(rates, reverse=True) and rates[-1] >= 1
  (edge,) = found.intervals
  assert edge.draft == "edge" and 0 <= edge.covered <= 1 and edge.conformal_radius > 0 and edge.learnt_radius > 0
  assert found.advice()[0].startswith("Exact: ")


def _of(largest, own, near, exact=()):
  fill = lambda value: np.full(4, value)
  return Diagnosis(9, Tokens(np.asarray(largest), fill(0.5), fill(own), fill(near)), list(exact), [])


def test_advice_follows_certainty_and_synonyms():
  flat, certain = [0.1, 0.15, 0.1, 0.5], [0.99, 0.97, 1.0, 0.3]
  draft = ExactDraft("speculative", "small", Interval(2.5, 2.0, 3.0), Interval(0.8, 0.7, 0.9))
  last = lambda *args: _of(*args).advice()[-1]
  assert "little to gain" in last(certain, 0.9, 0.0)
  assert "CIAR with merged codes can gain" in last(flat, 0.1, 0.6)
  assert "not between near-synonyms" in last(flat, 0.1, 0.05)
  assert "without a code book near-synonyms are unknown" in last(flat, 0.1, np.nan)
  assert "are mixed (25% above 0.95, 25% below 0.2)" in last([0.99, 0.1, 0.5, 0.6], 0.5, 0.1)
  assert (
    _of(flat, 0.1, 0.6, [draft]).advice()[0] == "Exact: speculative with small commits 2.50 tokens per call of the target."
  )


def test_what_cannot_be_diagnosed(tmp_path):
  pipe = load_pipeline(fake_bundle.make_fake_bundle(tmp_path / "tiny"))
  with pytest.raises(ValueError, match="temperature above 0 to diagnose"):
    diagnose(pipe.job(["red apple"], temperature=0.0), 1)
