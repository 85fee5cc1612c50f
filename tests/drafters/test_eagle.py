"""EAGLE-2 in the loop: the contract, and caches that equal fresh ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rounds, trees
from jaxspec.drafters.eagle_tree import EagleTreeDrafter
from jaxspec.models.conditions import ClassLabels, Pairs, Prefixed
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.heads.feature_head import attach
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.rules.tree_rule import tree_rule
from jaxspec.testing import fast_keys
from jaxspec.verifiers.target import target_features
from tests.helpers import TARGET, eagle_condition, random_params, side, tiny_eagle

pytestmark = pytest.mark.slow

N = 16


def _row(condition, row):
  return jax.tree.map(lambda leaf: leaf[row : row + 1], condition)


def test_caches_after_some_rounds_equal_fresh_ones():
  """Both caches, the target's and the drafter's, equal caches that were fed the committed tokens at once."""
  name = "captions"  # guided, of different lengths
  params, kwargs, host, head = tiny_eagle(name, temperature=2.0, total=9, top_k=5)
  rows = 4
  condition = eagle_condition(name, rows)
  start = jax.jit(functools.partial(rounds.start, max_len=N, **kwargs))
  step = jax.jit(functools.partial(rounds.decode_round, **kwargs))
  state = start(params, fast_keys(1, rows), condition)
  for _ in range(4):
    state = step(params, state)
  edge = state.draft_side
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
  arrays = lambda cache: [np.asarray(buffer) for buffer in cache.k + cache.v]
  for ours, fresh in zip(arrays(state.verifier.cache), arrays(cache)):
    for i, row in enumerate(row_of):
      end = prefix + lengths[row] - 1  # the last token is not fed yet
      np.testing.assert_allclose(ours[i, :end], fresh[i, :end], atol=2e-4)

  features = jnp.concatenate([first.features, rest.features], axis=1)  # at position 0, 1, ...
  tokens = np.pad(np.asarray(edge.tokens), ((0, 0), (prefix - 1, 0)))  # position j pairs with the token at position j + 1
  size = tokens.shape[1]
  fresh = head.init_cache(rows, edge.drafter.cache.k[0].shape[1])
  _, fresh = jax.jit(head.apply)(
    params.draft.model, Pairs(tokens, features[:, :size]), fresh, positions=jnp.arange(size)[None]
  )
  pending = np.asarray(edge.drafter.num_pending)
  for ours, theirs in zip(arrays(edge.drafter.cache), arrays(fresh)):
    per_row = ours.shape[0] // (rows * (2 if name == "captions" else 1))
    for i in range(ours.shape[0]):
      row = i // per_row % rows
      end = prefix - 1 + lengths[row] - pending[row]
      np.testing.assert_allclose(ours[i, :end], theirs[i, :end], atol=5e-4)
  ours, features = jax.tree.map(np.asarray, (edge.drafter.pending, features))
  for row in range(rows):  # the pending pairs continue exactly there
    end = prefix - 1 + lengths[row]
    begin, num = end - pending[row], pending[row]
    np.testing.assert_array_equal(ours.tokens[row, :num], tokens[row, begin:end])
    np.testing.assert_allclose(ours.features[row, :num], features[row, begin:end], atol=5e-4)


def test_a_tree_scored_at_once_equals_its_paths_scored_alone():
  """Guided captions with padding: row i of the tree's logits is the distribution after the path to node i."""
  _, _, host, _ = tiny_eagle("captions")
  params = tiny_eagle("captions")[0].target.model
  condition, parents = eagle_condition("captions", 2), np.array([[-1, -1, 0, 1, 2], [-1, 0, 1, 1, 0]])
  tokens = jnp.asarray(np.random.default_rng(0).integers(13, size=(2, 6)), jnp.int32)  # root first
  zeros = jnp.zeros((2,), jnp.int32)
  draft = jaxspec.Draft.tree(tokens[:, 1:], jnp.asarray(parents, jnp.int32), zeros, 0)
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
      padded = ([0] + path + [0] * 5)[:5]  # the padding does not matter
      alone = score(_row(condition, row), tokens[row, jnp.asarray(padded)][None])
      at, position = path[-1] if path else 0, 5 + len(path)
      np.testing.assert_allclose(output.logits[row, at], alone.logits[0, position], atol=2e-4)
      np.testing.assert_allclose(output.features[row, at], alone.features[0, position], atol=2e-4)


def test_bad_sizes_and_missing_features_are_named():
  head = eagle_fns(EagleConfig.of(TARGET))
  with pytest.raises(ValueError, match="at least 1"):
    EagleTreeDrafter(head, total=4, top_k=0, depth=1, warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="at most the 6 candidates"):
    EagleTreeDrafter(head, total=7, top_k=2, depth=1, warp=jaxspec.Warp())
  params, kwargs, host, _ = tiny_eagle("classes")
  silent = jaxspec.TargetVerifier(host, tree_rule(), warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="features"):
    jaxspec.speculate(
      params, jax.random.key(0), ClassLabels(jnp.zeros((1,), jnp.int32)), drafter=kwargs["drafter"], verifier=silent,
      max_len=4,
    )  # fmt: skip


def test_the_loop_updates_both_caches_in_place():
  """No copy of a cache in the body of the compiled loop, although entries of it move."""
  config = LlamaGenConfig(num_layers=1, dim=64, num_heads=2, vocab_size=32, num_tokens=1024, num_classes=3, multiple_of=8)
  host, head = llamagen_fns(config), eagle_fns(EagleConfig.of(config))
  weights = random_params(host, 0)
  params = jaxspec.SpecParams(side(attach(random_params(head, 1), weights)), side(weights))
  drafter = EagleTreeDrafter(head, total=4, top_k=2, depth=1, warp=jaxspec.Warp())
  verifier = jaxspec.TargetVerifier(host, tree_rule(max_path=2), warp=jaxspec.Warp(), feedback_fn=target_features)
  run = jax.jit(lambda p, k, c: jaxspec.speculate(p, k, c, drafter=drafter, verifier=verifier, max_len=1000).tokens)
  text = run.lower(params, jax.random.key(0), ClassLabels(jnp.zeros((1,), jnp.int32))).compile().as_text()
  shapes = {f"f32[2,{fns.init_cache(1, size).k[0].shape[1]},32]" for fns, size in ((host, 1005), (head, 1003))}
  assert all(shape in text for shape in shapes)
  copies = [line for line in text.splitlines() if " copy(" in line and any(f"= {shape}" in line for shape in shapes)]
  assert len(copies) <= 2 * (config.num_layers + 1), copies  # at most one before the loop for each buffer
