"""Common options of several commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jaxspec.core.command_line import PATH, UserError
from jaxspec.core.options import MAX_SEED

DTYPES = ("float32", "bfloat16")
# Options of networks, for `jaxspec.cli.networks.load_sources`.
NETWORKS = ("model", "tokenizer", "text_encoder", "draft_model")


class NumberRange(click.FloatRange):
  """A range without nan, which click takes as part of every range: comparisons with nan are false.

  Args:
    infinite: whether a number may be infinite.
  """

  def __init__(self, *args: Any, infinite: bool = False, **kwargs: Any):
    super().__init__(*args, **kwargs)
    self.infinite = infinite

  def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
    number = super().convert(value, param, ctx)
    name = param.opts[0] if param else "value"
    if math.isnan(number):
      raise UserError(f"Must have a number as {name}, we instead got {value}")
    if math.isinf(number) and not self.infinite:
      raise UserError(f"Must have a finite number as {name}, we instead got {value}")
    return number


def _only_one(ctx: click.Context, param: click.Parameter, values: tuple[Path, ...]) -> Path | None:
  """The value of an option with two names, given at most once."""
  if len(values) > 1:
    raise UserError(f"Must have one {' or '.join(param.opts)}, we instead got {' and '.join(map(str, values))}")
  return values[0] if values else None


_COMMON = {
  "classes": click.option(
    "--class", "classes", multiple=True, metavar="NAME", help="Class, by name or number; may be repeated."
  ),
  "model": click.option(
    "--model", "--checkpoint", "model", type=PATH, multiple=True, callback=_only_one, metavar="DIR",
    help="Networks: a bundle or a network, by folder, shipped name or hf:ORG/NAME.",
  ),
  "tokenizer": click.option("--tokenizer", type=PATH, metavar="DIR", help="Image tokenizer, with --model."),
  "text_encoder": click.option(
    "--text-encoder", type=PATH, metavar="DIR", help="T5 that reads the prompts, with --model."
  ),
  "draft_model": click.option("--draft-model", type=PATH, metavar="DIR", help="Network that drafts, besides the bundle's."),
  "method": click.option("--method", metavar="NAME", help="How to decode; `jaxspec methods` lists them."),
  "draft": click.option("--draft", metavar="NAME", help="Draft network of the bundle."),
  "samples": click.option(
    "--samples", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Images or texts per prompt."
  ),
  "seed": click.option(
    "--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True, metavar="N", help="Seed of the decode."
  ),
  "batch": click.option("--batch", type=int, metavar="N", help="Rows decoded together.  [default: all, up to 16]"),
  "dtype": click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, metavar="NAME",
    help="Arithmetic of the transformers: float32 or bfloat16.",
  ),
  "matmul_precision": click.option(
    "--matmul-precision", type=click.Choice(DTYPES), metavar="NAME",
    help="Rounding of inputs of products; sums stay in float32.  [default: the fastest on this machine]",
  ),
  "no_cache": click.option("--no-cache", is_flag=True, help="Do not keep compiled programs for the next time."),
}  # fmt: skip


def common(*names: str) -> Callable[[Callable], Callable]:
  """Adds the common options of these names to a command."""

  def add(function: Callable) -> Callable:
    for name in reversed(names):
      function = _COMMON[name](function)
    return function

  return add


def was_given(name: str) -> bool:
  """Whether the user gave an option of the running command."""
  return click.get_current_context().get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def unread(why: str, *names: str) -> list[str]:
  """A warning about given but unread options of the running command, or none.

  Args:
    why: the end of "Not read ...".
    names: names of parameters.
  """
  options = {param.name: param.opts[0] for param in click.get_current_context().command.params}
  given = [options[name] for name in names if was_given(name)]
  return [f"Not read {why}: {', '.join(given)}"] if given else []


def warn(*warnings: str) -> None:
  """Shows warnings on stderr, a line each."""
  for warning in warnings:
    click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)
