"""`jaxspec methods`, and that every command reads methods off their declarations: a new one is there by its registration."""

import dataclasses
import importlib
import json
import sys

import pytest
from click.testing import CliRunner

from jaxspec import methods
from jaxspec.cli.main import main
from jaxspec.core import options
from jaxspec.core.token_kinds import KINDS
from jaxspec.methods import METHODS
from jaxspec.run.decode_options import declarations, flag
from jaxspec.sampling import SAMPLING_TYPES

TOY = '''
import dataclasses
from typing import ClassVar

from jaxspec.methods import Plain, option


@dataclasses.dataclass(frozen=True)
class Toy(Plain):
  """Plain decoding with a flavour.

  The flavour changes nothing.
  """

  flavour: str = option("sweet", "Taste of the tokens.", choices=("sweet", "sour"))
  strength: int = option(3, "How much of it.", ge=1, le=9)
  loud: bool = option(False, "Say so.")

  name: ClassVar[str] = "toy"
  title: ClassVar[str] = "a toy"
  source: ClassVar[str] = "Toys 2025, section 1"
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
  """A method of a module that the package does not know, registered by one line."""
  (tmp_path / "toy_method.py").write_text(TOY)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, "toy_method", raising=False)
  with METHODS.adding("toy", importlib.import_module("toy_method").Toy):
    yield


def test_all_methods(run):
  outcome = run("methods")
  assert outcome.exit_code == 0, outcome.output
  for name in METHODS:
    assert any(line.startswith(f"{name} ") for line in outcome.stdout.splitlines())
  assert max(map(len, outcome.stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", METHODS)
def test_one_method(run, name):
  """Title, source, and every option with its default, its range and its help."""
  outcome = run("methods", name)
  assert outcome.exit_code == 0, outcome.output
  words = " ".join(outcome.stdout.split())
  cls = METHODS[name]
  assert cls.title in words and " ".join(cls.source.split()) in words and "``" not in words
  for option in options.options_of(cls).values():
    assert flag(option.name).removeprefix("--") in words
    for choice in option.spec.choices or ():
      assert choice in words


def test_json(run):
  document = json.loads(run("methods", "--json").stdout)
  assert list(document["methods"]) == list(METHODS) and set(document["sampling"]) == set(KINDS)
  assert document["methods"]["cspd"]["exact"] == "option" and document["methods"]["gsd"]["exact"] is False
  assert document["methods"]["ar"]["tokens"] == list(KINDS) and document["methods"]["ar"]["drafts_by"] == "nothing"
  one = json.loads(run("methods", "gsd", "--json").stdout)
  assert one == document["methods"]["gsd"] and one["options"]["window"]["ge"] == 1
  assert one["options"]["recycle"]["choices"] == ["fresh", "coupled", "gumbel"]


@pytest.mark.parametrize("typed, hint", [("cia", "mean ciar?"), ("eagl", "eagle or eagle-chain"), ("zzzz", "lists them")])
@pytest.mark.parametrize("command", [("methods",), ("generate", "apple", "--method"), ("audit", "--method")])
def test_unknown_method(fails, command, typed, hint):
  assert f"we instead got '{typed}'" in (line := fails(*command, typed)) and hint in line


def test_a_registered_method_is_everywhere(run, toy, bundle):
  assert "a toy" in run("methods").stdout and "Toys 2025, section 1" in run("methods", "toy").stdout
  assert "--[no-]loud" in run("methods", "toy").stdout
  for command in ("generate", "audit", "evaluate"):
    assert "--flavour --strength --loud" in run(command, "--help").stdout
  outcome = run(
    "generate",
    "apple",
    "--checkpoint",
    bundle,
    "--method",
    "toy",
    "--strength",
    5,
    "--loud",
    "--gamma",
    2,
    "--json",
    "f.json",
  )
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert "a toy, flavour sweet, strength 5, loud" in outcome.stdout
  assert outcome.stderr == "Warning: Not read by --method toy: --gamma\n"
  with open("f.json", encoding="utf-8") as file:
    settings = json.load(file)["settings"]
  assert settings["method"] == "toy" and settings["options"] == {"flavour": "sweet", "strength": 5, "loud": True}


def test_values_of_a_registered_method_are_checked(fails, toy):
  nowhere = ("generate", "apple", "--checkpoint", "nowhere", "--method", "toy")
  assert "strength of at most 9" in fails(*nowhere, "--strength", 10)
  assert "--flavour" in fails(*nowhere, "--flavour", "bitter")


def test_an_option_may_not_take_the_name_of_another(fails):
  fields = [("seed", int, methods.option(1, "Clashes."))]
  clash = dataclasses.make_dataclass("Clash", fields, bases=(methods.Plain,), frozen=True, kw_only=True)
  with METHODS.adding("clash", clash):
    assert "--seed belongs to jaxspec generate" in fails("generate", "apple")


def test_help_is_one_screen(toy):
  """Every own option in 24 lines of 110 columns, and a line for each sampling setting and each method."""
  from jaxspec.cli.generate import generate

  text = CliRunner().invoke(main, ["generate", "--help"], terminal_width=110).stdout
  lines = text.splitlines()
  settings = {name for cls in SAMPLING_TYPES.values() for name in options.options_of(cls)}
  assert len(lines) <= 24 + len(settings) + len(METHODS) and max(map(len, lines)) <= 110
  assert all(param.opts[0] in text for param in generate.params if param.name != "prompts")
  assert all(f"  {flag(name)}" in text for name in settings)
  assert all(any(line.startswith(f"  {name} ") for line in lines) for name in METHODS)


def test_no_command_names_an_option_of_a_method():
  """What is only about one method is read off its declaration."""
  from jaxspec.cli.audit import audit
  from jaxspec.cli.evaluate import evaluate
  from jaxspec.cli.generate import generate

  for command in (generate, audit, evaluate):
    assert not {param.name for param in command.params} & declarations().keys()


def test_methods_and_sampling_have_no_name_in_common():
  of_sampling = {name for cls in SAMPLING_TYPES.values() for name in options.options_of(cls)}
  assert not of_sampling & methods.all_options().keys()
