"""The published rule of continuous speculative decoding (CSpD; Wang et al. 2024, arXiv 2411.11925, section 4).

1. The target runs its own chains after every prefix of the draft, on the drafts' noise (trajectory alignment).
2. Draft x is accepted iff ``log u <= log ratio(x)``. The ratio is that of the two last Gaussians times the Sigma product of
   all other steps (`jaxspec.rules.gaussian_path`). After the first rejection all later drafts are discarded.
3. The rejected token is replaced by rejection sampling: proposals from the target's last Gaussian are accepted with
   probability ``[S p - q]+ / (S p)``. The published loop may not terminate. Here it is capped; at the cap the last proposal
   is taken and reported. After full acceptance the target's own chain gives one more token. (The paper evaluates that
   distribution without drawing from it.)

**The rule is lossless only with** ``sigma="none"`` **and chains that end with noise.** Given the shared noise, the last step
of both chains is then Gaussian, and the ratio without S is that of speculative sampling. With S as published (``paper``) the
output is biased, see `gaussian_path`. Chains that end in their mean (MAR as published) give drafts at the mean of their last
Gaussian; no density test is exact for them. Proposals then add the noise of the last step, as the released code does.

**The released program** (``block=True``) differs in step 2: every draft is accepted or replaced by itself, nothing is
discarded, and a round commits as many tokens as it drafts. The target's chains of a block all follow the prefix before it
(`jaxspec.models.mar.masked_network`, ``common_prefix``). Even with an exact test the output lacks the dependence between
replaced tokens of a block.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, Key, Verdict
from jaxspec.diffusion import chain
from jaxspec.diffusion.chain import Chain, ChainSummary, TokenNoise
from jaxspec.diffusion.token_chains import TargetChains, TokenReport, leading, report_at
from jaxspec.rules import gaussian_path

SIGMAS = ("paper", "released", "none")


@dataclasses.dataclass(frozen=True)
class PathRatio:
  """The published rule; a `jaxspec.diffusion.token_chains.TokenRule`.

  Attributes:
    sigma: the Sigma product: as in the ``paper``, inverse as in the ``released`` code, or ``none``.
    align: True runs the target's chains on the drafts' noise, False on independent noise (the paper's ablation).
    inner_temperature: divisor of the z-scores in the test (not in the normalisers, nor in the residual). The paper has
      none; the released code has 42. Without it drafts of MAR are hardly ever accepted.
    max_tries: cap on proposals for a rejected token.
    block: judges every draft by itself. The target's own token ends a row, whose last position has no draft.
  Raises:
    ValueError: for a setting out of range.
  """

  sigma: str = "paper"
  align: bool = True
  inner_temperature: float = 1.0
  max_tries: int = 100
  block: bool = False

  def __post_init__(self):
    if self.sigma not in SIGMAS:
      raise ValueError(f"Must have sigma in {', '.join(SIGMAS)}, we instead got {self.sigma!r}")
    if not (math.isfinite(self.inner_temperature) and self.inner_temperature > 0):
      raise ValueError(f"Must have a finite inner_temperature above 0, we instead got {self.inner_temperature}")
    if self.max_tries < 1:
      raise ValueError(f"Must have max_tries of at least 1, we instead got {self.max_tries}")

  def check(self, num_steps: int, noisy_end: bool) -> None:
    """See `TokenRule.check`."""
    if self.sigma == "none" and self.inner_temperature == 1 and not noisy_end:
      raise ValueError("Must have chains that end with noise (stop) for the ratio without the Sigma product")

  def describe(self, drawn: Chain, noise: TokenNoise, temperature: Array) -> ChainSummary:
    """Summary of a drafted chain, leaves ``[B, ...]``; see `TokenRule.describe`."""
    return jax.tree.map(lambda leaf: leaf[:, 0], chain.summarize(drawn.recorded()[1], temperature))

  def log_ratio(self, x: Array, p: ChainSummary, q: ChainSummary) -> Array:
    """Log of the acceptance ratio ``[...]`` of drafts ``x [..., C]``."""
    squares = lambda distribution: jnp.sum(jnp.square((x - distribution.mean) * jnp.exp(-distribution.log_std)), axis=-1)
    exponent = (squares(q) - squares(p)) / (2.0 * self.inner_temperature**2)
    return jnp.sum(q.log_std - p.log_std, axis=-1) + exponent + self._log_sigma(p, q)

  def _log_sigma(self, p: ChainSummary, q: ChainSummary) -> Array:
    log_sigma = gaussian_path.log_sigma_ratio(p, q)
    return {"paper": log_sigma, "released": -log_sigma, "none": jnp.zeros_like(log_sigma)}[self.sigma]

  def __call__(self, keys: Key, draft: Draft, target: TargetChains) -> Verdict:
    """See `TokenRule`."""
    window = draft.tokens.shape[1]
    noise = target.noise(keys, draft, shared=self.align)
    if self.block and window:  # no token follows the block
      without_last = lambda leaf: leaf[:, :-1]
      noise, target = jax.tree.map(without_last, noise), target._replace(z=target.z[:, :-1], slot=target.slot[:, :-1])
    distribution_fn = target.distribution(target.z, target.slot)
    tokens, p = chain.run_summarized(
      distribution_fn, noise, target.temperature, noisy_end=target.noisy_end
    )  # [B, K + 1, ...]
    if window == 0:
      none = jnp.zeros(draft.num_drafted.shape, jnp.int32)
      return Verdict.one(none, tokens[:, 0], metrics=report_at(0, none, TokenReport(none, none > 0, none)))

    q: ChainSummary = draft.proposal.chains
    log_ratio = self.log_ratio(draft.tokens, jax.tree.map(lambda leaf: leaf[:, :window], p), q)  # [B, K]
    test_keys = rng.stream_keys(keys, rng.Stream.VERIFY, jnp.int32(0))
    # A ratio that is not a number rejects.
    accepted = jnp.log(rng.uniforms(test_keys, window)) <= log_ratio
    if self.block:
      return self._whole_block(keys, draft, tokens, p, accepted)
    num_accepted = leading(accepted, draft)
    rejected = num_accepted < draft.num_drafted
    p_here = jax.tree.map(lambda leaf: at_position(leaf, num_accepted), p)
    q_here = jax.tree.map(lambda leaf: at_position(leaf, jnp.minimum(num_accepted, window - 1)), q)
    replaced, tries, finished = self._resample(keys, p_here, q_here, rejected)
    # Without a rejection no test has read the target's last chain, so it is a sample of its distribution.
    next_token = jnp.where(rejected[:, None], replaced, at_position(tokens, num_accepted))
    report = TokenReport(tries, rejected & ~finished, jnp.zeros_like(tries))
    return Verdict.one(num_accepted, next_token, metrics=report_at(window, num_accepted, report))

  def _whole_block(self, keys: Key, draft: Draft, tokens: Array, p: ChainSummary, accepted: Array) -> Verdict:
    """All drafts, each kept or replaced; ``tokens [B, K, C]`` are the target's, ``accepted [B, K]`` the results of tests."""
    rows, window = accepted.shape
    is_draft = jnp.arange(window)[None] < draft.num_drafted[:, None]
    accepted, rejected = accepted & is_draft, ~accepted & is_draft
    replaced, tries, finished = self._resample(keys, p, draft.proposal.chains, rejected)
    judged = jnp.where(accepted[..., None], draft.tokens, replaced)
    report = TokenReport(tries, rejected & ~finished, jnp.zeros_like(tries))
    return Verdict(
      jnp.zeros((rows,), jnp.int32),
      jnp.where(is_draft[..., None], judged, tokens),
      jnp.minimum(draft.num_drafted + 1, window),
      draft.parents,
      metrics=jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, window))), report),
      is_drafted=accepted,
    )

  def _resample(self, keys: Key, p: ChainSummary, q: ChainSummary, rejected: Array) -> tuple[Array, Array, Array]:
    """Replacements ``[..., C]``, proposals used and whether one was accepted, of tokens ``rejected [B]`` or ``[B, K]``."""
    log_sigma = self._log_sigma(p, q)
    draw = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 0), p.mean.shape[1:]))
    uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), rejected.shape[1:]))

    def round_(state: tuple[Array, ...]) -> tuple[Array, ...]:
      x, finished, used, number = state
      round_keys = rng.stream_keys(keys, rng.Stream.RESIDUAL, number)
      proposal = p.mean + jnp.exp(p.log_std) * draw(round_keys)
      passed = uniform(round_keys) < gaussian_path.residual_accept_prob(proposal, p, q, log_sigma)
      x = jnp.where(finished[..., None], x, proposal)
      return x, finished | passed, used + (~finished).astype(jnp.int32), number + 1

    going = lambda state: ~jnp.all(state[1]) & (state[3] < self.max_tries)
    start = (p.mean, ~rejected, jnp.zeros(rejected.shape, jnp.int32), jnp.int32(0))
    x, finished, used, _ = jax.lax.while_loop(going, round_, start)
    return x, used, finished
