"""Base of decoding methods: frozen values that declare their options and build the parts of a decode.

A method is one dataclass in one file. Every option is declared once, with `option`: its default, its help, its range. These
declarations are the source of the checks, the command-line options, the warnings about unread options, the JSON of a
bundle's defaults and the sweeps of an audit.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.core.network import Network
from jaxspec.core.options import LARGEST, Option, OptionSpec, check_options, option, options_of, values_of
from jaxspec.core.short_repr import short_repr
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.token_kinds import CONTINUOUS, DENOISING_STEPS, DISCRETE, SCALES
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Drafter, Key, PyTree, Verifier
from jaxspec.errors import OptionError, values_as
from jaxspec.sampling.logit_processing import Warp

__all__ = [
  "DISCRETE",
  "LARGEST",
  "SCALES",
  "SAME_FAMILY",
  "DENOISING_STEPS",
  "CONTINUOUS",
  "BuildContext",
  "DecodeFn",
  "DraftingMethod",
  "Expected",
  "Method",
  "Option",
  "OptionSpec",
  "Parts",
  "check_options",
  "need",
  "option",
  "options_of",
]

# Draft networks of the target's own family; other values of `Method.draft_family` name a family of the registry.
SAME_FAMILY = "same"

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class BuildContext:
  """Inputs of a method besides its networks: the tokens, and the shared settings.

  Attributes:
    sampling: the settings of the kind of tokens (`jaxspec.sampling`).
    space: the tokens.
    audit: report the exact distribution of every committed token beside it (`jaxspec.audited`).
  """

  __repr__ = short_repr

  sampling: Any
  space: TokenSpace = TokenSpace()
  audit: bool = False

  def warp(self) -> Warp:
    """The static part of the logit processing, the same on both sides of a decode of discrete tokens."""
    return dataclasses.replace(self.sampling.warp(), legal=self.space.legal)


class DecodeFn(Protocol):
  """A whole decode; hashable, and equal for equal settings: it is a static argument of the compiled program.

  ``window`` is the number of inputs of a pass besides one token of the row, as `Drafter.window`.
  """

  @property
  def window(self) -> int: ...

  def __call__(
    self, params: SpecParams, keys: Key, condition: PyTree, max_len: int, end_token: int | tuple[int, ...] | None
  ) -> DecodeResult: ...


class Parts(NamedTuple):
  """Parts of a decode.

  ``target_prefix`` leading tokens are drawn by the target alone. ``decode`` replaces the loop of `jaxspec.speculate` for
  methods with rounds of other shapes; drafter and verifier are then not read.
  """

  __repr__ = short_repr

  params: SpecParams
  drafter: Drafter | None
  verifier: Verifier | None
  target_prefix: int = 0
  decode: DecodeFn | None = None

  @property
  def window(self) -> int:
    """Inputs of a pass of the target besides the last committed token."""
    part = self.drafter if self.decode is None else self.decode
    return 0 if part is None else part.window

  def pair(self) -> tuple[Drafter, Verifier]:
    """Drafter and verifier.

    Raises:
      ValueError: for a method that replaces the loop.
    """
    if self.drafter is None or self.verifier is None:
      raise ValueError("Must have a method with a drafter and a verifier, we instead got one that replaces the loop")
    return self.drafter, self.verifier


class Expected(NamedTuple):
  """Expected number of tokens of a row per pass of the target.

  ``draft_calls`` are the passes of the draft network per pass of the target; None: the constant `Drafter.calls_per_round`.
  ``inputs`` are tokens that a pass of the target reads; None: the drafter's window and the newest token.
  """

  tokens: float
  draft_calls: float | None = None
  inputs: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
  """Base class of all methods; see the module docstring.

  Class attributes:
    name: name on the command line and in bundles.
    title: a few words for headings.
    source: paper, section or equation.
    tokens: a kind (`jaxspec.core.token_kinds`); `fits` tests for a kind.
    needs_grid: whether tokens must be those of an image with rows and columns.
    exact: whether the output follows the target's distribution exactly; `is_exact` includes the options.
    draft_family: family of the draft network: `SAME_FAMILY`, a name of the registry, or None for a method without one.
    free_draft: the value of `DraftingMethod.draft` that needs no network, or None.
  """

  name: ClassVar[str]
  title: ClassVar[str]
  source: ClassVar[str] = ""
  tokens: ClassVar[str] = DISCRETE
  needs_grid: ClassVar[bool] = False
  exact: ClassVar[bool] = False
  draft_family: ClassVar[str | None] = None
  free_draft: ClassVar[str | None] = None

  def __post_init__(self):
    check_options(self)
    with values_as(OptionError):
      self.check()

  def check(self) -> None:
    """Raises a ValueError for inconsistent options."""

  @classmethod
  def fits(cls, tokens: str) -> bool:
    """Whether the method draws tokens of a kind (`jaxspec.core.token_kinds`)."""
    return cls.tokens == tokens

  @property
  def is_exact(self) -> bool:
    """Whether the output of these settings follows the target's distribution exactly."""
    return self.exact

  def drafts_per_round(self) -> int:
    """Number of tokens that the target reads in one round besides the last committed one."""
    return 0

  def longest_path(self) -> int:
    """Largest number of accepted drafts in one round: the length of a chain, the levels of a tree."""
    return self.drafts_per_round()

  def inputs_per_draft_call(self) -> int:
    """Tokens of a row per pass of the draft network: 1 for a chain, a beam for a tree."""
    return 1

  def expected(self, acceptance: float, num_tokens: int, calls: float | None = None) -> Expected:
    """Expected tokens of a row per pass of the target.

    Args:
      acceptance: conditional acceptance probability of a draft.
      num_tokens: tokens of a row.
      calls: calls of the target per token, of a method that accepts tokens locally; None: the method's own.
    Raises:
      ValueError: for calls of another method, or calls that cannot be reached.
    """
    if calls is not None:
      raise ValueError(f"Must have a method that accepts tokens locally (ciar) for its calls, we instead got {self.name}")
    return Expected(self.tokens_per_pass(acceptance, num_tokens))

  def tokens_per_pass(self, acceptance: float, num_tokens: int) -> float:
    """Mean number of tokens that a pass of the target commits, see `expected`; a full acceptance adds one."""
    return expected_tokens(acceptance, self.longest_path())

  def check_length(self, num_tokens: int) -> None:
    """Raises a ValueError if drafts are longer than a row of ``num_tokens``."""

  def resolved(self, context: BuildContext) -> Self:
    """The same method for reports: options whose default None depends on the tokens have their value.

    Raises:
      ValueError: if the tokens do not allow an option.
    """
    return self

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """The parts of a decode by these networks.

    Raises:
      ValueError: if a part that the method needs is missing or does not fit.
    """
    raise NotImplementedError

  def options(self) -> dict[str, Any]:
    """The declared options as JSON values."""
    return values_of(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftingMethod(Method):
  """A method with a draft network.

  Attributes:
    draft: the network, the name of a draft of the pipeline, or `Method.free_draft`; None: the pipeline's default.
  """

  draft: Network | str | None = dataclasses.field(default=None, repr=False)


def need(value: Value | None, what: str, method: str) -> Value:
  """``value``, unless it is None.

  Raises:
    ValueError: naming what the method needs.
  """
  if value is None:
    raise ValueError(f"Must have {what} for method {method}, we instead got none")
  return value
