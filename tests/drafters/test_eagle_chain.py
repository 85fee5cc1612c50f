"""EAGLE with a chain: distributions equal to those of one long pass, greedy decoding unchanged. See also tests/contract."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rounds
from jaxspec.drafters.eagle_chain import EagleChainDrafter
from jaxspec.models.conditions import Pairs
from jaxspec.models.guidance import guided
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.testing import fast_keys
from tests.helpers import CAPTIONS, TARGET, eagle_condition, tiny_eagle

N = 16


@pytest.mark.slow
@pytest.mark.parametrize("combined", [False, True])
def test_drafted_distributions_are_those_of_one_pass_over_the_committed_features(combined):
  """The first draft's distribution comes from the target's features alone, whatever was accepted and rejected before."""
  name, rows = "captions", 3  # guided
  params, kwargs, host, head = tiny_eagle(name, temperature=2.0, chain=3, combined=combined)
  condition = eagle_condition(name, rows)
  state = jax.jit(functools.partial(rounds.start, max_len=N, **kwargs))(params, fast_keys(1, rows), condition)
  step = jax.jit(functools.partial(rounds.decode_round, **kwargs))
  for _ in range(3):
    state = step(params, state)
  edge = state.draft_side
  lengths = np.asarray(edge.cursor.length)
  assert len(set(lengths.tolist())) > 1 and edge.counters.accepted.sum() > 0
  draft_round = jax.jit(functools.partial(rounds.draft_round, drafter=kwargs["drafter"]))
  draft = draft_round(params.draft, edge).draft
  chex.assert_shape(draft.proposal, (rows, 3, 13))

  prefix = host.prefix_len(condition)
  cache = host.init_cache(rows, prefix + N)
  apply = jax.jit(host.apply)
  first, cache = apply(params.target.model, condition, cache, positions=jnp.arange(prefix)[None])
  rest, _ = apply(params.target.model, edge.tokens, cache, positions=prefix + jnp.arange(N)[None])
  # The committed positions, then the drafter's own predictions after them. Later entries are not read.
  own = np.array(jnp.concatenate([first.features, rest.features], axis=1))
  own = np.pad(own, ((0, 0), (0, 2), (0, 0)))
  tokens = np.pad(np.asarray(edge.tokens), ((0, 0), (prefix - 1, 3)))
  positions, row = np.arange(own.shape[1])[None], np.arange(rows)
  score = jax.jit(lambda tokens, own: head.apply(params.draft.model, Pairs(tokens, own), None, positions=positions)[0])
  for position in range(3):
    newest = prefix + lengths - 2 + position
    output = score(tokens, own)
    distribution = jaxspec.Warp()(output.logits[row, newest], params.draft.sampling)
    np.testing.assert_allclose(draft.proposal[:, position], distribution, atol=2e-4)
    own[row, newest + 1] = output.features[row, newest]
    tokens[row, newest + 1] = draft.tokens[:, position]


@pytest.mark.slow
def test_greedy_decoding_gives_the_target_s_own_tokens():
  params, kwargs, *_ = tiny_eagle("captions", temperature=0.0, chain=3, combined=True)
  condition = eagle_condition("captions", 4)
  plain = jaxspec.autoregress(params, fast_keys(0, 4), condition, verifier=kwargs["verifier"], max_len=N)
  chained = jaxspec.speculate(params, fast_keys(1, 4), condition, max_len=N, **kwargs)
  np.testing.assert_array_equal(plain.tokens, chained.tokens)


@pytest.mark.slow
def test_combined_features_give_the_guided_logits():
  params, _, host, _ = tiny_eagle("captions", combined=True)
  apply = jax.jit(lambda weights, condition: host.apply(weights, condition, None, positions=jnp.arange(5)[None])[0])
  output = apply(params.target.model, eagle_condition("captions", 2))
  weight = params.target.model.model["output"]["weight"]
  chex.assert_shape(output.features, (2, 5, CAPTIONS.dim))
  np.testing.assert_allclose(jnp.einsum("btd,vd->btv", output.features, weight), output.logits, atol=1e-4)


def test_bad_windows_and_widths_are_named():
  head = eagle_fns(EagleConfig.of(TARGET))
  with pytest.raises(ValueError, match="window of at least 1"):
    EagleChainDrafter(head, window=0, warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="features in both, combined"):
    guided(head, features="half")
  params, kwargs, _, _ = tiny_eagle("captions", chain=2)
  unguided = EagleChainDrafter(eagle_fns(EagleConfig.of(CAPTIONS)), window=2, warp=jaxspec.Warp())
  params = params._replace(draft=params.draft._replace(model=params.draft.model.model))
  with pytest.raises(ValueError, match="width 32.*got 64"):  # the features are of both halves, and the drafter reads one
    condition = eagle_condition("captions", 2)
    jaxspec.speculate(params, jax.random.key(0), condition, drafter=unguided, verifier=kwargs["verifier"], max_len=4)
