"""A target, a method and sampling settings as one callable."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax

from jaxspec.core import footprint, rng
from jaxspec.core.loop import Loop, end_tuple, iterate, speculate
from jaxspec.core.network import Network
from jaxspec.core.options import check_length
from jaxspec.core.precision import in_32_bits, precision_context
from jaxspec.core.short_repr import short_repr
from jaxspec.core.state import DecodeResult, DraftSide, SpecParams
from jaxspec.core.token_kinds import CONTINUOUS, DISCRETE
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, Key, ModelFns, PyTree
from jaxspec.errors import OptionError, values_as
from jaxspec.methods.ar import Plain
from jaxspec.methods.method import BuildContext, DecodeFn, Method, Parts
from jaxspec.models.mar.mar import MARFns
from jaxspec.run.imposed_parts import impose
from jaxspec.run.round_times import Measured, timed_params
from jaxspec.run.shared import Shared
from jaxspec.sampling import SAMPLING_TYPES, AnySampling, DenoisingSampling, SamplingConfig, ScaleSampling, head_fns
from jaxspec.verifiers.imposed import Imposed

# (params, key data [B, ...] uint32, condition) -> result; pure, to be jitted by the caller
CompiledDecode = Callable[[SpecParams, Array, PyTree], DecodeResult]


@dataclasses.dataclass(frozen=True, eq=False)
class Decoder(Shared):
  """Draws rows of tokens from one target by one method.

  Attributes:
    target: the target network.
    method: the method; `jaxspec.methods.Plain` by default.
    draft: the draft network; None: ``method.draft``.
    sampling: the settings for the kind of tokens: `SamplingConfig`, `ContinuousSampling`, `ScaleSampling` or
      `DenoisingSampling`.
    space: the tokens. Missing fields have defaults: ``vocab_size`` from the network's config, ``num_tokens`` from the
      settings; rows of discrete tokens may also end with ``max_len`` or an end token.
    audit: report the exact distribution of every committed token; slower, with the same tokens.
    imposed: imposed acceptance of drafts, to measure speed with untrained weights: a probability, one for each depth, or an
      `jaxspec.verifiers.imposed.Imposed`, which may also give the calls of rows of ``num_tokens``; None: by the rule.
    matmul_precision: precision of matrix products, see `jax.default_matmul_precision`; None: JAX's setting.

  Example:
    >>> import jax, jax.numpy as jnp, jaxspec
    >>> from jaxspec import methods
    >>> from jaxspec.run.decoder import Decoder
    >>> from jaxspec.models.conditions import ClassLabels
    >>> from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
    >>> from jaxspec.core.network import Network
    >>> fns = llamagen_fns(LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=4, num_classes=3))
    >>> network = Network(fns, fns.init(jax.random.key(0)))
    >>> decoder = Decoder(network, methods.Speculative(draft=network, gamma=2))
    >>> out = decoder(ClassLabels(jnp.array([0, 2])), key=jax.random.key(1), max_len=4)
    >>> out.tokens.shape, out.lengths.tolist()
    ((2, 4), [4, 4])
  """

  __repr__ = short_repr

  target: Network
  method: Method = Plain()
  draft: Network | None = None
  sampling: AnySampling = SamplingConfig()
  space: TokenSpace | None = None
  audit: bool = False
  imposed: Imposed | float | tuple[float, ...] | None = None
  matmul_precision: str | None = None

  def __post_init__(self):
    target, method = getattr(self, "target"), getattr(self, "method")  # of any type at run time
    if not isinstance(target, Network):
      raise ValueError(f"Must have a Network as target of a decoder, we instead got {target!r}")
    if not isinstance(method, Method):
      raise ValueError(f"Must have a Method in a decoder (a pipeline knows names), we instead got {method!r}")
    if not isinstance(self.sampling, tuple(SAMPLING_TYPES.values())):
      known = ", ".join(cls.__name__ for cls in SAMPLING_TYPES.values())
      raise ValueError(f"Must have sampling settings in {known}, we instead got {self.sampling!r}")
    if not self.method.fits(self.sampling.tokens):
      wanted = SAMPLING_TYPES[self.method.tokens].__name__
      raise ValueError(
        f"Must have a {wanted} for method {self.method.name}, which draws {self.method.tokens}, "
        f"we instead got a {type(self.sampling).__name__}"
      )
    if self.space is not None and self.space.kind != self.sampling.tokens:
      raise ValueError(
        f"Must have a space of {self.sampling.tokens} for a {type(self.sampling).__name__}, we instead got one of "
        f"{self.space.kind}"
      )
    if self.imposed is not None:
      Imposed.of(self.imposed)
      if self.sampling.tokens != DISCRETE:
        wanted = f"a method for {DISCRETE} tokens to impose its acceptance"
        raise ValueError(f"Must have {wanted}, we instead got {self.method.name}")

  @property
  def draws_continuous(self) -> bool:
    """Whether tokens are continuous."""
    return self.sampling.tokens == CONTINUOUS

  @property
  def drafting(self) -> Network | None:
    """The draft network; None for methods without one, and for a draft without a network (`Method.free_draft`).

    Raises:
      ValueError: for a draft given by name only.
    """
    if self.method.draft_family is None:
      return None
    draft = getattr(self.method, "draft", None) if self.draft is None else self.draft
    if isinstance(draft, str) and draft == self.method.free_draft:
      return None
    if draft is not None and not isinstance(draft, Network):
      raise ValueError(f"Must have a Network as draft of a decoder (a pipeline knows names), we instead got {draft!r}")
    return draft

  @functools.cached_property
  def context(self) -> BuildContext:
    """Inputs of the method besides networks."""
    space = self.space or TokenSpace(self.sampling.tokens)
    num_tokens, vocab_size = space.num_tokens, space.vocab_size
    if num_tokens is None:
      num_tokens = self.sampling.row_tokens(self.target)
    if not self.draws_continuous and vocab_size is None:
      vocab_size = getattr(self.target.config, "vocab_size", None)
    space = dataclasses.replace(space, num_tokens=num_tokens, vocab_size=vocab_size)
    return BuildContext(self.sampling, space, self.audit)

  @functools.cached_property
  def parts(self) -> Parts:
    """Parameters, drafter and verifier; built once, and equal for equal settings, so that programs are compiled once.

    Raises:
      OptionError: if an input of the method is missing or does not fit.
    """
    with values_as(OptionError):
      if self.context.space.num_tokens is not None:
        self.method.check_length(self.context.space.num_tokens)
      parts = self.method.build(self.target, self.drafting, self.context)
    return parts if self.imposed is None else impose(parts, Imposed.of(self.imposed), self.context.space.num_tokens)

  @functools.cached_property
  def round_times(self) -> dict[str, Measured]:
    """Measured rounds by program, for methods that choose draft lengths (`jaxspec.run.round_times`)."""
    return {}

  def built(self) -> Self:
    """The decoder with its `parts` built, so that errors are raised here.

    Raises:
      ValueError: as `parts`.
    """
    _ = self.parts
    return self

  @in_32_bits
  def __call__(
    self,
    condition: PyTree,
    *,
    key: Key,
    max_len: int | None = None,
    end_token: int | tuple[int, ...] | None = None,
    loop: Loop | None = None,
  ) -> DecodeResult:
    """Draws one row of tokens per row of the condition, in one compiled program.

    Args:
      condition: the family's condition of ``B`` rows (`OrderedLabels` for masked networks).
      key: one typed key (row r uses ``fold_in(key, r)``) or ``[B]`` row keys; consumed.
      max_len: tokens of every row; None: ``num_tokens``.
      end_token: id, or several ids, after which a row ends; None: no such token.
      loop: see `jaxspec.speculate`; a method with a schedule of its own (``parallel``) has none.
    Returns:
      `DecodeResult`, tokens ``[B, N]`` int32 or ``[B, N, C]`` float32 in generation order.
    Raises:
      ValueError: if a part is missing, or for a length that is not positive, or a ``loop`` that does not fit.
    """
    length = self._length(max_len)
    with self._precision():
      params = self._timed(condition, length, loop)
      return self._decode(params, key, condition, length, end_token, loop)

  def _timed(self, condition: PyTree, length: int, loop: Loop | None) -> SpecParams:
    """The parameters, with measured times of rounds if the method chooses draft lengths; no end token ends these."""
    decode = lambda params, keys: self._decode(params, keys, condition, length, None, loop)
    return timed_params(self, condition, length, decode)

  def decode_fn(self, *, max_len: int | None = None, end_token: int | tuple[int, ...] | None = None) -> CompiledDecode:
    """The decode as one pure function ``(params, key_data, condition) -> DecodeResult``, to be jitted by the caller.

    ``params`` are `Parts.params` (so weights are arguments of the program, not constants), ``key_data`` the data of ``[B]``
    row keys (`jax.random.key_data`). Other arguments: see `__call__`. If the method chooses draft lengths by times that were
    not given (`jaxspec.run.round_times`), all rounds count as equally long.
    """
    length = self._length(max_len)
    self.built()  # outside of any trace

    @in_32_bits
    def decode(params: SpecParams, key_data: Array, condition: PyTree) -> DecodeResult:
      with self._precision():
        return self._decode(params, rng.of_key_data(key_data), condition, length, end_token)

    return decode

  @in_32_bits
  def iterate(
    self,
    condition: PyTree,
    *,
    key: Key,
    max_len: int | None = None,
    end_token: int | tuple[int, ...] | None = None,
  ) -> Iterator[DraftSide]:
    """Yields the draft side after the prefill and after every round; arguments: see `__call__`.

    The next round reuses the buffers of a yielded state, so copy values before it.

    Raises:
      ValueError: for a method without rounds.
    """
    parts = self.parts
    if parts.decode is not None:
      raise ValueError(f"Must have a method with rounds of drafting to iterate over, we instead got {self.method.name}")
    drafter, verifier = parts.pair()
    with self._precision():
      params = self._timed(condition, self._length(max_len), "host")
    rounds = iterate(
      params, key, condition, drafter=drafter, verifier=verifier, max_len=self._length(max_len),
      end_token=end_token, target_prefix=parts.target_prefix,
    )  # fmt: skip
    while True:
      with self._precision():
        state = next(rounds, None)
      if state is None:
        return
      yield state

  def decode_bytes(self, rows: int, condition: PyTree, *, max_len: int | None = None) -> int:
    """Bytes of the caches of a decode of ``rows`` rows; for discrete tokens also of logits, with two temporaries each.

    A lower bound without weights and activations, to detect batches that clearly do not fit.

    Args:
      condition: any number of rows; only its number of positions is read.
    """
    window, length = self.method.drafts_per_round(), self._length(max_len)
    total = 0
    for network in filter(None, (self.target, self.drafting)):
      # A discrete draft may have learned guided targets; other halves always go together.
      is_guided = self.sampling.is_guided and (self.sampling.tokens != DISCRETE or network.is_guided)
      halves = 2 if is_guided else 1
      if isinstance(self.sampling, ScaleSampling | DenoisingSampling):
        total += self.sampling.bind(network).decode_bytes(halves * rows, window + 1)
        continue
      fns = self._functions(network)
      if fns is None:
        continue
      slots = fns.prefix_len(condition) + length + window
      total += footprint.tree_bytes(footprint.cache_shapes(fns.init_cache, halves * rows, slots))
      total += footprint.logits_bytes(halves * rows, window + 1, self.context.space.vocab_size or 0)
    return total

  def _functions(self, network: Network) -> ModelFns | None:
    """The functions with a cache; None for parallel decoding, which has no cache.

    A draft of another type has an unknown cache.
    """
    if not self.draws_continuous:
      return network.fns if isinstance(network.fns, ModelFns) else None
    if self.parts.decode is not None and isinstance(network.fns, MARFns):
      return None
    return head_fns(network).network

  def _length(self, max_len: int | None) -> int:
    if max_len is not None:
      return check_length(max_len)
    if self.context.space.num_tokens is None:
      raise ValueError("Must have max_len where the number of tokens of a row is not known, we instead got none")
    return self.context.space.num_tokens

  def _precision(self) -> contextlib.AbstractContextManager[None]:
    return precision_context(self.matmul_precision)

  def _decode(
    self, params: SpecParams, key: Key, condition: PyTree, max_len: int, end_token: Any, loop: Loop | None = None
  ) -> DecodeResult:
    found = run_parts(self.parts, params, key, condition, max_len=max_len, end_token=end_token, loop=loop)
    if self.audit and found.metrics == ():
      raise ValueError(
        f"Must have a rule that reports its distributions to audit method {self.method.name}: build its verifier with "
        "`jaxspec.methods.common.target_side`"
      )
    return found


def run_parts(
  parts: Parts,
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  max_len: int,
  end_token: int | tuple[int, ...] | None = None,
  loop: Loop | None = None,
) -> DecodeResult:
  """Decodes with the parts of a method; ``parts.params`` are not read. Other arguments as in `Decoder.__call__`."""
  if parts.decode is not None:
    if loop is not None:
      raise ValueError(f"Must have no loop for a method with a schedule of its own, we instead got {loop!r}")
    keys, ends = rng.row_keys(key, condition.batch_size), end_tuple(end_token) or None
    return _decode_whole(params, keys, condition, decode=parts.decode, max_len=max_len, end_token=ends)
  drafter, verifier = parts.pair()
  return speculate(
    params,
    key,
    condition,
    drafter=drafter,
    verifier=verifier,
    max_len=max_len,
    end_token=end_token,
    loop=loop,
    target_prefix=parts.target_prefix,
  )


@in_32_bits
@functools.partial(jax.jit, static_argnames=("decode", "max_len", "end_token"))
def _decode_whole(
  params: SpecParams, keys: Key, condition: PyTree, *, decode: DecodeFn, max_len: int, end_token: tuple[int, ...] | None
) -> DecodeResult:
  return decode(params, keys, condition, max_len, end_token)
