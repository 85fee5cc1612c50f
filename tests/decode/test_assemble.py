"""`assemble`: which parts a setting switches on, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.decode.assemble import assemble
from jaxspec.decode.methods import METHODS
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.models.llamagen import llamagen_fns
from tests import helpers


@pytest.fixture(scope="module")
def networks():
  target, draft = llamagen_fns(helpers.TARGET), llamagen_fns(helpers.DRAFT)
  return target, helpers.random_params(target, 1), draft, helpers.random_params(draft, 2)


def test_guidance_is_on_above_one(networks):
  params, _, _ = assemble(*networks, cfg_scale=1.0)
  assert not isinstance(params.target.model, jaxspec.Guided) and not isinstance(params.draft.model, jaxspec.Guided)
  params, _, _ = assemble(*networks, cfg_scale=3.0)
  assert params.target.model.scale == params.draft.model.scale == 3.0
  params, _, _ = assemble(*networks, cfg_scale=3.0, draft_guidance=False)
  assert isinstance(params.target.model, jaxspec.Guided) and not isinstance(params.draft.model, jaxspec.Guided)


def test_equal_settings_give_the_same_functions(networks):
  """Static arguments of a jitted decode: other objects would compile again."""
  first, second = (assemble(*networks, gamma=3, top_k=5, temperature=t)[1:] for t in (0.5, 1.0))
  assert first == second
  assert assemble(*networks, gamma=3, top_k=5, top_p=0.9)[1:] != first


def test_plain_decoding_needs_no_draft(networks):
  params, drafter, verifier = assemble(*networks[:2], method="ar")
  assert drafter is NO_DRAFTER and params.draft == ()
  out = jaxspec.autoregress(params, jax.random.key(0), helpers.labels(2), verifier=verifier, max_len=4)
  assert out.tokens.shape == (2, 4)


@pytest.mark.parametrize(
  "settings",
  [
    {"gamma": 0}, {"cfg_scale": 0.5}, {"cfg_scale": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5},
    {"temperature": -1.0}, {"temperature": float("inf")}, {"method": "magic"}, {"window": 0}, {"recycle": "stale"},
    {"initial": "below"}, {"group_size": 0}, {"max_gap": -0.1}, {"max_distance": float("nan")}, {"factor": 0.5},
    {"distance": "pixels"}, {"num_neighbours": 0}, {"tree_size": 99}, {"sparsifier": "all"}, {"ell": 0}, {"alpha": 1.0},
    {"budget": float("nan")}, {"beta1": -0.1}, {"method": "sqs", "vocab_size": 13, "support": 14},
    {"method": "sqs", "vocab_size": 13, "audit": True},
  ],
)  # fmt: skip
def test_refused_settings(networks, settings):
  with pytest.raises(ValueError, match="we instead got"):
    assemble(*networks, **settings)


def test_speculation_needs_a_draft(networks):
  with pytest.raises(ValueError, match="draft network"):
    assemble(*networks[:2])


@pytest.mark.slow
@pytest.mark.parametrize(
  "method", [name for name, parts in METHODS.items() if parts.drafter in ("chain", "compressed", "jacobi")]
)
def test_every_chain_method_decodes_and_greedily_equals_plain_decoding(networks, method):
  """At temperature 0 no rule here lends probability across tokens, so lossy methods draw the greedy picture too."""
  codebook = jnp.asarray(np.random.default_rng(0).normal(size=(13, 4)), jnp.float32)
  kwargs = dict(codebook=codebook, vocab_size=13, grid=4, num_neighbours=3, window=3, gamma=3, group_size=2)
  greedy = dict(cfg_scale=2.0, temperature=0.0, max_gap=0.0)
  params, drafter, verifier = assemble(*networks, method=method, **kwargs, **greedy)
  out = jaxspec.speculate(params, jax.random.key(0), helpers.labels(2), drafter=drafter, verifier=verifier, max_len=16)
  params, _, verifier = assemble(*networks[:2], method="ar", cfg_scale=2.0, temperature=0.0)
  plain = jaxspec.autoregress(params, jax.random.key(0), helpers.labels(2), verifier=verifier, max_len=16)
  np.testing.assert_array_equal(out.tokens, plain.tokens)
  assert (np.asarray(out.counters.draft_calls) > 0).all() == (METHODS[method].drafter != "jacobi")


def test_supports_that_are_not_given_fit_the_vocabulary(networks):
  top = {"sparsifier": "topk"}
  for options, support in (({}, 13), (top | {"support": 5}, 5), (top | {"coding": "dense"}, 13)):
    params, drafter, _ = assemble(*networks, method="sqs", vocab_size=13, max_drafts=6, **options)
    draft, _ = jax.eval_shape(
      drafter.propose, params.draft, jax.random.split(jax.random.key(0), 2), *_waiting(drafter, params.draft)
    )
    assert draft.proposal.ids.shape == (2, 6, support)
  with pytest.raises(ValueError, match="vocab_size"):
    assemble(*networks, method="sqs")


def _waiting(drafter, params):
  """Shapes of a drafter's state and cursor behind token 0, for two rows."""
  prefill = jaxspec.Verdict(jnp.zeros((2,), jnp.int32), jnp.zeros((2,), jnp.int32))
  state = jax.eval_shape(lambda params: drafter.init(params, helpers.labels(2), 8, prefill), params)
  ones = jnp.ones((2,), jnp.int32)
  return state, jaxspec.Cursor(ones, ones, ones > 0, jnp.int32(0), jnp.int32(-1))


def test_tables_of_rules(networks):
  """The distance of GSD comes from the vectors that were asked for; missing ones are named."""
  codebook = jnp.asarray(np.random.default_rng(0).normal(size=(13, 4)), jnp.float32)
  kwargs = dict(method="gsd", vocab_size=13)
  params, _, _ = assemble(*networks, **kwargs, codebook=codebook)
  assert params.target.rule.source == "codebook" and float(params.target.rule.values.max()) <= 4 + 1e-5
  params, _, _ = assemble(*networks, **kwargs, distance="embedding")
  assert params.target.rule.source == "embedding"
  with pytest.raises(ValueError, match="codebook of the picture tokenizer"):
    assemble(*networks, **kwargs)
  with pytest.raises(ValueError, match="vocab_size"):
    assemble(*networks[:2], method="sjd")
  with pytest.raises(ValueError, match="grid"):
    assemble(*networks[:2], method="sjd", vocab_size=13, initial="left")
