"""Bundle files: the format, its two predecessors, folders without a file, and errors of damaged ones."""

import json
import shutil
from pathlib import Path

import pytest

from jaxspec.errors import CheckpointError
from jaxspec.io.bundle import BUNDLE_FILE, Bundle, Defaults, read_bundle, write_bundle
from jaxspec.io.shipped import BUNDLES, shipped
from jaxspec.run.loading import load_pipeline


@pytest.mark.parametrize("name", BUNDLES)
def test_shipped_bundles_are_of_this_version(name):
  bundle = read_bundle(shipped(name))
  assert bundle.version == 2 and bundle.name == name and bundle.defaults.method is not None
  for folder in (bundle.target, *bundle.drafts.values()):
    assert (bundle.path / folder / "config.json").is_file()


def write(path: Path, document) -> Path:
  path.mkdir(exist_ok=True)
  (path / BUNDLE_FILE).write_text(document if isinstance(document, str) else json.dumps(document))
  return path


def test_the_first_format_of_captions(tmp_path):
  document = {
    "tokenizer": "vq", "text": "text", "target": "target", "drafts": {"b": "b", "a": "a"},
    "defaults": {
      "method": "ciar", "draft": "a", "gamma": 3, "rho": 0.25, "early_close": True, "cfg_scale": 2.5, "top_p": None,
      "seed": 3,
    },
  }  # fmt: skip
  bundle = read_bundle(write(tmp_path, document))
  assert bundle.parts == {"tokenizer": "vq", "text": "text", "vocabulary": "vocabulary.json"}
  assert list(bundle.drafts) == ["b", "a"] and bundle.version == 1
  options = {"gamma": 3, "target_prefix": 0.25, "early_close": True}
  assert bundle.defaults == Defaults("ciar", "a", {"cfg_scale": 2.5}, options)


def test_the_first_format_of_vectors(tmp_path):
  document = {
    "kind": "vector_tokens", "vae": "vae", "target": "target", "drafts": {"small": "draft"}, "classes": ["a", "b"],
    "latent_scale": 0.5, "defaults": {"steps": "ddim50", "stop": 5, "refine": True, "num_iter": 16, "prefill": 0.1},
  }  # fmt: skip
  bundle = read_bundle(write(tmp_path, document))
  assert bundle.parts == {"vae": "vae", "classes": ["a", "b"], "latent_scale": 0.5}
  sampling = {"steps": "ddim50", "stop": 5, "refine": True}
  assert bundle.defaults == Defaults("cspd", None, sampling, {"num_iter": 16, "target_prefix": 0.1})
  write_bundle(tmp_path, options={"gamma": 4})  # rewrites the whole file
  again = read_bundle(tmp_path)
  assert again.version == 2 and again.parts == bundle.parts and again.defaults.sampling == sampling
  assert again.defaults.options == {"num_iter": 16, "target_prefix": 0.1, "gamma": 4}


def test_a_bundle_grows_while_its_networks_are_trained(tmp_path):
  path = tmp_path / "new"
  write_bundle(path, parts={"vae": "vae", "classes": ("a", "b"), "latent_scale": 0.5})
  with pytest.raises(ValueError, match="fields target are missing"):
    read_bundle(path)
  assert read_bundle(path, complete=False).parts["classes"] == ["a", "b"]
  write_bundle(path, target="target", method="cspd", sampling={"steps": 8, "stop": 2})
  write_bundle(path, drafts={"small": "draft"}, draft="small", sampling={"stop": 3, "refine": True})
  write_bundle(path, drafts={"tiny": "draft-2"}, options={"exact": True})
  bundle = read_bundle(path)
  assert bundle == Bundle(
    path, "target", {"small": "draft", "tiny": "draft-2"}, {"vae": "vae", "classes": ["a", "b"], "latent_scale": 0.5},
    Defaults("cspd", "small", {"steps": 8, "stop": 3, "refine": True}, {"exact": True}),
  )  # fmt: skip
  assert [file.name for file in path.iterdir()] == [BUNDLE_FILE]
  before = (path / BUNDLE_FILE).read_text()
  for wrong in ({"options": {"gama": 3}}, {"sampling": {"steps": 1.5}}, {"draft": "huge"}, {"method": "magic"}):
    with pytest.raises(ValueError, match=r"Cannot write .*bundle\.json: must have"):
      write_bundle(path, **wrong)
  assert (path / BUNDLE_FILE).read_text() == before


def test_folders_without_a_file(texts, classes):
  pair = read_bundle(texts)
  assert (pair.target, pair.drafts, pair.version) == ("target", {"draft": "draft"}, None)
  one = read_bundle(texts / "target")
  assert (one.target, one.drafts) == (".", {})


def good(**fields):
  document = {"version": 2, "target": "target", "drafts": {"small": "draft"}, "parts": {}, "defaults": {}}
  return document | fields


def defaults(**fields):
  return good(defaults=fields)


