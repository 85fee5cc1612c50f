"""The pages of the documentation: command lines parse, links are valid, examples fit, and the site builds."""

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import jaxspec
from jaxspec.methods import METHODS, Method
from jaxspec.run.generation import Generation
from tests import shallow
from tests.cli.command_lines import flags_of, lines_of, mentions_of, parse, subcommand
from tests.site_modules import site_module

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = {"copied", "reference"}  # by the site
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in MADE)
CARDS = sorted((ROOT / "checkpoints").rglob("*.md"))
ALL = [ROOT / "README.md", *PAGES, *CARDS]
# Tokens of a row, and their kind, by shipped bundle.
ROWS = {
  "scenes": (144, "discrete"), "wordnet": (None, "discrete"), "digits32-causal": (64, "continuous"),
  "digits32-mar": (64, "continuous"),
}  # fmt: skip
# Released networks that a page names where no shipped bundle has such tokens.
RELEASED = {"weights/var-d24": (10, "scales"), "weights/dit-xl-2-256": (250, "denoising steps")}
RELEASED |= {"weights/t2i": (256, "discrete")}


def _is_there(module: str) -> bool:
  path = ROOT / module.replace(".", "/")
  return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_command_lines_are_parsed():
  """Every command in a shell block has valid options and values; every module exists."""
  found = 0
  for page in ALL:
    for words in lines_of(page):
      if words[0] == "jaxspec":
        found += 1
        try:
          parse(words[1:])
        except Exception as error:
          raise AssertionError(f"{page.name}: {' '.join(words)}: {error}") from error
      elif words[:2] == ["python", "-m"] and words[2].startswith(("experiments", "conversion", "jaxspec", "tests")):
        assert _is_there(words[2]), f"{page.name}: {words[2]}"
  assert found > 90


def test_pages_say_which_commands_need_a_clone():
  """A wheel has neither experiments nor tests, and its checkpoints are no folder of the user's."""
  needs_clone = re.compile(
    r"^(python -m (experiments|tests|pytest)|pip install .*-e |jaxspec .*\b(checkpoints|experiments)/)", re.M
  )
  found = 0
  for page in ALL:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
    if any(needs_clone.search(block) for block in blocks):
      found += 1
      assert re.search(r"\b(in|of) (a|the) clone\b", text), page.name
  assert found > 15


def test_commands_in_sentences_have_these_options():
  found = 0
  for page in ALL:
    for words in mentions_of(page):
      found += 1
      if words[1] in ("COMMAND", "COMMAND...") or words[1].startswith("-"):
        continue
      command, args = subcommand([word for word in words[1:] if word != "..."])
      flags = {word.partition("=")[0] for word in args if word.startswith("--")}
      assert flags <= flags_of(command), f"{page.name}: {' '.join(words)}"
  assert found > 50


@pytest.mark.slow
def test_tables_that_pages_name_are_there():
  from experiments.run import chosen

  for page in ALL:
    for names in re.findall(r"experiments\.run((?: [a-z]+:[a-z_0-9]+)+)", page.read_text(encoding="utf-8")):
      assert len(chosen(names.split())) == len(names.split()), page.name


def _anchors(page: Path) -> set[str]:
  """Anchors of headings, as code hosts and the site make them."""
  text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
  titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.M)]
  return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere():
  """To existing files and headings."""
  found = 0
  for page in ALL:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
      if target.startswith("http"):
        continue
      found += 1
      path = (page.parent / target).resolve() if target else page
      assert path.exists(), f"{page.name} links to {target}"
      if anchor and path.suffix == ".md":
        assert anchor in _anchors(path), f"{page.name} links to {target}#{anchor}"
  assert found > 200


def test_every_page_has_its_place():
  navigation = site_module("navigation")
  named = {page for pages in navigation.NAVIGATION.values() for page in pages}
  folders = [folder.removesuffix("*") for folder in navigation.FOLDERS.values()]
  for path in PAGES:
    page = path.relative_to(DOCS).with_suffix("").as_posix()
    assert page == "index" or page in named or any(page.startswith(folder) for folder in folders), page


