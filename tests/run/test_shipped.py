"""The shipped bundles load with their defaults and descriptions."""

from pathlib import Path

import pytest

import jaxspec
from jaxspec.io import checkpoints
from jaxspec.io import shipped as shipped_folders
from jaxspec.io.bundle import read_bundle
from jaxspec.io.shipped import BUNDLES, shipped
from jaxspec.run.loading import load_pipeline

FAST = "wordnet"


@pytest.mark.parametrize("name", [FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in BUNDLES if name != FAST)])
def test_bundles_load_with_their_defaults(name):
  pipe = load_pipeline(name)
  assert pipe.name == name and pipe.method().name == pipe.defaults.method
  decoder, draft = pipe.decoder(), getattr(pipe.method(), "draft", None)
  assert decoder.drafting is (None if draft is None else pipe.drafts[draft]) and decoder.sampling == pipe.sampling()
  assert pipe.family.space.grid or "rows" not in pipe.methods()
  for method in pipe.methods():
    if pipe.method(method).draft_family is not None:
      pipe.family.check_fit(pipe.drafts.loaded(pipe.method(method).draft), pipe.method(method).draft_family)


@pytest.mark.slow
def test_a_word_that_scenes_do_not_know_is_named():
  known = load_pipeline("scenes").encode(["two cats and a red heart", "a zebra"]).warnings
  (line,) = (warning for warning in known if "never seen" in warning)
  assert "Prompt 2" in line and "zebra; they know 28 things: cat, dog" in line


@pytest.mark.parametrize("name", BUNDLES)
def test_every_network_says_where_it_comes_from(name):
  bundle = read_bundle(shipped(name))
  folders = [
    bundle.target,
    *bundle.drafts.values(),
    *(bundle.parts[part] for part in ("vae", "text", "tokenizer") if part in bundle.parts),
  ]
  for folder in folders:
    meta = checkpoints.read_config(bundle.path / folder)["meta"]
    licence, _, named = meta["licence"].partition(", see ")
    assert licence.startswith("Apache-2.0"), folder
    # An installed package has the file too.
    assert not named or (Path(jaxspec.__file__).parents[1] / named).is_file(), named


def test_shipped_files_fit_in_60_megabytes():
  files = [path for path in shipped(FAST).parent.rglob("*") if path.is_file()]
  assert len(files) > 40 and sum(path.stat().st_size for path in files) < 60e6


def test_parts_of_an_installed_package_are_known_through_links(tmp_path, monkeypatch):
  """An environment is often reached by a link; what is inside it must not be changed either way."""
  (tmp_path / "real" / "scenes").mkdir(parents=True)
  (tmp_path / "link").symlink_to(tmp_path / "real")
  for reached in ("real", "link"):
    monkeypatch.setattr(shipped_folders, "_INSTALLED", tmp_path / reached)
    assert all(shipped_folders.is_installed(tmp_path / way / "scenes") for way in ("real", "link"))
    assert not shipped_folders.is_installed(tmp_path / "other")