DAMAGES = {
  "no json": ("{", "Corrupt"),
  "nested too deep": ("[" * 100_000, "Corrupt"),
  "a list": ("[]", "must be an object, not list"),
  "empty": ("{}", "defaults, drafts, target, text, tokenizer are missing"),
  "a later version": (good(version=3), "version 3, this package reads up to 2"),
  "a version that is true": (good(version=True), "version True"),
  "no target": ({"version": 2, "drafts": {}, "defaults": {}}, "fields target are missing"),
  "drafts that are a list": (good(drafts=[1]), "'drafts' must be an object"),
  "parts that are a list": (good(parts=[1]), "'parts' must be an object"),
  "defaults that are a list": (good(defaults=[]), "'defaults' must be an object"),
  "defaults of version 1 that are a list": ({"defaults": [], "drafts": {}, "target": "t", "text": "t", "tokenizer": "t"},
                                            "'defaults' must be an object"),
  "a folder that is a number": (good(target=3), "'target' must be the name of a folder"),
  "a draft that is a number": (good(drafts={"small": 3}), "'small' must be the name of a folder"),
  "an unknown field": (good(colour=3), "fields colour are unknown"),
  "flat defaults": (defaults(gamma=3), "fields gamma of 'defaults' are unknown"),
  "options that are a list": (defaults(options=[]), "'options' of 'defaults' must be an object"),
  "a method that is a number": (defaults(method=3), "3 as method"),
  "an unknown method": (defaults(method="magic"), "we instead got 'magic'"),
  "an unknown draft": (defaults(draft="huge"), "a default draft in small, we instead got 'huge'"),
  "text as a number": (defaults(options={"gamma": "three"}), "'three' as gamma"),
  "half a draft": (defaults(options={"gamma": 2.5}), "2.5 as gamma"),
  "a number out of range": (defaults(options={"gamma": 0}), "0 as gamma (Must have gamma of at least 1)"),
  "a number as a flag": (defaults(options={"exact": 1}), "1 as exact"),
  "a flag as a number": (defaults(options={"gamma": True}), "True as gamma"),
  "an option of no method": (defaults(options={"gama": 3}), "we instead got 'gama'"),
  "sampling of both kinds": (defaults(sampling={"steps": 3, "top_k": 3}), "we instead got steps, top_k"),
  "a temperature below 0": (defaults(sampling={"temperature": -1}), "-1 as temperature"),
  "a flag in the first format": ({"defaults": {"gamma": True}, "drafts": {}, "target": "t", "text": "t", "tokenizer": "t"},
                                 "True as gamma"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_say_in_one_line_what_is_wrong(tmp_path, damage):
  document, words = DAMAGES[damage]
  write(tmp_path, document)
  with pytest.raises(ValueError) as caught:
    read_bundle(tmp_path)
  message = str(caught.value)
  assert message.startswith(f"Corrupt {tmp_path / BUNDLE_FILE}: ") and words in message and "\n" not in message


def test_no_bundle_at_all(tmp_path):
  with pytest.raises(ValueError, match="No checkpoint folder"):
    read_bundle(tmp_path / "none")
  with pytest.raises(ValueError, match="not a bundle"):
    read_bundle(tmp_path)


def test_a_folder_in_place_of_a_file(tmp_path):
  (tmp_path / BUNDLE_FILE).mkdir()
  (tmp_path / "config.json").write_text("{}")
  for call in (read_bundle, load_pipeline, write_bundle):
    with pytest.raises(CheckpointError, match=r"^Cannot read .*bundle\.json: Is a directory$"):
      call(tmp_path)


def _defaults(**fields):
  """Writes other defaults into a file."""
  return lambda path: (path / BUNDLE_FILE).write_text(
    json.dumps(json.loads((path / BUNDLE_FILE).read_text()) | {"defaults": fields})
  )


def _folder(name):
  """Puts a folder in place of a file."""
  return lambda path: ((path / name).unlink(), (path / name).mkdir())


PARTS = {
  "an image tokenizer without a name": (lambda b: write_bundle(b, parts={"tokenizer": ""}), "a path as part 'tokenizer'"),
  "no image tokenizer": (lambda b: write_bundle(b, parts={"tokenizer": "draft"}), "Must have an image tokenizer"),
  "no text encoder": (lambda b: write_bundle(b, parts={"text": "draft"}), "Must have a text_encoder"),
  "a tokenizer that is a number": (lambda b: write_bundle(b, parts={"tokenizer": 3}), "a path as part 'tokenizer'"),
  "a part that nothing reads": (lambda b: write_bundle(b, parts={"vae": "vae"}), "we instead got vae"),
  "no vocabulary": (lambda b: (b / "vocabulary.json").unlink(), "vocabulary.json"),
  "no weights": (lambda b: (b / "target/params.safetensors").unlink(), "incomplete"),
  "weights that are a folder": (_folder("target/params.safetensors"), "params.safetensors: Is a directory"),
  "a config that is a folder": (_folder("target/config.json"), "config.json: Is a directory"),
  "no target": (lambda b: shutil.rmtree(b / "target"), "No checkpoint folder"),
  "sampling of other tokens": (_defaults(sampling={"steps": 5}), "sampling settings of discrete tokens (cfg_scale,"),
  "a method of other tokens": (_defaults(method="cspd"), "must have a default method that draws discrete tokens"),
  "a target that does not generate": (lambda b: write_bundle(b, target="tokenizer"), "holds a patch_vq"),
}


@pytest.mark.parametrize("damage", PARTS)
def test_parts_that_do_not_fit(captions, tmp_path, damage):
  copy = Path(shutil.copytree(captions, tmp_path / "copy"))
  act, words = PARTS[damage]
  act(copy)
  with pytest.raises(ValueError) as caught:
    load_pipeline(copy)
  assert words in str(caught.value) and "\n" not in str(caught.value)
