"""CIAR: thresholds, the leading tokens of the target, and one draw for all rules of a comparison."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.network import Network
from jaxspec.core.types import Draft
from jaxspec.drafters.ciar_draws import DenseDraw
from jaxspec.methods import Ciar
from jaxspec.methods.ciar import VERIFY, calibrated_tau, distribution_codec, pass_widths
from jaxspec.models.heads.inter_head import with_inter_head
from jaxspec.models.heads.interval_features import IntervalFeaturesConfig
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.rules.dense_view import DenseView, dense_logits
from jaxspec.rules.greedy import greedy
from jaxspec.rules.lossless import lossless
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.sampling import SamplingConfig
from tests import helpers
from tests.methods.networks import decoder, markov, small

CALIBRATION = {"thresholds": [{"achieved": 0.6, "tau": 0.01}, {"achieved": 0.2, "tau": 1.0}]}


def _with(draft: Network, **meta) -> Network:
  return dataclasses.replace(draft, meta=meta)


def test_one_draw_for_all_rules_of_a_comparison():
  """`auto` is quantized for exact, else dense. A given draw is the same drafter for every rule."""
  drafter = lambda **options: decoder(small("ciar", num_neighbours=2, **options)).parts.drafter
  sparse, dense = ({verify: drafter(verify=verify, draw=draw) for verify in VERIFY} for draw in ("sparse", "dense"))
  assert len(set(sparse.values())) == len(set(dense.values())) == 1 and sparse["exact"] != dense["exact"]
  assert (
    drafter(verify="exact") == sparse["exact"] and drafter(verify="lantern") == drafter(verify="greedy") == dense["exact"]
  )

  context = decoder(small("ciar")).context
  rule = lambda verify, draw: Ciar(verify=verify, draw=draw, num_neighbours=2).rule(context)[0]
  relaxed = rule("lantern", "dense")
  assert rule("exact", "sparse") == rule("exact", "auto") == lossless_sparse and rule("exact", "dense") == lossless
  assert rule("lantern", "sparse") == DenseView(relaxed) and rule("lantern", "auto") == relaxed
  assert rule("greedy", "sparse") == rule("greedy", "dense") == greedy
  assert Ciar(draw="sparse").codec(5) == distribution_codec(5) == Ciar().codec(5) and Ciar(verify="greedy").codec(5) is None
  assert Ciar().resolved(context).draw == "sparse" and Ciar(verify="greedy").resolved(context).draw == "dense"


def test_a_greedy_edge_proposes_its_likeliest_tokens():
  """As point masses, which no quantization is needed for; enumerated in tests/contract/test_enumeration.py."""
  edge = decoder(small("ciar", pick="argmax", tau=-1.0))
  assert edge.parts.drafter.draw == DenseDraw("argmax") and edge.method.codec(5) is None
  with pytest.raises(ValueError, match="draw dense or auto with pick argmax"):
    Ciar(pick="argmax", draw="sparse")


@pytest.mark.slow
def test_a_dense_view_of_quantized_drafts_is_judged_as_they_are():
  """The lossless rule on dense logits and the one on counts are one rule; a position without a distribution is harmless."""
  vocab, rows, window, total = 6, 64, 3, 20
  generator = np.random.default_rng(0)
  ids = np.sort(generator.permuted(np.tile(np.arange(vocab), (rows, window, 1)), axis=-1)[..., :4], axis=-1)
  counts = generator.multinomial(total, [0.4, 0.3, 0.3, 0.0], (rows, window))
  tokens = np.take_along_axis(ids, counts.argmax(-1)[..., None], -1)[..., 0]
  num = generator.integers(0, window + 1, rows)
  real = np.arange(window)[None] < num[:, None]
  arrays = (ids, np.where(real[..., None], counts, 0), np.full((rows, window), 4), np.where(real, total, 0))
  proposal = SparseDistribution(*(jnp.asarray(x, jnp.int32) for x in arrays))
  probs = jax.jit(lambda: jax.nn.softmax(dense_logits(proposal, vocab)))()
  expected = np.zeros((rows, window, vocab))
  np.put_along_axis(expected, ids, counts / total, axis=-1)
  np.testing.assert_allclose(probs[real], expected[real], atol=1e-6)
  np.testing.assert_allclose(probs[~real], 1 / vocab, atol=1e-6)

  draft = Draft.chain(jnp.asarray(tokens, jnp.int32), proposal, jnp.asarray(num, jnp.int32), 0)
  target = jnp.asarray(generator.normal(size=(rows, window + 1, vocab)), jnp.float32)
  keys = jax.vmap(jax.random.key)(np.arange(rows))
  judge = lambda rule: rule((), keys, draft, target)[:2]
  counted, dense = jax.jit(lambda: (judge(lossless_sparse), judge(DenseView(lossless))))()
  for one, other in zip(counted, dense):
    np.testing.assert_array_equal(one, other)
  assert 0 < int(counted[0].sum()) < num.sum()


@pytest.mark.slow
def test_lantern_that_lends_nothing_is_the_exact_rule_on_the_same_draw():
  """Token by token, with all drafts sent to the cloud: the wrapped rule reads the distribution of the draws."""
  options = dict(tau=-1.0, draw="sparse", num_neighbours=2)
  exact, relaxed = (
    decoder(small("ciar", **options, verify=verify, factor=1.0))(helpers.labels(8), key=jax.random.key(4))
    for verify in ("exact", "lantern")
  )
  np.testing.assert_array_equal(exact.tokens, relaxed.tokens)
  np.testing.assert_array_equal(exact.counters.accepted, relaxed.counters.accepted)
  assert 0 < int(exact.counters.accepted.sum()) < int(exact.counters.drafted.sum()) and not exact.counters.local.any()


def test_thresholds_come_from_tau_a_rate_or_the_checkpoint():
  edge = _with(markov(1), calibration=CALIBRATION)
  gate = lambda draft=edge, **options: (
    decoder(small("ciar", **({"tau": None} | options)), draft=draft).parts.params.draft.gate
  )
  assert float(gate(tau=0.25)) == 0.25 and float(gate(tau=math.inf)) == math.inf
  assert float(gate(score="interval")) == pytest.approx(calibrated_tau(CALIBRATION, 0.3))
  held = gate(score="interval", cloud_rate=0.55, target_prefix=0.25)  # 2 of 9 tokens
  assert float(held.alpha) == pytest.approx((0.55 - 2 / 9) / (7 / 9)) and float(held.first) == pytest.approx(-math.log(0.1))
  looser = float(gate(score="interval", target_prefix=0.05))
  assert looser == pytest.approx(calibrated_tau(CALIBRATION, 0.3, 0.05)) and looser > float(gate(score="interval"))
  with pytest.raises(ValueError, match="tau or cloud_rate with a target_prefix from 0.3 on, we instead got neither"):
    gate(score="interval", target_prefix=0.5)
  assert float(gate(score="interval", target_prefix=1.0)) > 0  # the target draws all tokens
  assert float(gate(draft=markov(1), cloud_rate=0.4).first) == pytest.approx(-math.log(0.01))
  with pytest.raises(ValueError, match="a draft with thresholds for this score"):
    gate(score="entropy")  # the checkpoint's thresholds are those of another score


def test_calibrated_thresholds_are_interpolated_in_their_logarithm():
  for rate, tau in ((0.1, 1.0), (0.2, 1.0), (0.4, 0.1), (0.6, 0.01), (0.9, 0.01)):
    assert calibrated_tau(CALIBRATION, rate) == pytest.approx(tau)
  # Where 0.25 of all tokens are the target's own, 0.55 of all are 0.4 of the others, which the gate judges.
  assert calibrated_tau(CALIBRATION, 0.55, 0.25) == pytest.approx(0.1)
  prefixed = CALIBRATION | {"target_prefix": 0.25}
  assert calibrated_tau(prefixed, 0.4, 0.25) == pytest.approx(0.1)
  assert calibrated_tau(prefixed, 0.52, 0.4) == pytest.approx(0.1)  # 0.2 of those judged, as 0.4 of all with 0.25
  # A shorter prefix takes the rates of all tokens.
  assert calibrated_tau(prefixed, 0.4) == calibrated_tau(prefixed, 0.4, 0.1) == pytest.approx(0.1)
  for damaged in ({"thresholds": [{"tau": 1.0}]}, {"thresholds": [3]}, {"target_prefix": "x"}, []):
    with pytest.raises(ValueError, match="thresholds as `jaxspec calibrate` writes them|thresholds for this score"):
      calibrated_tau(damaged, 0.3)


def test_leading_tokens_of_the_target():
  for share, tokens in ((0.0, 0), (0.1, 0), (0.12, 1), (1 / 3, 3), (1.0, 9)):
    assert decoder(small("ciar", target_prefix=share)).parts.target_prefix == tokens


def test_passes_hold_a_window():
  assert pass_widths(1) == pass_widths(3) == (4, 8) and pass_widths(4) == (8, 16) and pass_widths(40) == (64, 128)
  assert all(pass_widths(window)[0] > window for window in range(1, 70))


def test_interval_features_are_those_of_the_draft():
  trunk = llamagen_fns(helpers.DRAFT)
  fns = with_inter_head(trunk, helpers.DRAFT.vocab_size)
  features = IntervalFeaturesConfig(width=8, input_width=helpers.DRAFT.dim, vocab=helpers.DRAFT.vocab_size)
  params = helpers.random_params(fns, 1) | {"features": {"table": jnp.zeros(1)}}

  @dataclasses.dataclass(frozen=True)
  class Config:
    features: IntervalFeaturesConfig
    combination: str = "voting"

  edge = Network(fns, params, Config(features))
  cloud = Network(trunk, helpers.random_params(trunk, 2), helpers.DRAFT)
  fields = dict(target=cloud, draft=edge, vocab_size=None, num_tokens=16)
  injecting = decoder(small("ciar", inject="both"), **fields).parts
  assert injecting.params.draft.features is params["features"]
  assert decoder(small("ciar"), **fields).parts.params.draft.features == ()
  said = decoder(small("ciar"), **fields).parts.drafter
  assert said == decoder(small("ciar", combination="voting"), **fields).parts.drafter
  assert said != decoder(small("ciar", combination="ensemble"), **fields).parts.drafter
  with pytest.raises(ValueError, match="without guidance to inject"):
    decoder(small("ciar", inject="both"), SamplingConfig(cfg_scale=2.0), **fields).parts


def test_the_published_settings_together():
  """Calibrated thresholds are of unscaled bounds, so a threshold must be given."""
  published = Ciar.published(tau=0.3)
  assert published == Ciar(score="interval:paper", target_prefix=0.06, inject="both", tau=0.3)
  assert Ciar(**published.options()) == published and Ciar.published(gamma=8).gamma == 8
  with pytest.raises(ValueError, match="Must have tau or cloud_rate"):
    Ciar.published().gate(CALIBRATION, 0.0)
