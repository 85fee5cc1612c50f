"""The target network of continuous tokens as a verifier: features after every prefix of the draft, then an acceptance rule.

It is the counterpart of `jaxspec.verifiers.target`. A causal network gives all features in one pass. A masked network
(`jaxspec.models.mar.masked_network`) needs a pass per prefix; these passes run as one batch.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp

from jaxspec.core import commits
from jaxspec.core.types import Array, Cursor, Draft, Key, PyTree, Verdict, Verifier
from jaxspec.diffusion.token_chains import TargetChains, TokenRule
from jaxspec.models.continuous_fns import ContinuousFns
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.verifiers.target import TargetState


@dataclasses.dataclass(frozen=True)
class ContinuousVerifier(Verifier):
  """Verifier of drafts from `jaxspec.drafters.continuous_model` with the same rule.

  With `jaxspec.autoregress` it is the target's own sampler, token by token, with the same distribution for every rule.

  Attributes:
    fns: the target and its chains.
    rule: the acceptance rule.
  Raises:
    ValueError: if the rule cannot judge such chains.
  """

  fns: ContinuousFns
  rule: TokenRule

  def __post_init__(self):
    self.rule.check(self.fns.num_steps, self.fns.noisy_end)

  @property
  def network(self):
    return self.fns.network

  def chains(self, params: ModelParams, z: Array, first: Array) -> TargetChains:
    slot = first[:, None] + jnp.arange(z.shape[1], dtype=jnp.int32)[None]
    distribution = functools.partial(self.fns.distribution, params.model)
    chains = self.fns.num_steps, self.fns.token_dim, self.fns.noisy_end
    return TargetChains(z, slot, distribution, params.sampling.temperature, *chains)

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, window: int
  ) -> tuple[Verdict, TargetState]:
    prefix_len = self.network.prefix_len(condition)
    rows = keys.shape[0]
    cache = self.network.init_cache(rows, prefix_len + max_len + window)
    output, cache = self.network.apply(
      params.model,
      condition,
      cache,
      positions=jnp.arange(prefix_len)[None],
      logits_at=jnp.full((1,), prefix_len - 1),
    )
    nothing = Draft.empty(jnp.zeros((rows, self.fns.token_dim)))
    prefill = self.rule(keys, nothing, self.chains(params, output.features, jnp.zeros((rows,), jnp.int32)))
    return prefill, TargetState(cache, jnp.int32(prefix_len))

  def verify(
    self, params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    inputs = jnp.concatenate([cursor.last[:, None], draft.tokens], axis=1)  # [B, K + 1, C]
    start = state.prefix_len + cursor.length - 1
    offsets = jnp.arange(inputs.shape[1], dtype=jnp.int32)[None]
    output, read = self.network.apply(params.model, inputs, state.cache, positions=start[:, None] + offsets)
    verdict = self.rule(keys, draft, self.chains(params, output.features, cursor.length))
    cache = commits.replaced_in_cache(self.network, params.model, read, cursor, state.prefix_len, draft, verdict)
    return verdict, state._replace(cache=cache)
