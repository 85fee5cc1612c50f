"""Rows of tables as data: a method by name, changes of the bundle's defaults, and a label."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jaxspec.methods import make_method
from jaxspec.methods.method import Method
from jaxspec.run.pipeline import Pipeline

Pairs = tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Row:
  """Settings of one row of a table.

  Attributes:
    method: a name of `jaxspec.methods.METHODS`.
    label: in the table; "" makes one from the method and the changes.
    options: of the method, over the bundle's defaults.
    sampling: of the family, over the bundle's defaults: ``temperature``, ``cfg_scale`` and the like.
    draft: a draft of the bundle; None takes its default.
    alone: the draft network draws alone.
    seed: of the keys; rows of one seed draw every prompt with the same key.
    rate: target rate of cloud calls per token, by the threshold; None leaves the options unchanged.
    max_len: drawn tokens; None draws all.
    audit: report the exact bias of every token (`jaxspec.audited`); the tokens are the same.
    setting: rows of one setting differ only by the seed of a training; "" is none.
    against: label of the row whose correct images it is compared with, such as the exact method with the same drafts; "" is
      the subject of the table.
  """

  method: str
  label: str = ""
  options: Pairs = ()
  sampling: Pairs = ()
  draft: str | None = None
  alone: bool = False
  seed: int = 0
  rate: float | None = None
  max_len: int | None = None
  audit: bool = False
  setting: str = ""
  against: str = ""

  @property
  def name(self) -> str:
    """The label, or one made from the changes."""
    if self.label:
      return self.label
    differs = [f"{name.replace('_', ' ')} {value}" for name, value in (*self.options, *self.sampling)]
    ends = (
      [f"draft {self.draft}"] * bool(self.draft) + ["draft alone"] * self.alone + [f"seed {self.seed}"] * bool(self.seed)
    )
    return ", ".join([self.method, *differs, *ends])

  def plain_value(self) -> Method:
    """The method with the library's defaults; needs no networks.

    Raises:
      ValueError: for an unknown name or option, or a value out of range.
    """
    return make_method(self.method, **dict(self.options))

  def value(self, pipeline: Pipeline) -> Method:
    """The method with the bundle's defaults and these options."""
    chosen = dict(self.options) | ({} if self.draft is None else {"draft": self.draft})
    return pipeline.method(self.method, **chosen)

  def but(self, *, sampling: dict[str, Any] | None = None, **changed: Any) -> Row:
    """The row with other fields (``label``, ``draft``, ``seed``, ...) or options."""
    fields = {name: changed.pop(name) for name in list(changed) if name in Row.__dataclass_fields__}
    options = tuple((dict(self.options) | changed).items())
    mixed = tuple((dict(self.sampling) | (sampling or {})).items())
    return dataclasses.replace(self, options=options, sampling=mixed, **fields)


def row(method: str, label: str = "", *, sampling: dict[str, Any] | None = None, **given: Any) -> Row:
  """A `Row`; other keyword arguments are options of the method."""
  return Row(method, label).but(sampling=sampling, **given)


# Plain decoding twice, to show the variation by chance.
PLAIN, PLAIN_AGAIN = row("ar"), row("ar", seed=1)

OPEN, CLOSED = 1e30, -1.0  # thresholds of CIAR that accept everything locally, and nothing
PAPER_PREFIX = 0.06  # CIAR's share of tokens from the cloud


def matched(label: str, rate: float, *, target_prefix: float = PAPER_PREFIX, **given) -> Row:
  """A row of CIAR with a target rate."""
  return row("ciar", label, rate=rate, target_prefix=target_prefix, **given)


def code(share: float, num_tokens: int = 256) -> Row:
  """CoDe: ``ceil(share * num_tokens)`` tokens from the cloud, the rest from the edge."""
  prefix = math.ceil(share * num_tokens) / num_tokens
  return row("ciar", f"CoDe({share:g})", tau=OPEN, target_prefix=prefix)
