"""EAGLE-2 in the loop: contract, caches equal to fresh ones, and the law of what comes out."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec import rng, trees
from jaxspec.decode import loop
from jaxspec.decode.loop import accepted_by_round
from jaxspec.drafters.eagle import eagle
from jaxspec.models.conditions import Caption, ClassLabels, Pairs, Prefixed
from jaxspec.models.eagle import EagleConfig, attach, eagle_fns
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.models.sampling import ModelParams, sampling_params
from jaxspec.verifiers.target import target_features
from jaxspec.verifiers.tree import tree_rule
from tests.helpers import TARGET, labels, random_params

N = 16
CAPTIONS = LlamaGenConfig(
  model_type="t2i", num_layers=2, dim=32, num_heads=4, num_kv_heads=2, vocab_size=13, num_tokens=N, prefix_len=5,
  caption_dim=6, multiple_of=16,
)  # fmt: skip


@functools.cache
def _setup(name, temperature=1.0, warp=jaxspec.Warp(), total=7, top_k=3, depth=2):
  """``(SpecParams, kwargs, host, head)``; captions are guided, classes are not."""
  config = CAPTIONS if name == "captions" else TARGET
  host, head = llamagen_fns(config), eagle_fns(EagleConfig.of(config))
  host_params = random_params(host, 2)
  own = random_params(head, 3, scale=0.15)
  sides = [attach(own, host_params), host_params]
  if name == "captions":
    host, head = jaxspec.guided(host), jaxspec.guided(head)
    sides = [jaxspec.Guided(weights, jnp.float32(2.0)) for weights in sides]
  params = jaxspec.SpecParams(*(ModelParams(weights, sampling_params(temperature)) for weights in sides))
  drafter = eagle(head, total=total, top_k=top_k, depth=depth, warp=warp)
  verifier = jaxspec.target_model(host, tree_rule(max_path=depth + 1), warp=warp, feedback_fn=target_features)
  return params, dict(drafter=drafter, verifier=verifier), host, head


def _condition(name, rows):
  if name == "classes":
    return labels(rows)
  generator = np.random.default_rng(5)
  mask = np.arange(5)[None] >= np.arange(rows)[:, None] % 4
  return Caption(jnp.asarray(generator.normal(size=(rows, 5, 6)) * mask[..., None], jnp.float32), jnp.asarray(mask))


def _row(condition, row):
  return jax.tree.map(lambda leaf: leaf[row : row + 1], condition)


def test_drivers_agree_counters_add_up_and_rows_are_independent():
  params, kwargs, *_ = _setup("captions")
  kwargs = kwargs | dict(max_len=N)
  condition, keys = _condition("captions", 3), rng.row_keys(jax.random.key(0), 3)
  fused = jaxspec.speculate(params, keys, condition, **kwargs)
  host = jaxspec.speculate(params, keys, condition, **kwargs, loop_fn=jaxspec.host_while_loop)
  chex.assert_trees_all_equal(fused, host)
  *_, stepped = (np.asarray(edge.tokens) for edge in jaxspec.iterate(params, keys, condition, **kwargs))
  np.testing.assert_array_equal(stepped, fused.tokens)

  counters = fused.counters
  np.testing.assert_array_equal(fused.lengths, N)
  np.testing.assert_array_equal(counters.target_calls, counters.rounds + 1)
  np.testing.assert_array_equal(counters.draft_calls, 3 * counters.rounds + 1)
  np.testing.assert_array_equal(1 + counters.accepted + counters.rounds, N)
  np.testing.assert_array_equal(fused.accepted_mask.sum(1), counters.accepted)
  assert (np.asarray(counters.accepted) <= np.asarray(counters.drafted)).all() and counters.accepted.sum() > 3
  assert (np.asarray(accepted_by_round(fused)) <= 4).all()

  for row in (0, 2):
    alone = jaxspec.speculate(params, keys[row : row + 1], _row(condition, row), **kwargs)
    np.testing.assert_array_equal(alone.tokens[0], fused.tokens[row])


@pytest.mark.parametrize("name", ["classes", "captions"])
def test_caches_after_some_rounds_are_fresh_ones(name):
  """Neither the target's cache nor the drafter's can be told from one that was fed the committed tokens at once."""
  params, kwargs, host, head = _setup(name, temperature=2.0, total=9, top_k=5)
  rows = 4
  condition = _condition(name, rows)
  start = jax.jit(functools.partial(loop.start, max_len=N, **kwargs))
  step = jax.jit(functools.partial(loop.decode_round, **kwargs))
  state = start(params, jax.random.key(1), condition)
  for _ in range(4):
    state = step(params, state)
  edge = state.edge
  lengths = np.asarray(edge.cursor.length)
  assert int(edge.counters.accepted.sum()) > 0 and len(set(lengths.tolist())) > 1

  prefix = host.prefix_len(condition)
  cache = host.init_cache(rows, state.verifier.cache.k[0].shape[1])
  cache = cache._replace(key_mask=state.verifier.cache.key_mask)
  apply = jax.jit(host.apply)
  first, cache = apply(params.target.model, condition, cache, positions=jnp.arange(prefix)[None])
  rest, cache = apply(params.target.model, edge.tokens, cache, positions=prefix + jnp.arange(N)[None])
  folded = cache.k[0].shape[0] // rows  # guided: conditional rows, then unconditional ones, each with its heads
  row_of = np.arange(cache.k[0].shape[0]) // (folded // (2 if name == "captions" else 1)) % rows
  for ours, fresh in zip(state.verifier.cache.k + state.verifier.cache.v, cache.k + cache.v):
    for i, row in enumerate(row_of):
      end = prefix + lengths[row] - 1  # the last token is not fed yet
      np.testing.assert_allclose(ours[i, :end], fresh[i, :end], atol=2e-4)

  features = jnp.concatenate([first.features, rest.features], axis=1)  # at position 0, 1, ...
  tokens = jnp.pad(edge.tokens, ((0, 0), (prefix - 1, 0)))  # place j pairs with the token at position j + 1
  size = tokens.shape[1]
  fresh = head.init_cache(rows, edge.drafter.cache.k[0].shape[1])
  _, fresh = jax.jit(head.apply)(
    params.draft.model, Pairs(tokens, features[:, :size]), fresh, positions=jnp.arange(size)[None]
  )
  pending = np.asarray(edge.drafter.num_pending)
  for ours, theirs in zip(edge.drafter.cache.k + edge.drafter.cache.v, fresh.k + fresh.v):
    per_row = ours.shape[0] // (rows * (2 if name == "captions" else 1))
    for i in range(ours.shape[0]):
      row = i // per_row % rows
      end = prefix - 1 + lengths[row] - pending[row]
      np.testing.assert_allclose(ours[i, :end], theirs[i, :end], atol=5e-4)
  for row in range(rows):  # what is pending continues exactly there
    ours, end = edge.drafter.pending, prefix - 1 + lengths[row]
    begin, num = end - pending[row], pending[row]
    np.testing.assert_array_equal(ours.tokens[row, :num], tokens[row, begin:end])
    np.testing.assert_allclose(ours.features[row, :num], features[row, begin:end], atol=5e-4)


def test_greedy_equals_plain_decoding():
  params, kwargs, *_ = _setup("classes", temperature=0.0)
  fast = jaxspec.speculate(params, jax.random.key(0), labels(3), max_len=N, **kwargs)
  plain = jaxspec.autoregress(params, jax.random.key(9), labels(3), verifier=kwargs["verifier"], max_len=N)
  np.testing.assert_array_equal(fast.tokens, plain.tokens)


def test_tree_scored_at_once_equals_its_paths_scored_alone():
  """Guided captions with padding: row i of the tree's logits is the law behind the path to node i."""
  _, _, host, _ = _setup("captions")
  params = _setup("captions")[0].target.model
  condition, parents = _condition("captions", 2), np.array([[-1, -1, 0, 1, 2], [-1, 0, 1, 1, 0]])
  tokens = jnp.asarray(np.random.default_rng(0).integers(13, size=(2, 6)), jnp.int32)  # root first
  zeros = jnp.zeros((2,), jnp.int32)
  draft = jaxspec.Draft(tokens[:, 1:], (), zeros, zeros, zeros > 0, parents=jnp.asarray(parents, jnp.int32))
  offsets, mask = trees.layout(draft)
  cache = host.init_cache(2, 5 + 6)
  apply = jax.jit(host.apply)
  _, cache = apply(params, condition, cache, positions=jnp.arange(5)[None])
  output, _ = apply(params, tokens, cache, positions=5 + offsets, mask=mask)
  score = jax.jit(lambda c, t: host.apply(params, Prefixed(c, t), None, positions=jnp.arange(10)[None])[0])
  for row in range(2):
    for node in range(-1, 5):
      path = []
      while node >= 0:
        path.insert(0, node + 1)
        node = parents[row, node]
      padded = ([0] + path + [0] * 5)[:5]  # what comes behind does not matter
      alone = score(_row(condition, row), tokens[row, jnp.asarray(padded)][None])
      at, place = path[-1] if path else 0, 5 + len(path)
      np.testing.assert_allclose(output.logits[row, at], alone.logits[0, place], atol=2e-4)
      np.testing.assert_allclose(output.features[row, at], alone.features[0, place], atol=2e-4)


