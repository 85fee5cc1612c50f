"""Small errors of the code, each with the tests of the default suite that find it.

A mutant is one textual patch of one file. `python -m tests.mutants.run` applies every one to a copy of the project and runs
its tests there; all must fail. A new rule, drafter or verifier comes with the errors that its author fears.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One error.

  Attributes:
    name: a few words.
    file: path from the root of the project.
    old: text that occurs in the file exactly once.
    new: replacement with the error.
    killed_by: tests of the default suite, the smallest that fail.
  """

  name: str
  file: str
  old: str
  new: str
  killed_by: tuple[str, ...]


def contract(*names: str) -> tuple[str, ...]:
  return tuple(f"tests/contract/test_contract.py::test_contract[{name}]" for name in names)


def outcomes(*families: str) -> tuple[str, ...]:
  return tuple(f"tests/contract/test_enumeration.py::test_every_outcome_of_a_decode[{family}]" for family in families)


def lossy(*rules: str) -> tuple[str, ...]:
  return tuple(f"tests/contract/test_enumeration.py::test_every_outcome_of_a_lossy_rule[{rule}]" for rule in rules)


def row_windows(*cases: str) -> tuple[str, ...]:
  return tuple(f"tests/methods/test_row_windows.py::test_every_outcome_of_windows[{case}]" for case in cases)


CONTINUOUS = ("tests/contract/test_enumeration.py::test_vectors_follow_the_target_under_the_exact_rule",)
DENOISING_STEPS = ("tests/rules/test_step_coupling.py::test_every_state_follows_the_target[maximal]",)
CHAINS = ("tests/core/test_denoising_loop.py::test_every_state_follows_the_target[network-0.329]",)
FROZEN = ("tests/core/test_denoising_loop.py::test_every_state_follows_the_target[frozen-0.174]",)
SCALES = ("tests/core/test_scale_loop.py::test_enumeration[map]",)
SAMPLER = ("tests/core/test_denoising_loop.py::test_plain_decoding_is_the_sampler",)
MAPS_OF_BOTH = ("tests/core/test_scale_ciar.py::test_every_map_follows_the_side_that_decides_about_it",)
WINDOWS = ("tests/core/test_scale_ciar.py::test_rows_alone_and_in_a_batch",)
STEPS_OF_BOTH = ("tests/core/test_step_ciar.py::test_every_state_is_a_step_of_the_side_that_took_it",)
MAPS_ALONE = ("tests/core/test_scale_loop.py::test_rows_alone_and_in_a_batch",)
OWN_MAPS = ("tests/core/test_scale_loop.py::test_counters_and_the_target_s_own_maps",)
BLOCKS = ("tests/contract/test_contract.py::test_a_verifier_may_commit_blocks[True]",)
NO_BONUS = ("tests/contract/test_contract.py::test_a_verifier_may_add_nothing[speculative]",)
PAUSES = ("tests/contract/test_contract.py::test_a_round_may_commit_nothing[eagle-chain]",)
FEATURES = ("tests/core/test_constructors.py::test_features_are_those_with_which_the_newest_token_was_drawn[False-pauses]",)
BLOCKS_ALONE = ("tests/contract/test_contract.py::test_a_verifier_may_commit_blocks[False]",)

WINDOW = ("tests/contract/test_block.py::test_every_outcome_of_a_window[coupled]",)
BRANCHES = ("tests/contract/test_branches.py::test_every_outcome_of_a_window_with_branches[copies]",)
SAMPLED = ("tests/contract/test_branches.py::test_the_rule_keeps_any_distribution",)
SIBLING_LAW = ("tests/contract/test_branches.py::test_a_sibling_follows_its_row_whether_the_main_draft_was_kept_or_not",)
NOISE = ("tests/contract/test_branches.py::test_every_outcome_with_noise_that_stays",)
PAPER = ("tests/contract/test_block.py::test_stops_and_residuals_are_those_of_the_paper",)

