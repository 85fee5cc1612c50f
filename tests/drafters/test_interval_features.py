"""Gated decoding with interval features: limiting cases, the tokens that have features, the cloud's cache, the messages."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import loop
from jaxspec.core.state import Origin
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads.interval_features import IntervalFeaturesConfig, interval_features_fns
from jaxspec.rules.greedy import greedy
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server.engine import Engine, EngineSettings
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire.ciar_codec import CiarCodec
from jaxspec.serving.wire.ciar_message import CiarLimits, read_ciar, write_ciar
from jaxspec.serving.wire.framing import MessageError
from jaxspec.testing import fast_keys
from tests.ciar_pair import INFINITY, keys_of, networks, transformer_gated
from tests.helpers import DRAFT, TARGET, labels, random_params

# Runs are short, so that some end without an exchange. The tests before that of the link share their programs.
N, ROWS, WINDOW = 16, 4, 3
short_keys = functools.partial(fast_keys, 0)  # they compile fast; a server draws with keys of JAX
PHI = interval_features_fns(IntervalFeaturesConfig(TARGET.dim, DRAFT.dim, TARGET.vocab_size, hidden=8))


def pair(inject="both", *, trained=True, **options):
  """The pair of networks, gated by U, with interval features that are random numbers (trained) or zero."""
  options = dict(window=WINDOW, max_run=2, widths=(4, 8), features=PHI, inject=inject) | options
  params, kwargs = transformer_gated(**options)
  phi = random_params(PHI, 7) if trained else PHI.init(jax.random.key(0))
  return params._replace(draft=params.draft._replace(features=phi)), kwargs


def run(params, kwargs, keys_of=short_keys):
  kwargs = kwargs | dict(loop="host")
  return jax.tree.map(np.asarray, jaxspec.speculate(params, keys_of(ROWS), labels(ROWS), max_len=N, **kwargs))


@functools.cache
def without(tau):
  return run(*pair("none", tau=tau))


@pytest.mark.slow
def test_limits_hold_with_features():
  """Untrained features change nothing. Trained ones change nothing if the cloud reads no token that has them."""
  for tau in (0.15, -1.0):
    np.testing.assert_array_equal(run(*pair(trained=False, tau=tau)).tokens, without(tau).tokens)
  assert (run(*pair(tau=0.15)).tokens != without(0.15).tokens).any()
  # A closed gate accepts nothing locally, an open one never calls the cloud.
  np.testing.assert_array_equal(run(*pair("accepted", tau=-1.0)).tokens, without(-1.0).tokens)
  np.testing.assert_array_equal(run(*pair(tau=INFINITY)).tokens, without(INFINITY).tokens)


@pytest.mark.slow
@pytest.mark.parametrize("inject", ["window", "accepted", "both"])
def test_the_wanted_tokens_have_features_and_the_cloud_s_cache_holds_them(inject):
  """Tokens of the wanted kinds have features, the cloud's own have none. The cloud's cache equals one built with them."""
  params, kwargs = pair(inject, tau=0.35)
  cloud, weights, *_ = networks()
  sizes = dict(max_len=N, end_token=loop.end_array(None), target_prefix=0)
  state = loop._start(params, short_keys(ROWS), labels(ROWS), **sizes, **kwargs)
  for _ in range(6):  # a third of the rows ask in each
    state = loop._round(params, state, **kwargs)
  edge, inside = state.draft_side, np.arange(N)[None] < np.asarray(state.draft_side.cursor.length)[:, None]
  kinds = {"window": [Origin.DRAFT], "accepted": [Origin.LOCAL], "both": [Origin.DRAFT, Origin.LOCAL]}[inject]
  carries = np.asarray(edge.drafter.features).any(-1)
  np.testing.assert_array_equal(carries[inside], np.isin(edge.origin, kinds)[inside])
  assert carries[inside].any() and not carries[inside].all()

  @jax.jit
  def from_scratch(tokens, features):
    _, cache = cloud.apply(weights, labels(ROWS), cloud.init_cache(ROWS, 40), positions=jnp.arange(1)[None])
    return cloud.apply(weights, tokens, cache, positions=1 + jnp.arange(N)[None], inject=features)[1]

  fresh = from_scratch(edge.tokens, edge.drafter.features)
  read, heads = np.asarray(edge.drafter.read), fresh.k[0].shape[0] // ROWS
  cache = state.verifier.cache
  for ours, theirs in zip(*(jax.tree.map(np.asarray, (*one.k, *one.v)) for one in (cache, fresh))):
    for row in range(ROWS):
      part = slice(row * heads, (row + 1) * heads)
      np.testing.assert_allclose(ours[part, : 1 + read[row]], theirs[part, : 1 + read[row]], atol=2e-5)


@pytest.mark.slow
def test_a_cloud_gives_the_tokens_of_the_loop():
  params, kwargs = pair(tau=0.25, rule=greedy, prefix=2, cloud_layers=1)
  out, codec = run(params, kwargs, keys_of), CiarCodec(TARGET.vocab_size, WINDOW, feature_width=PHI.width)
  sizes = EngineSettings(max_streams=1, max_rows=1, max_len=N, widths=(8,))
  example = ClassLabels(np.full(1, TARGET.num_classes - 1, np.int32))
  cloud = LocalCloud(Engine(params.target, networks(1)[0], [ServedProfile(codec)], example=example, settings=sizes))
  edge = Edge(params.draft, kwargs["drafter"], codec, N, target_prefix=2)
  far, traffic = decode_over_cloud(edge, keys_of(ROWS), labels(ROWS), cloud)
  np.testing.assert_array_equal(far.tokens, out.tokens)
  np.testing.assert_array_equal(far.origin, out.origin)
  # 16 + 16 bits, 4 + 1 for each token that was sent, and 16 for each number of the edge's features.
  sent, bare = np.asarray(out.report.sent), 32 * traffic.exchanges + 5 * np.asarray(out.report.sent)
  extra = traffic.coded_bits - bare
  assert (extra % (16 * PHI.width) == 0).all() and (extra >= 0).all() and extra.sum() > 0
  assert (extra / (16 * PHI.width) <= sent).all()


def test_messages_with_features_round_trip_and_malformed_ones_are_errors():
  codec = CiarLimits.of(None, vocab=13, window=3, max_len=N, feature_width=4)
  said = np.zeros((5, 4), np.float32)
  said[1], said[4] = (0.5, -2, 1e-3, 7), (0, 0, 0, 1)
  data, bits = write_ciar(5, 2, [7, 1], [12, 0, 3], codec, said)
  got = read_ciar(data, codec)
  np.testing.assert_array_equal(got.features, said.astype(np.float16))
  assert (got.pending, got.tokens, bits) == ((7, 1), (12, 0, 3), 32 + 5 * (4 + 1) + 2 * 4 * 16)
  assert len(data) <= codec.max_bytes
  for bad in (None, said[:4], np.full((5, 4), np.inf, np.float32)):
    with pytest.raises(ValueError, match="finite features"):
      write_ciar(5, 2, [7, 1], [12, 0, 3], codec, bad)
  generator = np.random.default_rng(0)
  for _ in range(200):  # any bytes give a message or a MessageError
    noisy = bytearray(data)
    for _ in range(generator.integers(1, 4)):
      noisy[generator.integers(len(noisy))] = generator.integers(256)
    try:
      read_ciar(bytes(noisy[: generator.integers(len(noisy) + 1)]), codec)
    except MessageError:
      pass


def test_bad_settings_are_errors():
  with pytest.raises(ValueError, match="interval features"):
    pair("both", features=None)
  with pytest.raises(ValueError, match="inject in none"):
    pair("all")
