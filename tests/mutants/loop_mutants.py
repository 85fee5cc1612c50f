"""Errors of the loop: random numbers, rounds, end tokens, caches, and the two sides of a decode."""

from tests.mutants.mutant import Mutant, contract, outcomes

NO_BONUS = ("tests/contract/test_contract.py::test_a_verifier_may_add_nothing[speculative]",)
PAUSES = ("tests/contract/test_contract.py::test_a_round_may_commit_nothing[eagle-chain]",)
FEATURES = ("tests/core/test_constructors.py::test_features_are_those_with_which_the_newest_token_was_drawn[False-pauses]",)
BLOCKS_ALONE = ("tests/contract/test_contract.py::test_a_verifier_may_commit_blocks[False]",)

_ROUND = "jaxspec/core/rounds.py"
_COMMITS = "jaxspec/core/commits.py"
_TARGET = "jaxspec/verifiers/target.py"
_CONSTRUCTORS = "jaxspec/core/constructors.py"
_PAIRS = "jaxspec/drafters/eagle_state.py"
_SMALL = "jaxspec/drafters/small_model.py"
_BLOCK_DRAFTER = "jaxspec/drafters/block_drafter.py"
_SPATIAL = "jaxspec/drafters/spatial_drafter.py"

LOOP = (
  # Keys.
  Mutant(
    "tests draw from the stream of drafts", _ROUND,
    "keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)",
    "keys = rng.stream_keys(keys, rng.Stream.DRAFT, cursor.round)", outcomes("chain"),
  ),
  Mutant(
    "keys of tests are used again in every round", _ROUND,
    "keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)",
    "keys = rng.stream_keys(keys, rng.Stream.VERIFY, 0 * cursor.round)", outcomes("chain"),
  ),
  Mutant(
    "keys of drafts are used again in every round", _ROUND,
    "keys = rng.stream_keys(side.keys, rng.Stream.DRAFT, side.cursor.round)",
    "keys = rng.stream_keys(side.keys, rng.Stream.DRAFT, 0 * side.cursor.round)", outcomes("chain"),
  ),
  Mutant(
    "token 0 shares its key with the first round", _ROUND,
    "first_keys = rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0))",
    "first_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(0))", outcomes("chain"),
  ),
  # The loop.
  Mutant(
    "the target side's cursor stands still", _ROUND,
    "return dataclasses.replace(target, cursor=cursor, verifier=state), verdict",
    "return dataclasses.replace(target, verifier=state), verdict",
    contract("speculative"),
  ),
  Mutant(
    "drafts may fill a row", _ROUND,
    "room = side.tokens.shape[1] - side.cursor.length - 1", "room = side.tokens.shape[1] - side.cursor.length",
    contract("lantern"),
  ),
  Mutant(
    "finished rows go on", _COMMITS,
    "gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)\n  length",
    "gain = num_committed(draft, verdict)\n  length",
    contract("lantern"),
  ),
  Mutant(
    "finished rows write tokens", _COMMITS,
    "gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)\n  offset",
    "gain = num_committed(draft, verdict)\n  offset",
    contract("lantern"),
  ),
  Mutant(
    "finished rows count rounds", _ROUND, "rounds=counters.rounds + ended,", "rounds=counters.rounds + 1,",
    contract("lantern"),
  ),
  Mutant(
    "the round of a token is one too low", _ROUND,
    "_to_rows(cursor.round + 1), position.shape", "_to_rows(cursor.round), position.shape",
    contract("lantern"),
  ),
  Mutant(
    "local tokens are counted twice", _ROUND,
    "num_accepted(cursor, draft, verdict) - kept, 0)", "num_accepted(cursor, draft, verdict), 0)",
    contract("ciar after a prefix"),
  ),
  Mutant(
    "the draft side drafts in the target's prefix", _ROUND,
    "waiting = read_round(params.draft, state.draft_side, drafter=drafter)",
    "waiting = draft_round(params.draft, state.draft_side, drafter=drafter)", contract("speculative"),
  ),
  # End tokens and blocks.
  Mutant(
    "a drafted end token does not cut its round", _COMMITS,
    "num_accepted=jnp.where(found, first, verdict.num_accepted)", "num_accepted=verdict.num_accepted", contract("lantern"),
  ),
  Mutant(
    "rows live on after an end token", _COMMITS,
    "live = cursor.live & (length < max_len) & ~is_end_token(cursor, last)", "live = cursor.live & (length < max_len)",
    contract("lantern"),
  ),
  Mutant(
    "a block goes on after an end token", _COMMITS,
    "num_next = jnp.where(jnp.any(ends, axis=1), jnp.minimum(verdict.num_next, first), verdict.num_next)",
    "num_next = verdict.num_next", BLOCKS_ALONE,
  ),
  Mutant(
    "a block begins with its second token", _COMMITS,
    "jnp.clip(offset, 0, size - 1)", "jnp.clip(offset + 1, 0, size - 1)", BLOCKS_ALONE,
  ),
  Mutant(
    "a block counts as one token", _COMMITS,
    "jnp.where(draft.needs_verify, verdict.num_next, 0)", "jnp.where(draft.needs_verify, 1, 0)",
    BLOCKS_ALONE,
  ),
  Mutant(
    "a block of no token counts as one", _COMMITS,
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
    "commits.token_before_newest(cursor, draft, verdict, state.previous)", "commits.newest_token(cursor, draft, verdict)",
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
    "cache = self.model.compact(cache, state.prefix_len + cursor.length, verdict.path)", "cache = cache", outcomes("eagle"),
  ),
  Mutant(
    "the path of a tree is moved one slot too early", _TARGET,
    "self.model.compact(cache, state.prefix_len + cursor.length, verdict.path)",
    "self.model.compact(cache, state.prefix_len + cursor.length - 1, verdict.path)", outcomes("eagle"),
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
    "a block head reads the features of one token too few", _BLOCK_DRAFTER,
    "jnp.where(held, gain, state.num_pending)", "jnp.where(held, jnp.maximum(gain - 1, 1), state.num_pending)",
    contract("block-head"),
  ),
  Mutant(
    "spatial heads keep rejected drafts in their pool", _SPATIAL,
    "stays = (offset < gain)", "stays = (offset < number)", outcomes("spatial"),
  ),
  Mutant(
    "spatial heads read the row above one column too far", _SPATIAL,
    "(place[None] - up[:, None])", "(place[None] + 1 - up[:, None])", outcomes("spatial"),
  ),
  Mutant(
    "the rows of a window are reported for other places", _SPATIAL,
    "Draft.chain(tokens, logits,", "Draft.chain(tokens, logits[:, ::-1],", outcomes("spatial"),
  ),
  Mutant(
    "tokens of a block are drawn from other rows than the reported ones", _BLOCK_DRAFTER,
    "tokens = sample(logits,", "tokens = sample(jnp.roll(logits, 1, axis=1),", outcomes("block head"),
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
    "fns, side = sampling.side(target, features=features, levels=levels)", "fns, side = sampling.side(target, guided=False)",
    contract("speculative"),
  ),
  Mutant(
    "a guided network mixes its halves the wrong way", "jaxspec/models/guidance.py",
    "uncond + (cond - uncond) * scale", "cond + (uncond - cond) * scale", contract("speculative"),
  ),
)  # fmt: skip
