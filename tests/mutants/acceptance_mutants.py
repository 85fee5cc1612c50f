"""Errors of acceptance rules."""

from tests.mutants.mutant import Mutant, contract, lossy, outcomes

CONTINUOUS = ("tests/contract/test_enumeration.py::test_vectors_follow_the_target_under_the_exact_rule",)
DENOISING_STEPS = ("tests/rules/test_step_coupling.py::test_every_state_follows_the_target[maximal]",)
CHAINS = ("tests/core/test_denoising_loop.py::test_every_state_follows_the_target[network-0.329]",)
FROZEN = ("tests/core/test_denoising_loop.py::test_every_state_follows_the_target[frozen-0.174]",)
SAMPLER = ("tests/core/test_denoising_loop.py::test_plain_decoding_is_the_sampler",)
WINDOW = ("tests/contract/test_block.py::test_every_outcome_of_a_window[coupled]",)
PAPER = ("tests/contract/test_block.py::test_stops_and_residuals_are_those_of_the_paper",)

_BLOCK = "jaxspec/rules/block_rule.py"
_CHAIN = "jaxspec/rules/chain_rule.py"
_TREE = "jaxspec/rules/tree_rule.py"
_JACOBI = "jaxspec/drafters/jacobi_drafter.py"

ACCEPTANCE = (
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
    "plain rounds are not read later", "jaxspec/drafters/auto_length.py", "jax.lax.fori_loop(0, unread, read_one, inner)",
    "jax.lax.fori_loop(0, 0 * unread, read_one, inner)",
    ("tests/contract/test_auto_length.py::test_tokens_of_plain_rounds_are_read_later[chain]",),
  ),
  Mutant(
    "the fastest row decides about a draft length", "jaxspec/drafters/length_choice.py",
    "jnp.min(jnp.where(lacks[:, None] > 0, share, jnp.inf), axis=0)",
    "jnp.max(jnp.where(lacks[:, None] > 0, share, 0.0), axis=0)",
    ("tests/drafters/test_length_choice.py::test_a_batch_is_as_fast_as_its_slowest_row[acceptance2]",),
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
    "commits.token_before_newest(cursor, draft, verdict, state.previous)", "commits.newest_token(cursor, draft, verdict)",
    contract("cspd"),
  ),
  Mutant(
    "the target's cache keeps the rejected drafts of a block", "jaxspec/verifiers/continuous_target.py",
    "return verdict, state._replace(cache=cache)", "return verdict, state._replace(cache=read)",
    ("tests/core/test_continuous_loop.py::test_both_caches_hold_the_tokens_that_replace_drafts_inside_a_block[plain]",),
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
)  # fmt: skip
