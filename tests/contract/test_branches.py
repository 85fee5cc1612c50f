"""Jacobi windows with several candidates of a position, and windows drawn with the same noise in every pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods, testing
from jaxspec.core import rng, trees
from jaxspec.core.token_space import TokenSpace
from jaxspec.drafters.jacobi_drafter import JacobiDrafter
from jaxspec.drafters.jacobi_tree import JacobiTreeDrafter, window_tree
from jaxspec.drafters.window_init import WindowInit
from jaxspec.methods.method import BuildContext
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.lossless import lossless
from jaxspec.rules.sampled_tree_rule import SampledTreeRule
from jaxspec.sampling import SamplingConfig
from jaxspec.testing import Tape, enumerate_outcomes
from jaxspec.testing.tape import FINAL
from jaxspec.verifiers.target import target_logits
from tests.contract import networks
from tests.contract.tables import CERTAIN, HALF, HALVES, QUARTERS, log_side, probabilities
from tests.helpers import slow_but

V, N, WINDOW = 3, 4, 2
DRAFT, VERIFY = rng.Stream.DRAFT, rng.Stream.VERIFY
FIRST_TOKEN = (rng.Stream.FIRST, 0, FINAL)
SIBLINGS = 2 * WINDOW  # offset of the draws of siblings


def _joined(*tapes):
  """The rows of tapes of equal size; addresses that a tape does not have are not relevant in its rows."""
  addresses = dict.fromkeys(address for tape in tapes for address in tape.values)
  column = lambda tape, address: tape.values.get(address, np.full(tape.num_rows, 0.5))
  return Tape({address: np.concatenate([column(tape, address) for tape in tapes]) for address in addresses})


# Copies are certain drafts, so they are kept or replaced under quarters and the next test is made with quarters. The first
# copy is accepted in half of the rows: then nothing is kept. In the other half the window of round 1 has one level.
ACCEPTED = {(VERIFY, 0, 0): [0.25], (VERIFY, 0, 1): 4, (VERIFY, 0, FINAL): 6, (VERIFY, 9, 0): 12}
REJECTED = {(VERIFY, 0, 0): [0.75], (DRAFT, 1, 0): 6, (DRAFT, 1, WINDOW): 4, (DRAFT, 1, SIBLINGS): 6, (VERIFY, 1, 0): 2}
# Two levels of candidates from uniform distributions.
UNIFORM = {
  (DRAFT, 0, 0): 3, (DRAFT, 0, 1): 3, (DRAFT, 0, SIBLINGS): 2, (DRAFT, 0, SIBLINGS + 1): 2, (VERIFY, 0, FINAL): 2,
  (DRAFT, 1, 0): 2, (VERIFY, 1, 0): 2, (VERIFY, 1, FINAL): 2,
}  # fmt: skip


def _tape(cells):
  fixed = {address: found for address, found in cells.items() if isinstance(found, list)}
  tape = Tape.all_outcomes({address: found for address, found in cells.items() if address not in fixed})
  return Tape(dict(tape.values) | {address: np.full(tape.num_rows, *found) for address, found in fixed.items()})


# Depth, initial drafts, distributions of the tokens, and all outcomes of the relevant draws.
CASES = {
  "copies": (
    1, WindowInit("left", "repeat"), (CERTAIN, HALF, QUARTERS, CERTAIN), _joined(_tape(ACCEPTED), _tape(REJECTED)),
  ),
  "uniform": (2, WindowInit(), (CERTAIN, HALVES, HALVES, CERTAIN), _tape(UNIFORM)),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(CASES, ["copies"]))
def test_every_outcome_of_a_window_with_branches(name):
  depth, initial, kinds, tape = CASES[name]
  main = JacobiDrafter(window=WINDOW, vocab_size=V, grid=8, initial=initial, recycle="coupled")
  drafter, model = JacobiTreeDrafter(main, 2, depth), networks.history_fns(V, N)
  verifier = jaxspec.TargetVerifier(model, SampledTreeRule(2, depth), warp=jaxspec.Warp(), feedback_fn=target_logits)
  condition = ClassLabels(jnp.zeros((tape.num_rows,), jnp.int32))
  accepted, tried = [], 0
  for seed in range(20):
    probs = probabilities(seed, kinds)
    first = np.argmax(networks.joint(probs, V, N).sum((1, 2, 3)))
    if name == "copies" and probs[first + 1, first] != 0.5:  # the copy of token 0 has a half
      continue
    params, tried = jaxspec.SpecParams((), log_side(probs)), tried + 1

    def decode(keys, params=params):
      out = jaxspec.speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=N)
      accepted.append(np.asarray(out.counters.accepted).mean())
      return out.tokens

    np.testing.assert_allclose(enumerate_outcomes(decode, tape, V), networks.joint(probs, V, N), atol=1e-5)
  assert tried >= 8 and 0.2 < np.mean(accepted) < 2


def test_every_outcome_with_noise_that_stays():
  """Five binary tokens, windows of three: token 3 is drawn with the same noise in the windows of two rounds."""
  vocab, length, window = 2, 5, 3
  noise = {(rng.Stream.OPEN, 0, position): 2 for position in (2, 3)}  # which of two ids has the larger noise
  cells = {FIRST_TOKEN: 2} | {(DRAFT, 0, offset): 2 for offset in range(window)}
  cells |= {(VERIFY, round_, FINAL): 2 for round_ in range(4)}
  cells |= {(VERIFY, 1, 0): 2, (VERIFY, 1, 1): 2, (VERIFY, 2, 0): 2}
  columns = dict(Tape.all_outcomes(noise | cells).values)
  for address in noise:
    first = columns.pop(address)
    columns |= {(*address, 0): first, (*address, 1): 1 - first}
  tape = Tape(columns)
  model, size = networks.history_fns(vocab, length), networks.rows_of_table(vocab, length)
  drafter = JacobiDrafter(window=window, vocab_size=vocab, recycle="gumbel")
  verifier = jaxspec.TargetVerifier(model, lossless, warp=jaxspec.Warp(), feedback_fn=target_logits)
  condition = ClassLabels(jnp.zeros((tape.num_rows,), jnp.int32))
  for seed in (1, 2):
    choices = np.random.default_rng(seed).choice(3, size, p=[0.5, 0.25, 0.25])
    probs = np.asarray([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])[choices]
    params = jaxspec.SpecParams((), log_side(probs))
    decode = lambda keys, params=params: (
      jaxspec.speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=length).tokens
    )
    np.testing.assert_allclose(enumerate_outcomes(decode, tape, vocab), networks.joint(probs, vocab, length), atol=1e-5)


def test_the_rule_keeps_any_distribution():
  """Three candidates without replacement from one distribution on four tokens, against another one."""
  rows, vocab, branch, generator = 40000, 4, 3, np.random.default_rng(0)
  q, p = [0.5, 0.3, 0.15, 0.05], [0.15, 0.25, 0.2, 0.4]
  order = np.argsort(-np.log(q) - generator.gumbel(size=(rows, vocab)), axis=1)  # without replacement
  logits = lambda probs, size: jnp.broadcast_to(jnp.log(jnp.asarray(probs)), (rows, size, vocab))
  parents = jnp.full((rows, branch), -1, jnp.int32)
  ones = jnp.ones((rows,), jnp.int32)
  draft = jaxspec.Draft.tree(jnp.asarray(order[:, :branch], jnp.int32), parents, ones, 0, proposal=logits(q, 1))
  judge = jax.jit(lambda keys, draft, target: SampledTreeRule(branch, 1)((), keys, draft, target))
  verdict = judge(testing.fast_keys(2, rows), draft, logits(p, branch + 1))
  accepted = np.asarray(verdict.num_accepted)
  path = np.asarray(verdict.path)[:, 0]
  emitted = np.where(accepted > 0, order[np.arange(rows), path], np.asarray(verdict.next_tokens)[:, 0])
  testing.assert_same_distribution(emitted, np.asarray(p))
  assert accepted.mean() > np.minimum(p, q).sum() + 0.1  # more than one candidate alone


@pytest.mark.slow
def test_chi_square():
  """Of fresh drafts that are certain; test_contract.py has coupled ones and Gumbel noise."""
  assert testing.check_exact(methods.Sjd(window=2, branch=2, depth=2, recycle="fresh", point_mass=True)) > 1e-4


CONTEXT = BuildContext(SamplingConfig(), TokenSpace(vocab_size=V, num_tokens=N))


def test_a_sibling_follows_its_row_whether_the_main_draft_was_kept_or_not():
  """Frequencies of the sibling given the main draft, for drafts of another distribution than that of the last pass."""
  rows, width, generator = 20_000, 4, np.random.default_rng(0)
  law, old = generator.dirichlet(np.ones(width), 2)
  stale = generator.choice(width, (rows, WINDOW), p=old)
  main = JacobiDrafter(window=WINDOW, vocab_size=width, grid=8, recycle="coupled")
  keys, ones = testing.fast_keys(3, rows), jnp.ones((rows,), jnp.int32)
  cursor = jaxspec.Cursor(0 * ones, ones, ones > 0, jnp.int32(0))
  state, _ = main.init((), keys, ClassLabels(jnp.zeros((rows,), jnp.int32)), 8, None)
  of = lambda probs: jnp.asarray(np.tile(np.log(probs), (rows, WINDOW, 1)), jnp.float32)
  state = state._replace(
    logits=of(law), old_logits=of(old), old_tokens=jnp.asarray(stale, jnp.int32), num_recycled=jnp.full((rows,), WINDOW)
  )
  draft = jax.jit(lambda keys: JacobiTreeDrafter(main, 2, 1).draft((), keys, state, cursor)[0])(keys)
  first, second = np.asarray(draft.tokens[:, 0]), np.asarray(draft.tokens[:, WINDOW])
  kept = first == stale[:, 0]
  assert 0.2 < kept.mean() < 0.9
  for token in range(width):
    rest = law.copy()
    rest[token] = 0
    for chosen in (kept, ~kept):
      seen = second[(first == token) & chosen]
      if len(seen) > 500:
        frequencies = np.bincount(seen, minlength=width) / len(seen)
        np.testing.assert_allclose(frequencies, rest / rest.sum(), atol=2.5 / np.sqrt(len(seen)))


def test_one_branch_is_a_chain():
  """Equal drafters and rules are equal programs: tokens are those of windows without the options."""
  plain, branched = methods.Sjd(window=2), methods.Sjd(window=2, branch=1, depth=9)
  assert branched.drafter(CONTEXT) == plain.drafter(CONTEXT) == JacobiDrafter(window=2, vocab_size=V, recycle="coupled")
  assert branched.rule(CONTEXT) == plain.rule(CONTEXT) == (lossless, ())
  assert branched.drafts_per_round() == branched.longest_path() == 2


def test_the_tree_of_a_window():
  tree = window_tree(3, 2, 2)
  np.testing.assert_array_equal(tree.parents, [-1, 0, 1, -1, 0, 3, 3])
  np.testing.assert_array_equal(tree.level, [0, 1, 2, 0, 1, 1, 1])
  np.testing.assert_array_equal(tree.rank, [0, 0, 0, 1, 1, 0, 1])
  depth = trees.depths(trees.ancestors(jnp.asarray(tree.parents)[None]))[0]
  np.testing.assert_array_equal(depth, tree.level + 1)
  # From the root along the main drafts; from the sibling of the first level to its first child, then to the main drafts.
  np.testing.assert_array_equal(tree.onward[0], [0, 1, 2, 3])
  np.testing.assert_array_equal(tree.onward[1 + 3, 1:], [4, 6, 3])
  assert methods.Sjd(window=3, branch=2, depth=2).drafts_per_round() == 7


@pytest.mark.slow
def test_a_position_with_too_few_tokens_repeats_its_draft():
  """Two tokens have mass: the third candidate is a copy of the first, and the contract of drafts holds."""
  drafter = JacobiTreeDrafter(JacobiDrafter(window=2, vocab_size=V, recycle="fresh"), 3, 1)
  state, _ = drafter.init((), testing.fast_keys(0, 8), ClassLabels(jnp.zeros(8, jnp.int32)), 6, None)
  logits = jnp.asarray([0.0, -jnp.inf, 0.5])
  state = state._replace(logits=jnp.broadcast_to(logits, (8, 2, V)), num_recycled=jnp.full((8,), 2, jnp.int32))
  ones = jnp.ones((8,), jnp.int32)
  cursor = jaxspec.Cursor(0 * ones, ones, ones > 0, jnp.int32(0))
  draft = jax.jit(lambda keys: drafter.draft((), keys, state, cursor)[0])(testing.fast_keys(1, 8))
  tokens = np.asarray(draft.tokens)[:, [0, 2, 3]]
  np.testing.assert_array_equal(tokens[:, 2], tokens[:, 0])
  np.testing.assert_array_equal(tokens[:, 1], 2 - tokens[:, 0])
  testing.drafted.require_draft(draft, drafter, cursor)
  broken = draft._replace(tokens=draft.tokens.at[:, 2].set(1))
  with pytest.raises(AssertionError, match="^proposal: Must have logits above -inf for the tokens that were drawn"):
    testing.drafted.require_draft(broken, drafter, cursor)


REFUSED = {
  "branch 1 with verify block, which judges chains": dict(branch=2, verify="block"),
  "a depth of at most the window of 1": dict(branch=2, window=1),
  "at most 1024 drafts in a window": dict(branch=40, depth=2),
}


@pytest.mark.parametrize("message", REFUSED)
def test_options_out_of_range_are_errors(message):
  with pytest.raises(ValueError, match=f"Must have {message}.*, we instead got"):
    methods.Sjd(**REFUSED[message])


def test_an_audit_of_branches_is_refused():
  with pytest.raises(
    ValueError, match="Must have no audit with method sjd, whose branches are sampled, we instead got audit=True"
  ):
    methods.Sjd(branch=2).rule(dataclasses.replace(CONTEXT, audit=True))
