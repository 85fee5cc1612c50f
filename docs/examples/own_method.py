"""A method in one file: the newest token is drafted again and again. The exact rule keeps the target's distribution.

Run it by `python docs/examples/own_method.py`.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

import jaxspec
from jaxspec.core.state import SpecParams
from jaxspec.methods.common import target_side
from jaxspec.methods.method import BuildContext, Method, Parts, need, option


@dataclasses.dataclass(frozen=True)
class RepeatDrafter(jaxspec.Drafter):
  """Copies of the newest token, each with a point mass as its distribution."""

  window: int
  vocab: int
  calls_per_round = 0  # no network
  has_cache = False

  def draft(self, params, keys, state, cursor):
    tokens = jnp.repeat(cursor.last[:, None], self.window, axis=1)  # [B, K]
    logits = jnp.where(jnp.arange(self.vocab)[None, None] == tokens[..., None], 0.0, -jnp.inf)  # [B, K, V]
    return jaxspec.Draft.chain(tokens, logits, self.window, 0), state, ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeat(Method):
  """Drafts copies of the newest token; exact."""

  copies: int = option(3, "Copies of the newest token in a draft.", ge=1)

  name: ClassVar[str] = "repeat"
  title: ClassVar[str] = "copies of the newest token"
  exact: ClassVar[bool] = True

  def drafts_per_round(self) -> int:
    return self.copies

  def build(self, target, draft, context: BuildContext) -> Parts:
    drafter = RepeatDrafter(self.copies, need(context.space.vocab_size, "vocab_size", self.name))
    side, verifier = target_side(target, jaxspec.lossless, context)
    return Parts(SpecParams((), side), drafter, verifier)


if __name__ == "__main__":
  out = jaxspec.load_pipeline("scenes")(["a red heart"], key=jax.random.key(0), method=Repeat(copies=3))
  print(f"{out.tokens.shape[1]} tokens, {out.counters.target_calls[0]} calls, {out.counters.accepted[0]} drafts accepted")
