"""docs/many_devices.md: its table is what its command prints, its examples are parsed, its Python runs."""

import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from jaxspec.cli.declared import Chosen
from jaxspec.cli.main import main
from jaxspec.cli.plan import plan
from jaxspec.planning import MODELS, find_model, parse_device, parse_mesh
from tests.methods.networks import condition_of, decoder, small

PAGE = (Path(__file__).parents[2] / "docs" / "many_devices.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
(PAIRS,) = (line for line in COMMANDS if line.endswith("--markdown"))
TABLE = PAGE[PAGE.index(PAIRS) + len(PAIRS) :].split("\n\n")[1]


def test_commands_are_parsed():
  for line in COMMANDS:
    context = plan.make_context("plan", shlex.split(line)[2:])
    Chosen.of(context.params).check()
    for name in context.params["model"]:
      assert find_model(name) is MODELS[name]
    for name in context.params["device"]:
      parse_device(name)
    if context.params["mesh"]:
      parse_mesh(context.params["mesh"])


def test_the_table_has_a_row_for_each_pair():
  params = plan.make_context("plan", shlex.split(PAIRS)[2:]).params
  rows = [line.split(" | ")[:2] for line in TABLE.splitlines()[2:]]
  assert rows == [[f"| {model}", device] for model in params["model"] for device in params["device"]] and len(rows) == 12


@pytest.mark.slow
def test_the_table_is_what_the_command_prints():
  outcome = CliRunner().invoke(main, shlex.split(PAIRS)[1:])
  assert outcome.exit_code == 0 and outcome.stdout.strip() == TABLE.strip()


def test_the_example():
  (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
  made = decoder(small("ar"))
  key_data = jax.random.key_data(jax.random.split(jax.random.key(0), 2))
  scope = dict(decoder=made, key_data=key_data, condition=condition_of(made))
  exec(block.replace("max_len=16", "max_len=4"), scope)
  assert np.shape(scope["out"].tokens) == (2, 4)