@pytest.mark.parametrize("name,temperature,top_k", [("classes", 1.0, 0), ("captions", 0.7, 6)])
def test_chi_square_of_joint_triples_against_plain_decoding(name, temperature, top_k):
  rows = 4096
  params, kwargs, *_ = _setup(name, temperature, jaxspec.Warp(top_k=top_k), total=5, top_k=2, depth=2)
  same = jax.tree.map(lambda leaf: jnp.repeat(leaf[1:2], rows, axis=0), _condition(name, 2))
  fast = jaxspec.speculate(params, jax.random.key(11), same, max_len=4, **kwargs)
  plain = jaxspec.autoregress(params, jax.random.key(12), same, verifier=kwargs["verifier"], max_len=4)
  assert 0.02 < float(fast.counters.accepted.sum()) / rows
  code = lambda out: np.ravel_multi_index(tuple(np.asarray(out.tokens[:, 1:]).T), (13,) * 3)
  a, b = np.bincount(code(fast), minlength=13**3), np.bincount(code(plain), minlength=13**3)
  big = (a + b) >= 20
  table = np.array([np.append(a[big], a[~big].sum()), np.append(b[big], b[~big].sum())])
  table = table[:, table.sum(0) > 0]
  p_value = stats.chi2_contingency(table).pvalue
  assert p_value > 0.01 and table.shape[1] > 20, (p_value, table.shape)


def test_bad_sizes_and_missing_features_are_named():
  head = eagle_fns(EagleConfig.of(TARGET))
  with pytest.raises(ValueError, match="at least 1"):
    eagle(head, total=4, top_k=0, depth=1, warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="at most the 6 candidates"):
    eagle(head, total=7, top_k=2, depth=1, warp=jaxspec.Warp())
  params, kwargs, host, _ = _setup("classes")
  silent = jaxspec.target_model(host, tree_rule(), warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="features"):
    jaxspec.speculate(
      params, jax.random.key(0), ClassLabels(jnp.zeros((1,), jnp.int32)), drafter=kwargs["drafter"], verifier=silent,
      max_len=4,
    )  # fmt: skip
