"""EAGLE with a chain: a one-layer network extrapolates the target's features, one sampled token at a time.

The method is EAGLE (arXiv 2401.15077) without its tree. A sampled chain is faster than a tree where a target pass over a
tree costs much more than a pass over a few tokens. Tokens of a chain are drawn from the drafter's distribution, so the
lossless rule accepts each of them with probability 1 - TV. Candidates of a tree are deterministic; each is accepted with its
probability under the target only.

One pass reads the pairs of the last round's committed tokens and gives the distribution of the first draft. ``window - 1``
further passes use the drafter's own features.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.types import Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict
from jaxspec.drafters import eagle_state
from jaxspec.drafters.eagle_state import EagleState
from jaxspec.models.conditions import Pairs
from jaxspec.sampling.logit_processing import ModelParams, Warp, sample


@dataclasses.dataclass(frozen=True)
class EagleChainDrafter(Drafter):
  """Drafter that samples ``window`` tokens from a feature-level network.

  The verifier must return features (``target_model(..., feedback_fn=target_features)``); any rule for chains is valid.

  Attributes:
    head: the drafter network (`eagle_fns`), or its `guided` form if the target is guided.
    window: drafts per round ``K``.
    warp: logit processing of the drafter's distribution, the same as the target's.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  head: ModelFns
  window: int
  warp: Warp

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")

  @property
  def calls_per_round(self) -> int:
    return self.window

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[EagleState, None]:
    slots = max_len + self.window + 1
    return eagle_state.start(self.head, params.model, condition, prefill, longest=self.window, slots=slots), None

  def read(self, params: ModelParams, state: EagleState, cursor: Cursor) -> EagleState:
    _, cache = eagle_state.absorb(self.head, params.model, state, cursor)
    return state._replace(cache=cache)

  def draft(self, params: ModelParams, keys: Key, state: EagleState, cursor: Cursor) -> tuple[Draft, EagleState, tuple]:
    uniform = rng.uniforms(keys, self.window)  # [B, K]

    def draw(logits, index):
      logits = self.warp(logits, params.sampling, cursor.length + index)
      return sample(logits, jax.lax.dynamic_index_in_dim(uniform, index, axis=1, keepdims=False)), logits

    newest, cache = eagle_state.absorb(self.head, params.model, state, cursor)
    token, logits = draw(newest.logits, 0)

    def step(carry, index):
      cache, token, feature = carry
      positions = (newest.position + index)[:, None]
      output, cache = self.head.apply(params.model, Pairs(token[:, None], feature), cache, positions=positions)
      token, logits = draw(output.need_logits()[:, 0], index)
      return (cache, token, output.features), (token, logits)

    carry = (cache, token, newest.feature)
    (cache, _, _), (tokens, rest) = jax.lax.scan(step, carry, jnp.arange(1, self.window, dtype=jnp.int32))
    tokens = jnp.concatenate([token[None], tokens]).swapaxes(0, 1)  # [B, K]
    proposal = jnp.concatenate([logits[None], rest]).swapaxes(0, 1)  # [B, K, V]
    return Draft.chain(tokens, proposal, self.window, self.calls_per_round), state._replace(cache=cache), ()

  def commit(
    self, params: ModelParams, state: EagleState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> EagleState:
    return eagle_state.hold(state, draft, verdict)
