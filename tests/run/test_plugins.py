"""A package of your own, installed: its methods and its family are everywhere; a broken one is a line."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROKEN = '"""Registers a method, and cannot be imported."""\nfrom jaxspec import methods\nimport package_that_is_nowhere\n'
MORE = """
import click
from jaxspec.io import converters
from jaxspec.methods import Plain
from jaxspec.serving.wire import method_codecs
from jaxspec.serving.wire.sqs_codec import PlainCodec


@click.command()
def stripes():
  '''Makes no stripes.'''
  click.echo("converted")


converters.register("stripes", "more_decoding.plugin:stripes", "Stripes of other libraries.")
method_codecs.register(Repeat, lambda method, vocab, feature_width: PlainCodec(vocab))
"""
CHECKS = """
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
from click.testing import CliRunner

import jaxspec
from jaxspec import testing
from jaxspec.cli.main import main
from jaxspec.io import checkpoints
from jaxspec.models import registry
from jaxspec.serving.wire import method_codecs
from jaxspec.serving.wire.sqs_codec import PlainCodec

found = []
threads = [threading.Thread(target=lambda: found.append(list(jaxspec.methods.METHODS))) for _ in range(4)]
for thread in threads:
  thread.start()
for thread in threads:
  thread.join()
assert len(found) == 4 and all(names[-2:] == ["repeat", "likely"] for names in found), found


def run(*args):
  outcome = CliRunner().invoke(main, [str(arg) for arg in args])
  assert outcome.exit_code == 0, (args, outcome.output, outcome.exception)
  return outcome.stdout


assert {"repeat", "likely"} <= {line.split(" ")[0] for line in run("methods").splitlines()}
assert "--copies" in run("methods", "repeat")
assert "--copies" in run("generate", "--help")
assert "likely" in run("audit", "--help")
assert "Stripes of other libraries." in run("convert", "--help") and run("convert", "stripes") == "converted\\n"
assert method_codecs.codec_of(jaxspec.methods.make_method("repeat"), 5) == PlainCodec(5)

config = registry.make_config("stripes", {"num_classes": 3})
step = np.roll(np.eye(3), 1, axis=1)
for name, scale in (("target", 40.0), ("draft", 2.0)):
  checkpoints.save(name, config, {"table": jnp.asarray(scale * step, jnp.float32)})
common = ("--model", "target", "--class", 1, "--json", "figures.json")
run("generate", *common, "--method", "repeat", "--copies", 2, "--out", "stripes.png")
document = json.load(open("figures.json"))
assert document["settings"]["method"] == "repeat" and document["settings"]["options"] == {"copies": 2}, document
run("generate", *common, "--method", "likely", "--draft-model", "draft", "--out", "stripes.png")
pipe = jaxspec.load_pipeline("target", draft="draft")
assert {"repeat", "likely"} <= set(pipe.methods())
images = np.asarray(pipe([1], key=jax.random.key(0), method="repeat").images)
assert images[0, 0, :, 0].tolist() == [255, 0, 127, 255, 0, 127]
out = run("audit", "--tiny", "--method", "likely", "--gamma", 2, "--sweep", "share=0.5,1")
assert "share" in out and "closed form" in out, out

toy = testing.toys.grid_toy()
method = jaxspec.methods.make_method("repeat", copies=2)
testing.check_contract(lambda: method.build(toy.target, toy.draft, toy.context), toy.condition(4), max_len=6)
print("checked")
"""


def install(folder: Path, name: str, entry_points: dict[str, str], modules: dict[str, str]) -> None:
  """What pip leaves of a distribution: its modules, and what its ``dist-info`` says about it."""
  for module, text in modules.items():
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  about = folder / f"{name.replace('-', '_')}-0.1.dist-info"
  about.mkdir()
  (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
  lines = [f"{entry} = {target}" for entry, target in entry_points.items()]
  (about / "entry_points.txt").write_text("\n".join(["[jaxspec.plugins]", *lines, ""]))


def run_python(folder: Path, *args: str) -> subprocess.CompletedProcess:
  environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "site"), str(ROOT)]), "JAXSPEC_DEBUG": ""}
  return subprocess.run([sys.executable, *args], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
  """The package of the page on adding things, beside one that cannot be imported."""
  folder = tmp_path_factory.mktemp("plugins")
  page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
  (project,) = re.findall(r"```toml\n(.*?)```", page, re.S)
  project = tomllib.loads(project)["project"]
  blocks = re.findall(r"```python\n(.*?)```", page, re.S)
  (plugin,) = (block for block in blocks if "methods.register(" in block)
  library = [block for block in blocks if "class " in block and "register" not in block]
  modules = {
    "more_decoding.library": "\n".join(["import jaxspec", "import jax.numpy as jnp", *library]),
    "more_decoding.plugin": plugin + MORE,
  }
  install(folder / "site", project["name"], project["entry-points"]["jaxspec.plugins"], modules)
  install(folder / "site", "broken", {"broken": "broken_decoding"}, {"broken_decoding": BROKEN})
  return folder


@pytest.mark.slow
def test_the_package_of_the_page_is_everywhere(installed):
  done = run_python(installed, "-c", CHECKS)
  assert done.returncode == 0 and done.stdout == "checked\n", (done.stdout, done.stderr)
  lines = [line for line in done.stderr.splitlines() if "plug-in" in line]
  assert lines == [
    "The plug-in broken_decoding of broken 0.1 cannot be imported: "
    "ModuleNotFoundError: No module named 'package_that_is_nowhere'"
  ]


@pytest.mark.slow
def test_a_plug_in_is_imported_when_a_name_is_looked_up(installed):
  loaded = "import sys, jaxspec, jaxspec.cli.main; print('more_decoding.plugin' in sys.modules)"
  assert run_python(installed, "-c", loaded).stdout == "False\n"
  done = run_python(installed, "-m", "jaxspec.cli.main", "methods", "--json")
  assert list(json.loads(done.stdout)["methods"])[-2:] == ["repeat", "likely"] and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_script_may_register_first(installed):
  """The entry point of what is imported already registers nothing again."""
  code = "import more_decoding.plugin; from jaxspec.methods import METHODS; print(list(METHODS)[-2:])"
  done = run_python(installed, "-c", code)
  assert done.stdout == "['repeat', 'likely']\n" and "more_decoding" not in done.stderr, done.stderr