def test_every_public_name_is_in_one_group_of_the_reference():
  listed = " ".join(names for _, _, names in site_module("navigation").GROUPS.values()).replace("jaxspec.", "").split()
  assert sorted(name for name in listed if "." not in name) == sorted(jaxspec.__all__)
  for name in listed:  # others are part of their room
    module, _, attribute = f"jaxspec.{name}".rpartition(".")
    assert getattr(importlib.import_module(module), attribute).__doc__ or "." not in name, name


class _Shipped:
  """Stand-in for a pipeline of a shipped bundle: the same errors, without networks."""

  def __init__(self, name: str, draft: str | None = None, **parts: str):
    self.num_tokens, self.tokens = (ROWS | RELEASED)[name]
    if name in RELEASED:
      self.drafts = [] if draft is None else [Path(draft).name]
      return
    assert draft is None and not parts
    self.drafts = json.loads((ROOT / "checkpoints" / name / "bundle.json").read_text())["drafts"]

  def __call__(self, prompts, *, key, method=None, max_len=None, **sampling):
    assert isinstance(prompts, list) and (method is None or isinstance(method, Method))
    if method is not None:
      assert method.fits(self.tokens) and getattr(method, "draft", None) in (None, method.free_draft, *self.drafts)
      method.check_length(max_len or self.num_tokens)
    return SimpleNamespace(images=None, texts=None, tokens=None, counters=jaxspec.Counters(*[0] * 6))


def _examples(page: Path) -> list[str]:
  return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


def test_examples_of_the_methods_fit_the_shipped_networks(monkeypatch):
  monkeypatch.setattr(jaxspec, "load_pipeline", _Shipped)
  for name in METHODS:
    (block,) = _examples(DOCS / "methods" / f"{name}.md")
    exec(block, {})
    shown = {node.attr for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Attribute)}
    assert {"load_pipeline", METHODS[name].__name__} <= shown
  for page in ("quickstart", "lossy", "discrete"):
    scope = {}
    for block in _examples(DOCS / f"{page}.md"):
      exec(block, scope)
  assert {"images", "tokens", "texts", "counters"} <= set(dir(Generation))


@pytest.fixture(scope="module")
def shallow_bundles(tmp_path_factory):
  """A folder in which the names of shipped bundles load shallow ones."""
  folder = tmp_path_factory.mktemp("shallow")
  for name in ROWS:
    shallow.write(folder, name)
  return folder


@pytest.fixture(scope="module")
def load_once():
  """`jaxspec.load_pipeline`, of which each network is loaded once."""
  return functools.cache(jaxspec.load_pipeline)


# Their drafts are those of other methods, and tests/cli and tests/methods decode with their rules.
OTHER_RULES = {"lantern", "gsd", "scaled", "eagle-lantern"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name not in OTHER_RULES])
def test_examples_of_the_methods_run(name, shallow_bundles, load_once, monkeypatch):
  """The example fits the shipped networks themselves by the test above."""
  monkeypatch.chdir(shallow_bundles)
  monkeypatch.setattr(jaxspec, "load_pipeline", load_once)
  scope = {}
  (block,) = _examples(DOCS / "methods" / f"{name}.md")
  if any(folder in block for folder in RELEASED):
    pytest.skip("needs released weights; other tests run such networks")
  exec(block, scope)
  out = scope["out"]
  assert len(out.texts or out.images) == 1 and (out.counters.target_calls > 0).all()


@pytest.mark.slow
def test_example_of_own_networks():
  from jaxspec.models.llamagen import llamagen_fns
  from tests.helpers import TARGET, labels, random_params

  fns = llamagen_fns(TARGET)
  scope = dict(target_fns=fns, draft_fns=fns, target_params=random_params(fns, 0), draft_params=random_params(fns, 1))
  (block,) = _examples(DOCS / "how_to.md")
  scope["condition"] = labels(2)
  exec(block, scope)
  assert scope["out"].tokens.shape == (2, 16)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
  for module in ("sphinx", "myst_nb", "furo"):
    pytest.importorskip(module, reason="needs the docs extra: pip install 'jaxspec-decoding[docs]'")
  command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
  done = subprocess.run([*command, str(DOCS), str(tmp_path / "site")], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  tour = (tmp_path / "site" / "tour.html").read_text()
  assert 'href="methods/gsd.html"' in tour and "total variation" in tour and "<img" in tour
  assert 'id="jaxspec.Draft"' in (tmp_path / "site" / "reference" / "contracts.html").read_text()
