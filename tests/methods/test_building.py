"""Every method builds its parts on tiny networks, decodes with correct shapes, and reports missing inputs."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.network import Network
from jaxspec.core.options import values_of
from jaxspec.methods import METHODS
from jaxspec.methods.common import target_side
from jaxspec.models.guidance import Guided
from jaxspec.rules.lantern_greedy import GreedyLanternRule
from jaxspec.rules.lossless import lossless
from jaxspec.rules.path_coupling import PathCoupling
from jaxspec.rules.path_ratio import PathRatio
from jaxspec.sampling import ContinuousSampling, DenoisingSampling, SamplingConfig
from tests.helpers import labels
from tests.methods.networks import decoder, head, markov, small, traced, vectors

EVERY = [*METHODS, "ar of vectors"]


def _decoder(name, **fields):
  if name == "ar of vectors":
    return decoder(methods.Plain(), ContinuousSampling("ddim5", 1))
  return decoder(small(name), **fields)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_method_builds_and_traces(name):
  bound = _decoder(name)
  parts, length = bound.parts, bound.context.space.num_tokens
  assert (parts.drafter is None) == (parts.decode is not None)
  if parts.drafter is not None:
    assert parts.drafter.window == bound.method.drafts_per_round()
    assert (parts.params.draft == ()) == (bound.method.draft_family is None)
  out = traced(bound)
  vector = (bound.target.fns.token_dim,) if bound.draws_continuous else ()
  if bound.method.tokens == methods.SCALES:
    vector = (max(bound.target.fns.sizes),)
  if bound.method.tokens == methods.DENOISING_STEPS:
    vector = (bound.target.fns.state_dim,)
  assert out.tokens.shape == (2, length, *vector) and out.lengths.shape == (2,)
  assert all(leaf.shape == (2,) for leaf in jax.tree.leaves(out.counters))


@pytest.mark.parametrize("name", EVERY)
def test_equal_settings_give_equal_parts(name):
  """Drafter, verifier and decode are static arguments of a compiled program: others would compile again."""
  first, second = _decoder(name), _decoder(name)
  static = lambda bound: (bound.parts.drafter, bound.parts.verifier, bound.parts.decode, bound.parts.target_prefix)
  assert first.parts is first.parts and first.parts is not second.parts
  assert static(first) == static(second) and hash(static(first)) == hash(static(second))
  kind = type(first.sampling)
  changed = dict(steps=8, cfg_scale=2.0) if kind is DenoisingSampling else values_of(first.sampling) | {"temperature": 0.5}
  other = kind(**changed)
  assert static(decoder(first.method, other)) == static(first)


# Missing inputs of methods besides a draft network.
NEEDS = {"gsd": {"codebook", "vocab_size"}} | dict.fromkeys(("lantern", "eagle-lantern"), {"codebook"})
NEEDS |= dict.fromkeys(("sqs", "sjd", "scaled", "ciar"), {"vocab_size"})
NEEDS |= dict.fromkeys(("ar", "speculative", "eagle", "eagle-chain", "block-head", "spatial"), set())


@pytest.mark.parametrize("name", METHODS)
def test_missing_parts_are_named(name):
  cls, refused = METHODS[name], set()
  for field, words in (
    ("draft", "a draft network"), ("vocab_size", "vocab_size"), ("codebook", "the codebook of the image tokenizer")
  ):  # fmt: skip
    fields = {field: None}
    if field == "vocab_size" and cls.draft_family in ("eagle", "block_head", "spatial"):
      continue  # given by the config
    try:
      decoder(small(name), **fields).parts
    except ValueError as error:
      assert str(error) == f"Must have {words} for method {name}, we instead got none"
      refused.add(field)
  needs_draft = cls.draft_family is not None and cls.free_draft is None
  assert ("draft" in refused) == needs_draft
  assert refused - {"draft"} == NEEDS.get(name, refused - {"draft"})


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: decoder(small("sjd", initial="left"), grid=None), r"a grid \(for initial drafts from left\)"),
    (lambda: decoder(small("spatial"), grid=None), r"a grid \(to draft downward\)"),
    (lambda: decoder(small("spatial", gamma=8)), "gamma of at most the 7 places of the heads, we instead got 8"),
    (lambda: decoder(small("gsd", distance="embedding")), "a target with input embeddings"),
    (lambda: decoder(small("sqs", support=6)), "support of 1 to 5 tokens"),
    (lambda: decoder(small("sqs"), audit=True), "no audit with method sqs"),
    (lambda: decoder(small("ciar"), audit=True), "no audit with method ciar"),
    (lambda: decoder(small("cspd"), audit=True), "no audit with method cspd"),
    (lambda: decoder(small("lantern"), SamplingConfig(temperature=0), audit=True), "temperature above 0 to audit"),
    (lambda: decoder(small("eagle-lantern"), SamplingConfig(temperature=0)), "temperature above 0 for relaxed trees"),
    (lambda: decoder(small("ciar", tau=None)), "tau or cloud_rate, or a draft with thresholds"),
    (lambda: decoder(small("ciar", inject="both")), "interval features to inject both"),
    (lambda: decoder(small("ciar", target_prefix=0.2), num_tokens=None), "num_tokens for method ciar"),
    (lambda: decoder(small("cspd", exact=True), ContinuousSampling(5)), "stop with exact"),
    (lambda: decoder(small("parallel"), target=vectors("causal", 1)), "a masked network"),
    (lambda: decoder(small("cspd", block=True)), r"a masked network \(MAR\) as causal with block"),
    (lambda: decoder(small("parallel"), ContinuousSampling(5, 1, refine=True)), "no refine with method parallel"),
    (lambda: decoder(small("parallel", num_iter=9)), "num_iter from 1 to 4, we instead got 9"),
    (lambda: decoder(small("speculative", gamma=9)), "gamma below the 9 tokens"),
    (lambda: decoder(small("ciar", gamma=10)), "gamma of at most the 9 tokens"),
    (lambda: decoder(small("sqs", max_drafts=10)), "max_drafts of at most the 9 tokens"),
    (lambda: decoder(small("gsd", window=10)), "window of at most the 9 tokens"),
    (lambda: decoder(small("cspd", gamma=4)), "gamma below the 4 tokens"),
    (lambda: decoder(small("eagle", tree_depth=17)), "tree_depth of at most the 16 tokens"),
    (lambda: decoder(small("cspd"), draft=markov(0)), "network of continuous tokens .* as markov 0"),
    (lambda: decoder(small("ar"), SamplingConfig(cfg_scale=2.0)), "unconditional condition"),
  ],
)
def test_parts_that_do_not_fit(make, words):
  with pytest.raises(ValueError, match=words) as caught:
    make().parts
  assert "\n" not in str(caught.value)


def test_drafts_of_vectors_are_as_long_as_their_targets():
  short = vectors("causal", 2)
  with pytest.raises(ValueError, match="a draft with num_tokens 4 as its target, we instead got 3"):
    decoder(small("cspd"), draft=Network(short.fns._replace(num_tokens=3), short.params)).parts


@pytest.mark.slow
def test_guidance_is_on_above_one_and_off_for_drafts_that_learned_it():
  """Both sides get one scale; a head without guidance continues the features of the guided distribution."""
  method, learned = small("eagle-chain"), dataclasses.replace(head(), meta={"guided": False})
  guided = SamplingConfig(cfg_scale=3.0)
  is_guided = lambda side: isinstance(side.model, Guided)
  for draft, sampling, expected in ((head(), SamplingConfig(), (0, 0)), (head(), guided, (1, 1)), (learned, guided, (0, 1))):
    params = decoder(method, sampling, draft=draft).parts.params
    assert (is_guided(params.draft), is_guided(params.target)) == expected
    assert all(side.model.scale == 3.0 for side in params if is_guided(side))
  both, combined = (traced(decoder(method, guided, draft=draft)) for draft in (head(), learned))
  assert both.tokens.shape == combined.tokens.shape == (2, 16)


def test_lantern_at_temperature_zero_is_greedy():
  cold, warm = (decoder(small("lantern"), SamplingConfig(temperature=t)).parts for t in (0.0, 1.0))
  assert cold.verifier != warm.verifier
  # The target's side keeps its distribution, in which there is something to borrow; the draft side is greedy.
  assert float(cold.params.target.sampling.temperature) == 1 and float(cold.params.draft.sampling.temperature) == 0
  context = decoder(small("lantern"), SamplingConfig(temperature=0.0)).context
  assert isinstance(small("lantern").rule(context)[0], GreedyLanternRule)


def test_a_bound_of_lantern_replaces_that_of_lantern_plus_plus():
  """For chains, trees and CIAR; the bound is a traced number, so a sweep compiles once."""
  for name in ("lantern", "eagle-lantern", "ciar"):
    context, given = decoder(small(name)).context, {"num_neighbours": 2}
    bounds = [small(name, **given, **bound).lantern(context)[0] for bound in ({}, {"delta": 0.0}, {"delta": 0.3})]
    assert [(rule.bound, rule.relative) for rule in bounds] == [(2.0, True), (0.0, False), (0.3, False)]
  verifiers = {decoder(small("lantern", delta=delta)).parts.verifier for delta in (0.0, 0.3)}
  assert len(verifiers) == 1 and verifiers != {decoder(small("lantern")).parts.verifier}


def test_supports_that_are_not_given_fit_the_vocabulary():
  for options, support in (
    ({}, 5),
    ({"sparsifier": "topk", "support": 3}, 3),
    ({"sparsifier": "topk", "coding": "dense"}, 5),
  ):
    bound = decoder(small("sqs", **options))
    assert bound.method.resolved(bound.context).support == support == bound.method.codec(5).max_support
  bound = decoder(small("sqs"))
  assert bound.method.support is None and small("gsd").resolved(bound.context) == small("gsd")
  assert float(bound.parts.params.draft.budget) == 5000


def test_published_rules_of_vectors_are_reached_by_options():
  assert methods.Cspd().rule() == PathRatio() and methods.Cspd(exact=True).rule() == PathCoupling()
  assert methods.Cspd(sigma="released", inner_temperature=42.0, align=False, max_tries=7, block=True).rule() == PathRatio(
    "released", False, 42.0, 7, True
  )
  for share, tokens in ((0.0, 0), (0.05, 0), (0.45, 1), (1.0, 4)):
    assert decoder(small("cspd", target_prefix=share)).parts.target_prefix == tokens


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["speculative", "sqs", "lantern", "sjd", "gsd", "scaled", "eagle", "eagle-chain", "block-head", "spatial"]
)
def test_at_temperature_zero_every_method_draws_the_greedy_tokens(name):
  """Tokens cannot borrow probability then, so lossy methods also draw the greedy row."""
  options = {"max_gap": 0.0} if name == "gsd" else {"factor": 1.0} if name == "lantern" else {}
  greedy = SamplingConfig(temperature=0.0)
  bound = decoder(small(name, **options), greedy)
  out = bound(labels(3), key=jax.random.key(0))
  plain = decoder(small("ar"), greedy, target=bound.target, num_tokens=bound.space.num_tokens)
  np.testing.assert_array_equal(out.tokens, plain(labels(3), key=jax.random.key(1)).tokens)


def test_a_method_gives_the_widths_of_its_targets_passes():
  bound = _decoder("speculative")
  target_side(bound.target, lossless, bound.context, widths=(1,))
  with pytest.raises(ValueError, match="ascending"):
    target_side(bound.target, lossless, bound.context, widths=(2, 1))