_BLOCK, _SAMPLED = "jaxspec/rules/block_rule.py", "jaxspec/rules/sampled_tree_rule.py"
_ROWS = "jaxspec/methods/row_decode.py"
_BRANCHES = "jaxspec/drafters/jacobi_tree.py"
_CHAIN, _LOOP, _VERDICTS = "jaxspec/rules/chain_rule.py", "jaxspec/core/loop.py", "jaxspec/core/verdicts.py"
_TREE, _JACOBI, _SQS = "jaxspec/rules/tree_rule.py", "jaxspec/drafters/jacobi_drafter.py", "jaxspec/drafters/sqs_drafter.py"
_CIAR, _TARGET = "jaxspec/drafters/ciar_drafter.py", "jaxspec/verifiers/target.py"
_CONSTRUCTORS = "jaxspec/core/constructors.py"
_PAIRS = "jaxspec/drafters/eagle_state.py"
_SMALL = "jaxspec/drafters/small_model.py"

MUTANTS = (
  # Acceptance of chains.
  Mutant(
    "a bonus is drawn from the residual", _CHAIN,
    "rejected = num_accepted < draft.num_drafted", "rejected = num_accepted <= draft.num_drafted", outcomes("chain"),
  ),
  Mutant(
    "residual of the wrong position", _CHAIN,
    "position = jnp.minimum(num_accepted, window - 1)", "position = jnp.minimum(num_accepted + 1, window - 1)",
    outcomes("chain"),
  ),
  Mutant(
    "bonus from the row before", _CHAIN,
    "p = logit_processing.probabilities(at_position(target, num_accepted))",
    "p = logit_processing.probabilities(at_position(target, jnp.minimum(num_accepted, window - 1)))", outcomes("chain"),
  ),
  Mutant(
    "the residual forgets the draft", "jaxspec/sampling/residual.py",
    "  return jnp.maximum(p - q, 0.0)\n\n\ndef usable_weights", "  return p\n\n\ndef usable_weights", outcomes("chain"),
  ),
  Mutant(
    "drafts after a rejected one are accepted", _CHAIN,
    "num_leading(accepted)", "jnp.sum(accepted, axis=1, dtype=jnp.int32)", outcomes("chain"),
  ),
  Mutant(
    "drafts beyond the end of a row are tested", _CHAIN,
    "accepted = (rng.uniforms(keys, window) < accept_prob) & valid", "accepted = rng.uniforms(keys, window) < accept_prob",
    contract("lantern"),
  ),
  Mutant(
    "the ratio upside down", "jaxspec/rules/lossless.py",
    "jnp.minimum(log_ratio(draft", "jnp.minimum(-log_ratio(draft", outcomes("chain"),
  ),
  Mutant(
    "one draw for the last test and the next token", "jaxspec/core/rng.py",
    "jax.random.uniform(jax.random.fold_in(key, _FINAL))", "jax.random.uniform(jax.random.fold_in(key, 0))",
    outcomes("chain"),
  ),
  # Keys.
  Mutant(
    "tests draw from the stream of drafts", _LOOP,
    "keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)",
    "keys = rng.stream_keys(keys, rng.Stream.DRAFT, cursor.round)", outcomes("chain"),
  ),
  Mutant(
    "keys of tests are used again in every round", _LOOP,
    "keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)",
    "keys = rng.stream_keys(keys, rng.Stream.VERIFY, 0 * cursor.round)", outcomes("chain"),
  ),
  Mutant(
    "keys of drafts are used again in every round", _LOOP,
    "keys = rng.stream_keys(side.keys, rng.Stream.DRAFT, side.cursor.round)",
    "keys = rng.stream_keys(side.keys, rng.Stream.DRAFT, 0 * side.cursor.round)", outcomes("chain"),
  ),
  Mutant(
    "token 0 shares its key with the first round", _LOOP,
    "first_keys = rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0))",
    "first_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(0))", outcomes("chain"),
  ),
  # The loop.
  Mutant(
    "the target side's cursor stands still", _LOOP,
    "return dataclasses.replace(target, cursor=cursor, verifier=state), verdict",
    "return dataclasses.replace(target, verifier=state), verdict",
    contract("speculative"),
  ),
  Mutant(
    "drafts may fill a row", _LOOP,
    "room = side.tokens.shape[1] - side.cursor.length - 1", "room = side.tokens.shape[1] - side.cursor.length",
    contract("lantern"),
  ),
  Mutant(
    "finished rows go on", _VERDICTS,
    "gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)\n  length",
    "gain = num_committed(draft, verdict)\n  length",
    contract("lantern"),
  ),
  Mutant(
    "finished rows write tokens", _VERDICTS,
    "gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)\n  offset",
    "gain = num_committed(draft, verdict)\n  offset",
    contract("lantern"),
  ),
  Mutant(
    "finished rows count rounds", _LOOP, "rounds=counters.rounds + one,", "rounds=counters.rounds + 1,", contract("lantern")
  ),
  Mutant(
    "the round of a token is one too low", _LOOP,
    "_to_rows(cursor.round + 1), position.shape", "_to_rows(cursor.round), position.shape",
    contract("lantern"),
  ),
  Mutant(
    "local tokens are counted twice", _LOOP,
    "verdict.num_accepted + drafted_end - kept, 0)", "verdict.num_accepted + drafted_end, 0)",
    contract("ciar after a prefix"),
  ),
  Mutant(
    "the draft side drafts in the target's prefix", _LOOP,
    "waiting = read_round(params.draft, state.draft_side, drafter=drafter)",
    "waiting = draft_round(params.draft, state.draft_side, drafter=drafter)", contract("speculative"),
  ),
  # End tokens and blocks.
  Mutant(
    "a drafted end token does not cut its round", _VERDICTS,
    "num_accepted=jnp.where(found, first, verdict.num_accepted)", "num_accepted=verdict.num_accepted", contract("lantern"),
  ),
  Mutant(
    "rows live on after an end token", _VERDICTS,
    "live = cursor.live & (length < max_len) & ~is_end_token(cursor, last)", "live = cursor.live & (length < max_len)",
    contract("lantern"),
  ),
  Mutant(
    "a block goes on after an end token", _VERDICTS,
    "num_next = jnp.where(jnp.any(ends, axis=1), jnp.minimum(verdict.num_next, first), verdict.num_next)",
    "num_next = verdict.num_next", BLOCKS_ALONE,
  ),
  Mutant(
    "a block begins with its second token", _VERDICTS,
    "jnp.clip(offset, 0, size - 1)", "jnp.clip(offset + 1, 0, size - 1)", BLOCKS_ALONE,
  ),
  Mutant(
    "a block counts as one token", _VERDICTS,
    "jnp.where(draft.needs_verify, verdict.num_next, 0)", "jnp.where(draft.needs_verify, 1, 0)",
    BLOCKS_ALONE,
  ),
  Mutant(
    "a block of no token counts as one", _VERDICTS,
    "jnp.where(draft.needs_verify, verdict.num_next, 0)",
    "jnp.where(draft.needs_verify, jnp.maximum(verdict.num_next, 1), 0)",
    NO_BONUS,
  ),
  # Caches and rollback.
  Mutant(
    "a draft network reads one slot too early", "jaxspec/drafters/last_two.py",
    "start = prefix_len + jnp.maximum(cursor.length - 2, 0)", "start = prefix_len + jnp.maximum(cursor.length - 3, 0)",
    contract("speculative"),
  ),
  Mutant(
    "a draft network takes the last token for the one before", _SMALL,
    "verdicts.token_before_newest(cursor, draft, verdict, state.previous)", "verdicts.newest_token(cursor, draft, verdict)",
    contract("speculative"),
  ),
  Mutant(
    "a draft network forgets what it read in a prefix", _SMALL,
    "    return state._replace(cache=cache)\n\n  def draft(", "    return state\n\n  def draft(", contract("speculative"),
  ),
  Mutant(
    "the target reads a draft one slot too late", _TARGET,
    "start = state.prefix_len + cursor.length - 1", "start = state.prefix_len + cursor.length", outcomes("chain"),
  ),
  Mutant(
    "the path of a tree is not moved in the cache", _TARGET,
    "cache = self.model.compact(cache, start + 1, verdict.path)", "cache = cache", outcomes("eagle"),
  ),
  Mutant(
    "the path of a tree is moved one slot too early", _TARGET,
    "cache = self.model.compact(cache, start + 1, verdict.path)", "cache = self.model.compact(cache, start, verdict.path)",
    outcomes("eagle"),
  ),
  Mutant(
    "features of nodes in place of those of the path", _PAIRS,
    "features = trees.path_features(features, _fit(verdict.path, size - 1))", "features = features", contract("eagle"),
  ),
  Mutant(
    "a head reads the pairs of one round too few", _PAIRS,
    "_fit(features, size)), gain", "_fit(features, size)), jnp.maximum(gain - 1, 1)", contract("eagle-chain"),
  ),
  Mutant(
    "features are those of the newest token", _CONSTRUCTORS,
    "jnp.clip(gain - 1, 0, features.shape[1] - 1)", "jnp.clip(gain, 0, features.shape[1] - 1)", FEATURES,
  ),
  Mutant(
    "a row that commits nothing takes other features", _CONSTRUCTORS,
    "over_tokens(cursor.live & (gain > 0), newest)", "over_tokens(cursor.live, newest)", FEATURES,
  ),
  Mutant(
    "a head forgets its pairs where nothing was committed", _PAIRS,
    "jnp.where((gain > 0)", "jnp.where((gain >= 0)", PAUSES,
  ),
  # Trees.
  Mutant(
    "the last sibling that passes is taken", _TREE,
    "chosen = accepted & ~jnp.any(candidates.earlier & accepted[:, None], axis=-1)",
    "chosen = accepted & ~jnp.any(candidates.earlier.swapaxes(1, 2) & accepted[:, None], axis=-1)", outcomes("eagle"),
  ),
  Mutant(
    "siblings are tested as if each was the first", _TREE,
    "jnp.minimum(p / jnp.maximum(left, _MIN_MASS), 1.0)", "jnp.minimum(p, 1.0)", outcomes("eagle"),
  ),
  Mutant(
    "rejected candidates may be drawn", _TREE,
    "(parents + 1 == last[:, None]) & valid", "(parents + 1 == last[:, None]) & ~valid",
    outcomes("eagle"),
  ),
  # Block verification.
  Mutant(
    "a block stops at the first test that fails", _BLOCK,
    "jnp.max(jnp.where(stops, jnp.arange(1, window + 1)[None], 0), axis=1)",
    "jnp.sum(jnp.cumprod(stops.astype(jnp.int32), axis=1), axis=1)", outcomes("chain, block"),
  ),
  Mutant(
    "the residual of a block is that of one draft", _BLOCK,
    "usable_weights(jnp.maximum(reach * p - q, 0.0), p)", "usable_weights(jnp.maximum(p - q, 0.0), p)", PAPER,
  ),
  Mutant(
    "ratios of a block above 1 are saved", "jaxspec/sampling/block_acceptance.py",
    "jnp.exp(walk - jax.lax.cummax(walk, axis=1))", "jnp.exp(jnp.minimum(walk, 0.0))", PAPER,
  ),
  Mutant(
    "a coupled draft keeps its proposal after a block", _JACOBI,
    "q - reach * probabilities(left)", "q - 0 * reach * probabilities(left)", WINDOW,
  ),
  Mutant(
    "plain rounds are not read later", "jaxspec/drafters/auto_width.py", "jax.lax.fori_loop(0, unread, read_one, inner)",
    "jax.lax.fori_loop(0, 0 * unread, read_one, inner)",
    ("tests/contract/test_auto_width.py::test_tokens_of_plain_rounds_are_read_later",),
  ),
  # Jacobi windows with branches, and with noise that stays.
  Mutant(
    "siblings from the residual", _BRANCHES, "    leading = chain.proposal[:, : self.depth]\n",
    "    leading = jnp.log(jnp.maximum(jax.nn.softmax(state.logits) - jax.nn.softmax(state.old_logits), 0))\n"
    "    leading = jnp.where((state.num_recycled > 0)[:, None, None], leading, chain.proposal)[:, : self.depth]\n",
    SIBLING_LAW,
  ),
  Mutant(
    "a kept token keeps its old q", _JACOBI,
    "    proposal = jnp.where(recycled[..., None], state.logits, fresh_logits)\n",
    "    kept = has_old & (tokens == state.old_tokens)\n"
    "    proposal = jnp.where(recycled[..., None], state.logits, fresh_logits)\n"
    "    proposal = jnp.where(kept[..., None], state.old_logits, proposal)\n",
    BRANCHES,
  ),
  Mutant(
    "siblings are tested with the row of the first", _SAMPLED,
    "q = jnp.where(rejected, _normalised(q.at[row, token].set(0.0)), q)", "q = jnp.where(rejected, q, q)", SAMPLED,
  ),
  Mutant(
    "a sibling is tested with all of the target", _SAMPLED,
    "p = jnp.where(rejected, _normalised(usable_weights(lossless_weights(None, p, q), p)), p)",
    "p = jnp.where(rejected, p, p)", SAMPLED,
  ),
  Mutant(
    "main drafts follow a sibling", _SAMPLED, "on_main = walks & (node == self.depth - 1)", "on_main = walks", BRANCHES,
  ),
  Mutant(
    "noise of a place in the window", _JACOBI,
    "rng.position_uniforms(state.noise, position, self.vocab_size)",
    "rng.position_uniforms(state.noise, index + 0 * position, self.vocab_size)", NOISE,
  ),
  # Jacobi windows.
  Mutant(
    "stale distributions of a window", _JACOBI,
    "proposal = jnp.where(recycled[..., None], state.logits, fresh_logits)",
    "proposal = jnp.where(recycled[..., None], state.old_logits, fresh_logits)", outcomes("jacobi, fresh"),
  ),
  Mutant(
    "old tokens under new distributions", _JACOBI,
    "tokens = sample(state.logits, draw)",
    "tokens = jnp.where(jnp.arange(draw.shape[1])[None] < state.num_recycled[:, None] - 1, state.old_tokens, "
    "sample(state.logits, draw))",
    outcomes("jacobi, fresh"),
  ),
  Mutant(
    "a coupled window keeps every old token", _JACOBI,
    "accepted = keep * at(q, tokens) < at(p, tokens)", "accepted = 0 * keep < at(p, tokens)", outcomes("jacobi, coupled"),
  ),
  Mutant(
    "a coupled window draws from the whole distribution", _JACOBI,
    "inverse_cdf(usable_weights(lossless_weights(tokens, p, q), p), draw)", "inverse_cdf(p, draw)",
    outcomes("jacobi, coupled"),
  ),
  Mutant(
    "a window is recycled from one position before", _JACOBI,
    "index = gain[:, None] + jnp.arange(self.window)[None]",
    "index = verdict.num_accepted[:, None] + jnp.arange(self.window)[None]",
    outcomes("jacobi, coupled"),
  ),
  # Windows of several rows.
  Mutant(
    "drafts of a row are seen by the rows below", _ROWS,
    "above = (group[None] < group[:, None]) & (offset[None] == 0)", "above = group[None] < group[:, None]",
    row_windows("1-1"),
  ),
  Mutant(
    "a rejected place is tried again, as published", _ROWS,
    "num_next = jnp.minimum(1, room - verdict.num_accepted)",
    "num_next = jnp.where(ended_by_rejection(draft, verdict), 0, jnp.minimum(1, room - verdict.num_accepted))",
    row_windows("1-2"),
  ),
  Mutant(
    "drafts are kept above half of the ratio, as published", _ROWS,
    "rule = audited(lossless) if self.audit else lossless",
    "from jaxspec.rules.lossless import commit_leading, log_ratio\n"
    "    ratio = lambda draft, target: log_ratio(draft.tokens, target[:, :-1], draft.proposal)\n"
    "    rule = lambda tables, keys, draft, target: commit_leading(\n"
    "      keys, draft, target, accept_prob=(ratio(draft, target) > jnp.log(0.5)).astype(jnp.float32)\n"
    "    )",
    row_windows("3-2"),
  ),
  Mutant(
    "a row may pass the row above", "jaxspec/sampling/row_schedule.py",
    "limit = jnp.where(above == columns, columns, jnp.maximum(above - width + 1, 0))",
    "limit = jnp.where(above >= width, columns, 0)",
    ("tests/methods/test_rows.py::test_rows_that_advance_by_several_tokens[grid4-3]",),
  ),
  Mutant(
    "windows stay with their group when the first row ends", "jaxspec/drafters/row_windows.py",
    "source = (progress.first - read.row[:, 0])[:, None] + jnp.arange(groups)[None]",
    "source = 0 * (progress.first - read.row[:, 0])[:, None] + jnp.arange(groups)[None]",
    row_windows("1-2"),
  ),
  # Both sides of a decode.
  Mutant(
    "the target's logits are not processed", _TARGET,
    "      logits = self.warp(output.need_logits(), params.sampling, cursor.length[:, None] + offsets)\n      verdict =",
    "      logits = output.logits\n      verdict =",
    contract("speculative"),
  ),
  Mutant(
    "the draft says another distribution than it draws from", _SMALL,
    "axis=1, keepdims=False)), logits", "axis=1, keepdims=False)), output.logits[:, 0]", contract("speculative"),
  ),
  Mutant(
    "the draft side has no temperature", "jaxspec/methods/common.py",
    'return context.sampling.side(need(draft, "a draft network", method.name))',
    "return dataclasses.replace(context.sampling, temperature=1.0).side(need(draft, '', ''))", contract("speculative"),
  ),
  Mutant(
    "the target has no guidance", "jaxspec/methods/common.py",
    "fns, side = sampling.side(target, features=features)", "fns, side = sampling.side(target, guided=False)",
    contract("speculative"),
  ),
  Mutant(
    "a guided network mixes its halves the wrong way", "jaxspec/models/guidance.py",
    "uncond + (cond - uncond) * scale", "cond + (uncond - cond) * scale", contract("speculative"),
  ),
  # Compressed drafts.
  Mutant(
    "a round without a bonus token moves the threshold for one", "jaxspec/codecs/conformal.py",
    '"text": num_committed', '"text": num_accepted + 1',
    ("tests/codecs/test_conformal.py::test_a_round_moves_the_threshold_by_the_tokens_of_its_policy",),
  ),
  Mutant(
    "drafts are drawn before they are quantized", _SQS,
    "jnp.where(drafted, at_position(distribution.ids, entry), 0)",
    "jnp.where(drafted, jnp.sum(jnp.cumsum(q, 1)[:, :-1] <= rng.uniform(keys, position)[:, None], 1, dtype=jnp.int32), 0)",
    outcomes("sqs, topk"),
  ),
  Mutant(
    "the threshold goes on from the last draft", "jaxspec/codecs/conformal.py",
    '"text": num_committed', '"text": num_drafted + 1', contract("sqs"),
  ),
  Mutant(
    "counts are compared with the size of a support", "jaxspec/rules/lossless_sparse.py",
    "distribution.total * p / jnp.maximum(count, 1)", "distribution.size * p / jnp.maximum(count, 1)", contract("sqs"),
  ),
  # CIAR.
  Mutant(
    "the newest token counts as read", _CIAR,
    "newest_read = cursor.length + gain - 1", "newest_read = cursor.length + gain", outcomes("ciar that always asks"),
  ),
  Mutant(
    "a window is judged by the row before", "jaxspec/verifiers/ciar_target.py",
    "skipped = jnp.where(judged, first - 1 - read, 0)", "skipped = jnp.where(judged, jnp.maximum(first - 2 - read, 0), 0)",
    contract("ciar after a prefix"),
  ),
  Mutant(
    "certain tokens of a window are accepted locally", _CIAR,
    "is_local = carry.active & ~carry.asks & certain", "is_local = carry.active & certain", contract("ciar after a prefix"),
  ),
  # Lossy rules, and continuous tokens.
  Mutant(
    "a group takes tokens of any distance", "jaxspec/rules/gsd_rule.py",
    "kept &= tables.between(tokens, members) < self.max_distance", "kept &= tables.between(tokens, members) >= 0",
    lossy("gsd"),
  ),
  Mutant(
    "every neighbour alone may be borrowed from", "jaxspec/rules/lantern_rule.py",
    "taken = jnp.cumsum(p_y, axis=-1) <= limit", "taken = p_y <= limit", lossy("lantern"),
  ),
  Mutant(
    "a scaled ratio is not scaled", "jaxspec/rules/scaled_rule.py",
    "ratio(self.factor * at(p, tokens), at(q, tokens))", "ratio(at(p, tokens), at(q, tokens))", lossy("scaled"),
  ),
  Mutant(
    "a rejected vector is replaced by a sample of the target", "jaxspec/rules/couplings.py",
    "keep = log_v < jnp.log(-jnp.expm1(jnp.minimum(-log_ratio_at(proposal), log_eta)))", "keep = log_v <= 0", CONTINUOUS,
  ),
  Mutant(
    "vectors are accepted by half of their ratio", "jaxspec/rules/couplings.py",
    "accepted = log_u < log_eta + log_ratio", "accepted = log_u < log_eta + 0.5 * log_ratio", CONTINUOUS,
  ),
  Mutant(
    "a rejected state is drawn from the target", "jaxspec/rules/step_coupling.py",
    "jnp.where(replaced[:, None], corrected.x, ", "jnp.where(replaced[:, None], _own(target, num_accepted), ",
    DENOISING_STEPS,
  ),
  Mutant(
    "a drafted state is judged by the step after it", "jaxspec/rules/step_coupling.py",
    "target.mean[:, :-1]", "target.mean[:, 1:]", DENOISING_STEPS,
  ),
  Mutant(
    "after full acceptance the last accepted step is drawn again", "jaxspec/rules/step_coupling.py",
    "corrected.x, _own(target, num_accepted)",
    "corrected.x, _own(target, jnp.maximum(num_accepted - 1, 0))", DENOISING_STEPS,
  ),
  Mutant(
    "a draft network of vectors takes the last token for the one before", "jaxspec/drafters/continuous_model.py",
    "verdicts.token_before_newest(cursor, draft, verdict, state.previous)", "verdicts.newest_token(cursor, draft, verdict)",
    contract("cspd"),
  ),
  Mutant(
    "states are judged by the step before theirs", "jaxspec/verifiers/denoising_target.py",
    "network.numbers(length, states.shape[0])", "network.numbers(length - 1, states.shape[0])", CHAINS,
  ),
  Mutant(
    "all steps of the target have the same numbers", "jaxspec/verifiers/denoising_target.py",
    "step_normals(state.keys, numbers, self.dim)", "step_normals(state.keys, 0 * numbers, self.dim)", SAMPLER,
  ),
  Mutant(
    "a draft of states says that it was drawn with other noise", "jaxspec/drafters/drafted_steps.py",
    "drafted_steps(distributions, noise, one)", "drafted_steps(distributions, -noise, one)", CHAINS,
  ),
  Mutant(
    "frozen drafts take the prediction before the drafts that were accepted", "jaxspec/drafters/frozen_steps.py",
    "return self._prediction(verdict, verdict.num_accepted)",
    "return self._prediction(verdict, 0 * verdict.num_accepted)", FROZEN,
  ),
  # Scales.
  Mutant(
    "a map is accepted by half of its ratio", "jaxspec/rules/scale_rule.py",
    "< _log_ratio(drafted, drafted.tokens)", "< 0.5 * _log_ratio(drafted, drafted.tokens)", SCALES,
  ),
  Mutant(
    "a rejected map is replaced by a sample of the target", "jaxspec/rules/scale_rule.py",
    "< -jnp.expm1(jnp.minimum(-_log_ratio(drafted, tokens), 0.0))", "< 2", SCALES,
  ),
  Mutant(
    "a row that is stopped by another loses its draft", "jaxspec/verifiers/scale_target.py",
    "jnp.where((count > i)[:, None], drafted.tokens, added)", "added", SCALES,
  ),
  Mutant(
    "maps that the cloud has not read are not read", "jaxspec/verifiers/scale_target.py",
    "behind = jnp.any(cursor.live", "behind = jnp.any(False & cursor.live", MAPS_OF_BOTH,
  ),
  Mutant(
    "local maps are forgotten where the cloud judges", "jaxspec/verifiers/scale_target.py",
    "count = local  #", "count = 0 * local  #", MAPS_OF_BOTH,
  ),
  Mutant(
    "a window that another row stops is forgotten", "jaxspec/drafters/ciar_scales.py",
    "jnp.where(live, jnp.where(stopped, trace.until, 0), until)", "0 * until", WINDOWS,
  ),
  Mutant(
    "a step that the cloud takes begins before the local ones", "jaxspec/verifiers/ciar_step_target.py",
    "length=cursor.length + local", "length=cursor.length", STEPS_OF_BOTH,
  ),
  Mutant(
    "rows that ask nothing commit what others stop", _VERDICTS,
    "return verdict.num_accepted + jnp.where(draft.needs_verify, verdict.num_next, 0)",
    "return jnp.where(draft.needs_verify, verdict.num_accepted + verdict.num_next, draft.num_local)", WINDOWS,
  ),
  Mutant(
    "a map that is drafted again has other numbers", "jaxspec/drafters/scale_model.py",
    "rng.of_token(state.keys, index)", "rng.of_token(state.keys, 8 * length + index)", MAPS_ALONE,
  ),
  Mutant(
    "a draft network of maps takes the last map for the one before", "jaxspec/drafters/scale_model.py",
    "verdicts.token_before_newest(cursor, draft, verdict, state.previous)", "verdicts.newest_token(cursor, draft, verdict)",
    OWN_MAPS,
  ),
)  # fmt: skip
