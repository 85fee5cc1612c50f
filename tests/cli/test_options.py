"""Declared options: every value out of range is an error of one line before loading."""

import math
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jaxspec.cli import method_options as declared
from jaxspec.cli.main import main
from jaxspec.core.command_line import UserError
from jaxspec.core.options import Option, options_of
from jaxspec.methods import METHODS, Ciar, Gsd, Plain, Speculative
from jaxspec.run.decode_options import DecodeOptions, fitting, flag
from jaxspec.sampling import ContinuousSampling, SamplingConfig


def bad_values(option: Option) -> list:
  """Values that a declaration refuses: outside of each bound, no number, no choice."""
  if option.kind is bool:
    return []
  if option.kind is str:
    return ["nonsense"] if option.spec.choices else []
  spec, bad = option.spec, ["many"]
  bad += [bound - 1 for bound in (spec.ge,) if bound is not None] + [bound + 1 for bound in (spec.le,) if bound is not None]
  bad += [bound for bound in (spec.gt, spec.lt) if bound is not None]
  if option.kind is float:
    bad += [math.nan] + [math.inf] * (not spec.infinite)
  return bad


def refused(*args) -> str:
  outcome = CliRunner().invoke(main, ["generate", "apple", "--checkpoint", "nowhere", *map(str, args)])
  assert outcome.exit_code == 2 and len(outcome.stderr.splitlines()) == 1, (args, outcome.output, outcome.exception)
  return outcome.stderr


def parameters(command=main, name="") -> Iterator[tuple[str, click.Parameter]]:
  """Every parameter of all commands, with the names of its commands."""
  for param in command.params:
    yield f"{name}{param.name}", param
  if isinstance(command, click.Group):
    context = click.Context(command)
    for each in command.list_commands(context):
      yield from parameters(command.get_command(context, each), f"{name}{each} ")


def test_ranges_of_commands_have_no_nan():
  """click alone takes nan as part of every range, and a wait of nan seconds never ends."""
  found = {name: param for name, param in parameters() if isinstance(param.type, click.FloatRange)}
  for param in found.values():
    with pytest.raises(UserError, match=f"a number as {param.opts[0]}, we instead got nan"):
      param.type.convert("nan", param, None)
    assert param.type.convert("1", param, None) == 1.0
  assert found.keys() >= {"generate give_up", "serve idle_s", "serve max_wait_ms", "calibrate tolerance"}


def test_only_times_that_may_be_never_are_infinite():
  """A call that waits without limit for others to share its step may never run."""
  infinite = {"generate give_up", "serve idle_s", "serve forget_s", "serve max_decode_ms"}
  for name, param in parameters():
    if isinstance(param.type, click.FloatRange):
      if name in infinite:
        assert param.type.convert("inf", param, None) == math.inf
      else:
        with pytest.raises(click.ClickException, match="inf"):
          param.type.convert("inf", param, None)


def test_no_path_of_a_command_is_empty():
  """That of an unset variable would be the current folder."""
  found = {name: param for name, param in parameters() if isinstance(param.type, click.Path)}
  for param in found.values():
    with pytest.raises(click.BadParameter, match="it is empty, give a name"):
      param.type.convert("", param, None)
    assert param.type.convert("one", param, None) == Path("one")
  assert found.keys() >= {"generate out", "generate model", "info path", "bundle folder", "train eagle run_dir"}


@pytest.mark.parametrize("name", METHODS)
def test_options_of_methods(name):
  for option in options_of(METHODS[name]).values():
    for value in bad_values(option):
      line = refused("--method", name, f"{flag(option.name)}={value}")
      assert option.name in line or flag(option.name) in line


@pytest.mark.parametrize("cls", [SamplingConfig, ContinuousSampling])
def test_options_of_sampling(cls):
  """A value that is valid for the other kind of tokens is an error only after loading."""
  other = options_of(ContinuousSampling if cls is SamplingConfig else SamplingConfig)
  for option in options_of(cls).values():
    for value in bad_values(option):
      line = refused(f"{flag(option.name)}={value}")
      told = option.name in line or flag(option.name) in line
      assert told or option.name in other


def test_good_values_come_as_far_as_loading():
  good = ("--gamma", 3, "--steps", 10, "--budget", "inf", "--no-align", "--temperature", 0.5, "--recycle", "fresh")
  assert "No checkpoint folder at nowhere" in refused(*good)


def test_what_was_given_is_told_apart():
  """Each class gets its declared options; others cause a warning, also a draft for a method without drafts."""
  decoding = DecodeOptions("gsd", "small", {"window": 3, "gamma": 4, "temperature": 0.5, "stop": 2})
  assert decoding.for_method(Gsd) == {"window": 3} and decoding.for_sampling(SamplingConfig) == {"temperature": 0.5}
  assert decoding.unread(Gsd, SamplingConfig) == ["Not read by --method gsd: --draft, --gamma, --stop"]
  assert decoding.for_method(Speculative) == {"draft": "small", "gamma": 4}
  assert DecodeOptions("ar", None, {}).unread(Plain, SamplingConfig) == []


def test_types_are_the_loosest_of_the_declarations():
  import click

  steps, gamma = options_of(ContinuousSampling)["steps"], options_of(Speculative)["gamma"]
  kind = lambda *options: declared.value_type(options)
  assert kind(gamma).convert("auto", None, None) == "auto" and kind(gamma).convert("3", None, None) == 3
  assert kind(steps) is click.STRING
  assert kind(gamma, options_of(SamplingConfig)["top_p"]) is click.FLOAT
  assert kind(options_of(Gsd)["recycle"]).choices == ("fresh", "coupled", "gumbel")
  verify = [options_of(cls)["verify"] for cls in (Speculative, Ciar)]
  assert kind(*verify).choices == ("token", "block", "exact", "lantern", "greedy")
  assert fitting(gamma, 3.0) == 3 and fitting(gamma, 3.5) == 3.5
