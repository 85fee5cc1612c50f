"""docs/many_devices.md: its table is what its command prints, its examples are parsed."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxspec.cli.main import main
from jaxspec.cli.plan import plan
from jaxspec.core.mesh import parse
from jaxspec.planning import MODELS, find_model, parse_device
from jaxspec.run.decode_options import DecodeOptions

PAGE = (Path(__file__).parents[2] / "docs" / "many_devices.md").read_text(encoding="utf-8")
_LINES = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
COMMANDS = [line for line in _LINES if line.startswith("jaxspec plan ")]
(PAIRS,) = (line for line in COMMANDS if line.endswith("--markdown"))
TABLE = PAGE[PAGE.index(PAIRS) + len(PAIRS) :].split("\n\n")[1]


def test_commands_are_parsed():
  for line in COMMANDS:
    context = plan.make_context("plan", shlex.split(line)[2:])
    DecodeOptions.of(context.params).check()
    for name in context.params["model"]:
      assert find_model(name) is MODELS[name]
    for name in context.params["device"]:
      parse_device(name)
    if context.params["mesh"]:
      parse(context.params["mesh"])


def test_the_table_has_a_row_for_each_pair():
  params = plan.make_context("plan", shlex.split(PAIRS)[2:]).params
  rows = [line.split(" | ")[:2] for line in TABLE.splitlines()[2:]]
  assert rows == [[f"| {model}", device] for model in params["model"] for device in params["device"]] and len(rows) == 12


@pytest.mark.slow
def test_the_table_is_what_the_command_prints():
  outcome = CliRunner().invoke(main, shlex.split(PAIRS)[1:])
  assert outcome.exit_code == 0 and outcome.stdout.strip() == TABLE.strip()
