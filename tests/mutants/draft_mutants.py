"""Errors of drafters, and of decodes of scales."""

from tests.mutants.mutant import Mutant, contract, outcomes

SCALES = ("tests/core/test_scale_loop.py::test_enumeration[map]",)
MAPS_OF_BOTH = ("tests/core/test_scale_ciar.py::test_every_map_follows_the_side_that_decides_about_it[3 maps]",)
WINDOWS = ("tests/core/test_scale_ciar.py::test_rows_alone_and_in_a_batch",)
STEPS_OF_BOTH = ("tests/core/test_step_ciar.py::test_every_state_is_a_step_of_the_side_that_took_it",)
MAPS_ALONE = ("tests/core/test_scale_loop.py::test_rows_alone_and_in_a_batch",)
OWN_MAPS = ("tests/core/test_scale_loop.py::test_counters_and_the_target_s_own_maps",)
BRANCHES = ("tests/contract/test_branches.py::test_every_outcome_of_a_window_with_branches[copies]",)
SAMPLED = ("tests/contract/test_branches.py::test_the_rule_keeps_any_distribution",)
SIBLING_LAW = ("tests/contract/test_branches.py::test_a_sibling_follows_its_row_whether_the_main_draft_was_kept_or_not",)
PACKED_ROWS = ("tests/core/test_packing.py::test_rows_alone_have_the_tokens_of_a_batch[False]",)
PACKING = ("tests/core/test_packing.py::test_rows_take_inputs_in_their_order_while_there_is_room",)
NOISE = ("tests/contract/test_branches.py::test_every_outcome_with_noise_that_stays",)

_SAMPLED = "jaxspec/rules/sampled_tree_rule.py"
_BRANCHES = "jaxspec/drafters/jacobi_tree.py"
_COMMITS = "jaxspec/core/commits.py"
_JACOBI = "jaxspec/drafters/jacobi_drafter.py"
_SQS = "jaxspec/drafters/sqs_drafter.py"
_CIAR = "jaxspec/drafters/ciar_drafter.py"

DRAFT = (
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
    "number = first[:, None] - 1 + ", "number = first[:, None] - 2 + ",
    contract("ciar after a prefix"),
  ),
  Mutant(
    "an open round reads its last token for the one before", _CIAR,
    "jnp.maximum(carry.offset - 2, 0)", "jnp.maximum(carry.offset - 1, 0)", PACKED_ROWS,
  ),
  Mutant(
    "a pass that has no room counts the inputs of a row as read", "jaxspec/core/packing.py",
    "share = jnp.clip(size - (end - wanted), 0, wanted)", "share = wanted", PACKING,
  ),
  Mutant(
    "certain tokens of a window are accepted locally", _CIAR,
    "is_local = carry.active & ~carry.needs_verify & certain", "is_local = carry.active & certain",
    contract("ciar after a prefix"),
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
    "rows that ask nothing commit what others stop", _COMMITS,
    "return verdict.num_accepted + jnp.where(draft.needs_verify, verdict.num_next, 0)",
    "return jnp.where(draft.needs_verify, verdict.num_accepted + verdict.num_next, draft.num_local)", WINDOWS,
  ),
  Mutant(
    "a map that is drafted again has other numbers", "jaxspec/drafters/scale_model.py",
    "rng.of_token(state.keys, index)", "rng.of_token(state.keys, 8 * length + index)", MAPS_ALONE,
  ),
  Mutant(
    "a draft network of maps takes the last map for the one before", "jaxspec/drafters/scale_model.py",
    "commits.token_before_newest(cursor, draft, verdict, state.previous)", "commits.newest_token(cursor, draft, verdict)",
    OWN_MAPS,
  ),
)  # fmt: skip
