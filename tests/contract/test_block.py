"""Block verification: exact on chains and on Jacobi windows, and no fewer tokens per call than the test one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.core import rng
from jaxspec.core.types import Draft
from jaxspec.drafters.jacobi_drafter import JacobiDrafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.block_rule import block
from jaxspec.rules.exact_distribution import exact_block_distribution
from jaxspec.serving.wire.method_codecs import codec_of
from jaxspec.serving.wire.profiles import rule_of
from jaxspec.testing import Tape, enumerate_outcomes, fast_keys
from jaxspec.verifiers.target import target_logits
from tests.contract import networks
from tests.contract.tables import CERTAIN, QUARTERS, log_side, probabilities
from tests.contract.windows import Enumerated, random_table
from tests.helpers import slow_but

KINDS = {"chain": {}, "fresh": dict(recycle="fresh"), "coupled": dict(recycle="coupled")}


@pytest.mark.parametrize("kind", KINDS)
def test_exact_with_no_fewer_tokens_per_call(kind):
  """Five binary tokens, drafts of three, random distributions."""
  generator = np.random.default_rng(0)
  saved = []
  for _ in range(6):
    target, draft = (random_table(generator, 2, 5) for _ in range(2))
    options = KINDS[kind] | ({"draft": draft} if kind == "chain" else {})
    alone, together = (Enumerated(target, 5, 3, block=together, **options) for together in (False, True))
    assert max(alone.total_variation(), together.total_variation()) < 1e-12
    saved.append(alone.calls - together.calls)
  assert min(saved) > 0.01 and np.mean(saved) > 0.05


def test_a_coupled_draft_that_keeps_its_proposal_is_biased():
  """The reason for the law ``[q - p_{j-1} p]+``: a draft behind the last accepted one has taken part in the test."""
  target = random_table(np.random.default_rng(1), 2, 4)
  assert Enumerated(target, 4, 3, block=True, recycle="coupled").total_variation() < 1e-12
  assert Enumerated(target, 4, 3, block=True, recycle="coupled", corrected=False).total_variation() > 1e-3


# In the compiled loop: four tokens of three ids. Tokens 1 and 2 have a half and two quarters, tokens 0 and 3 are certain.
V, N, WINDOW = 3, 4, 2
KINDS_OF_TOKENS = (CERTAIN, QUARTERS, QUARTERS, CERTAIN)
# Cells of the relevant draws. Thresholds of the tests of round 0 are sevenths and sixteenths: uniform drafts have a third.
CELLS = {
  (rng.Stream.DRAFT, 0, 0): 3, (rng.Stream.DRAFT, 0, 1): 3, (rng.Stream.VERIFY, 0, 0): 7, (rng.Stream.VERIFY, 0, 1): 16,
  (rng.Stream.DRAFT, 1, WINDOW): 4, (rng.Stream.VERIFY, 1, 0): 2,
}  # fmt: skip


@pytest.mark.parametrize("recycle", slow_but(["fresh", "coupled"], ["coupled"]))
def test_every_outcome_of_a_window(recycle):
  drafter = JacobiDrafter(window=WINDOW, vocab_size=V, recycle=recycle, block=True)
  verifier = jaxspec.TargetVerifier(networks.history_fns(V, N), block, warp=jaxspec.Warp(), feedback_fn=target_logits)
  fresh = {(rng.Stream.DRAFT, 1, 0): 4} if recycle == "fresh" else {}
  tape = Tape.all_outcomes(CELLS | fresh)
  condition = ClassLabels(jnp.zeros((tape.num_rows,), jnp.int32))
  for seed in (1, 2):
    probs = probabilities(seed, KINDS_OF_TOKENS)
    params = jaxspec.SpecParams((), log_side(probs))
    decode = lambda keys, params=params: (
      jaxspec.speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=N).tokens
    )
    np.testing.assert_allclose(enumerate_outcomes(decode, tape, V), networks.joint(probs, V, N), atol=1e-5)


def _draft(seed, rows=5, window=3, vocab=4):
  generator = np.random.default_rng(seed)
  proposal, target = (generator.normal(size=(rows, size, vocab)).astype(np.float32) for size in (window, window + 1))
  tokens = np.argmax(proposal + generator.gumbel(size=proposal.shape), axis=-1).astype(np.int32)
  number = np.asarray([3, 2, 1, 0, 3], np.int32)
  return Draft.chain(jnp.asarray(tokens), jnp.asarray(proposal), jnp.asarray(number), 0), jnp.asarray(target)


def test_stops_and_residuals_are_those_of_the_paper():
  """One uniform number chooses the accepted drafts; 400 others cover every quantile of the token after them."""
  draft, target = _draft(5, rows=4)
  draft = draft._replace(num_drafted=jnp.full((4,), 3, jnp.int32))
  p, q = (networks.softmax(logits) for logits in (target, draft.proposal))
  judge, stops = jax.jit(lambda keys, draft, target: block((), keys, draft, target)), jax.jit(block.stop_prob)
  quantiles = (np.arange(400) + 0.5) / 400
  for row in range(4):
    one = jax.tree.map(
      lambda leaf, row=row: jnp.asarray(np.repeat(np.asarray(leaf)[row : row + 1], 400, axis=0)), (draft, target)
    )
    reach, stop = [1.0], np.asarray(stops(*one))[0]
    for index, token in enumerate(np.asarray(draft.tokens)[row]):
      rest = np.maximum(reach[index] * p[row, index] - q[row, index], 0)
      assert stop[index] == pytest.approx(rest.sum() / (rest.sum() + 1 - reach[index]), abs=1e-5)
      if stop[index] > 0.01 and stop[index + 1 :].max() < 0.999:
        tests = np.where(np.arange(3) == index - 1, 0.0, 0.9999999)
        verdict = judge(Tape.of_rule(np.tile(tests, (400, 1)), quantiles).keys(), *one)
        assert (np.asarray(verdict.num_accepted) == index).all()
        seen = np.bincount(np.asarray(verdict.next_tokens)[:, 0], minlength=4) / 400
        assert np.abs(np.cumsum(seen) - np.cumsum(rest / rest.sum())).max() < 2 / 400
      reach.append(min(1.0, reach[index] * p[row, index, token] / q[row, index, token]))
    assert stop[3] == pytest.approx(reach[3], abs=1e-5)


def test_a_single_draft_is_tested_as_by_the_lossless_rule():
  draft, target = _draft(0, window=1)
  draft = draft._replace(num_drafted=jnp.minimum(draft.num_drafted, 1))
  judge = lambda rule: rule((), fast_keys(3, 5), draft, target)
  together, alone = jax.jit(lambda: (judge(block), judge(jaxspec.lossless)))()
  jax.tree.map(np.testing.assert_array_equal, together, alone)


def test_the_audit_has_no_bias_and_more_acceptance():
  draft, target = _draft(1)
  found = jax.tree.map(np.asarray, jax.jit(lambda: exact_block_distribution(block, draft, target))())
  drafted = np.arange(3)[None] < np.asarray(draft.num_drafted)[:, None]
  assert found.tv[drafted].max() < 1e-5 and found.excess[drafted].max() < 1e-6
  assert (found.alpha >= found.alpha_sd - 1e-6)[drafted].all() and (found.alpha > found.alpha_sd + 0.01)[drafted].any()


def test_padding_may_be_anything():
  draft, target = _draft(2)
  beyond = (jnp.arange(3)[None] >= draft.num_drafted[:, None])[..., None]
  padded = draft._replace(proposal=jnp.where(beyond, jnp.nan, draft.proposal))
  judge = jax.jit(lambda draft: block((), fast_keys(4, 5), draft, target))
  found = judge(padded)
  jax.tree.map(np.testing.assert_array_equal, found, judge(draft))
  assert (found.num_accepted <= draft.num_drafted).all()


def test_messages_say_how_drafts_are_tested():
  assert [rule_of(codec_of(methods.Sqs(verify=verify), 5)) for verify in ("token", "block")] == ["exact", "block"]


def test_options_that_do_not_go_together_are_refused():
  with pytest.raises(ValueError, match="recycle fresh or coupled with verify block, we instead got gumbel: not exact"):
    methods.Sjd(verify="block", recycle="gumbel")
  with pytest.raises(ValueError, match="verify token with coding lazy, which sends one distribution, we instead got block"):
    methods.Sqs(verify="block", coding="lazy", sparsifier="topk")
