"""Networks by name: the hub's cache and its server, released folders and files, each converted once."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import conversion.auto
from conversion import chameleon_vq, engine, llamagen, llamagen_vq, mar_vae
from jaxspec.errors import CheckpointError, LinkError
from jaxspec.io import checkpoints, hub, kept_conversions
from jaxspec.io.bundle import write_bundle
from jaxspec.io.converters import CONVERTERS
from jaxspec.io.model_folders import model_folder
from jaxspec.io.shipped import shipped
from jaxspec.models.janus import JanusConfig
from jaxspec.models.language.emu3 import Emu3Config
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from jaxspec.planning import find_model
from jaxspec.run.loading import load_pipeline
from tests.cli import fake_bundle
from tests.io import hub_folders
from tests.io.hub_folders import COMMIT
from tests.models import emu3_golden, janus_golden
from tests.run import tiny, tiny_chameleon

ROOT = Path(__file__).parents[2]
CLASSES = LlamaGenConfig(num_classes=5, dim=16, vocab_size=16, num_tokens=4, num_layers=1, num_heads=2, multiple_of=16)
VQ = LlamaGenVQConfig(base_channels=32, multipliers=(1, 1), num_res_blocks=1, z_channels=8, codebook_size=16, codebook_dim=4)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
  return hub_folders.released(tmp_path_factory.mktemp("released") / "neo")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
  """The caches of the user and of the hub's library, which is offline."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
  constants = pytest.importorskip("huggingface_hub.constants")
  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  return tmp_path / "hf"


def conversions(monkeypatch):
  """A list to which every conversion from now on adds its source."""
  done, convert = [], conversion.auto.convert
  monkeypatch.setattr(conversion.auto, "convert", lambda found, source, *rest, **more: (
    done.append(source), convert(found, source, *rest, **more))[1])  # fmt: skip
  return done


def official(file, config, family, seed=0):
  """A file of random weights under the official names."""
  generator = np.random.default_rng(seed)
  shapes = engine.source_shapes(family, engine.template_of(config))
  draw = lambda shape: 0.3 * generator.normal(size=shape) + (len(shape) == 1)
  save_file({name: draw(shape).astype(np.float32) for name, shape in shapes.items()}, file)
  return file


def fails(path, kind=CheckpointError):
  with pytest.raises(kind) as caught:
    model_folder(path)
  assert "\n" not in str(caught.value) and isinstance(caught.value, (ValueError, RuntimeError))
  return str(caught.value)


def test_a_repository_in_the_cache_is_converted_once(places, released, monkeypatch):
  snapshot, done = hub_folders.cache(places, "acme/tiny-neo", released), conversions(monkeypatch)
  first = load_pipeline("hf:acme/tiny-neo")
  assert first.name == first.target.path.name == "tiny-neo" and done == [snapshot]
  meta = checkpoints.read_config(first.target.folder)["meta"]
  assert meta["source"] == "hf:acme/tiny-neo" and meta["revision"] == COMMIT and len(meta["source_sha256"]) == 64
  again = load_pipeline(Path("hf:acme/tiny-neo"), drafts={"copy": f"hf:acme/tiny-neo@{COMMIT}"})
  assert again.target.folder == first.target.folder == again.drafts.loaded("copy").folder and len(done) == 1
  local = load_pipeline(released, draft="hf:acme/tiny-neo")
  assert local.name == "neo" and list(local.drafts) == ["tiny-neo"] and len(done) == 2
  np.testing.assert_array_equal(local.target.params["wte"]["weight"], first.target.params["wte"]["weight"])
  # The conversion alone is enough.
  for file in snapshot.glob("*.safetensors"):
    file.resolve().unlink()
  assert load_pipeline("hf:acme/tiny-neo").target.folder == first.target.folder and len(done) == 2
  shutil.rmtree(places)
  assert model_folder(f"hf:acme/tiny-neo@{COMMIT}") == first.target.folder


def test_the_source_decides_what_is_converted(places, released, tmp_path, monkeypatch):
  done, own = conversions(monkeypatch), shutil.copytree(released, tmp_path / "own")
  first = model_folder(own)
  assert model_folder(own) == first == model_folder(tmp_path / "xdg" / ".." / "own") and len(done) == 1
  later = time.time() + 5
  os.utime(own / "model.safetensors", (later, later))
  second = model_folder(own)
  assert second != first and first.is_dir() and len(done) == 2
  hub_folders.cache(places, "acme/neo", own)
  pinned = model_folder("hf:acme/neo")
  hub_folders.cache(places, "acme/neo", released, commit="f" * 40)
  assert model_folder("hf:acme/neo") != pinned == model_folder(f"hf:acme/neo@{COMMIT}")
  monkeypatch.setattr("jaxspec.__version__", "9.9")
  assert model_folder(own) == second
  monkeypatch.setattr(kept_conversions, "FORM", 0)
  assert model_folder(own) != second


# Of what converters write, by `kept_conversions.FORM`.
_FORMS = {1: "e73fcf07dfc346a7"}


@pytest.mark.slow
def test_conversions_of_another_form_have_another_number(released, tmp_path):
  """Kept conversions outlive releases: if the fields, tensors or files of one change, FORM must be raised."""
  official(tmp_path / "c2i_B_256.safetensors", CLASSES, llamagen.FAMILY)
  (tmp_path / "c2i_B_256.json").write_text(json.dumps({"num_heads": 2, "num_tokens": 4}))
  anole = tiny_chameleon.save_anole(tmp_path / "anole", layers=1)
  emu3 = emu3_golden.write_download(tmp_path / "hub")
  written = []
  for source in (released, tmp_path / "c2i_B_256.safetensors", anole, emu3, janus_golden.FOLDER / "target"):
    folder = model_folder(source)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
      written.append(file.relative_to(folder).as_posix())
      if file.name == checkpoints.CONFIG_FILE:
        document = json.loads(file.read_text())
        written += [document["family"], *sorted(document), *sorted(document["config"])]
      elif file.name == checkpoints.PARAMS_FILE:
        with safe_open(file, framework="numpy") as archive:
          parts = {name: archive.get_slice(name) for name in sorted(archive.keys())}
          written += [f"{name} {part.get_dtype()} {part.get_shape()}" for name, part in parts.items()]
  digest = hashlib.sha256("\n".join(written).encode()).hexdigest()[:16]
  assert _FORMS.get(kept_conversions.FORM) == digest, f"raise FORM, and record {digest} for it here"


def test_a_config_needs_no_weights(places, released, tmp_path, monkeypatch):
  """Plans of released networks: nothing is converted, and the weights need not be there."""
  done = conversions(monkeypatch)
  hub_folders.cache(places, "acme/janus", janus_golden.FOLDER / "target")
  hub_folders.cache(places, "acme/neo", released)
  emu3 = emu3_golden.write_download(tmp_path / "hub")
  hub_folders.cache(places, "acme/emu3", emu3)
  for file in places.rglob("*"):
    if file.suffix in (".safetensors", ".bin"):
      file.unlink()
  found = [find_model(name) for name in ("hf:acme/janus", "hf:acme/neo", str(emu3), str(released), "hf:acme/emu3")]
  assert [model.name for model in found] == ["janus", "neo", "Emu3-Gen", "neo", "emu3"] and not done
  for model, source in zip(found, (janus_golden.FOLDER / "target", released, emu3, released)):
    config = checkpoints.load(model_folder(source), weights=False).config
    # The prompts of Emu3 are of the converter's options, not of the folder.
    of_options = {name: getattr(config, name) for name in ("null_text", "suffix") if hasattr(config, name)}
    assert dataclasses.replace(model.config, **of_options) == config
  # A conversion of a commit is enough, and what only tensors tell is read from them.
  hub_folders.cache(places, "acme/again", released)
  model_folder(f"hf:acme/again@{COMMIT}")
  shutil.rmtree(places)
  assert find_model(f"hf:acme/again@{COMMIT}").family == "gpt_neo"
  official(tmp_path / "c2i_B_256.safetensors", CLASSES, llamagen.FAMILY)
  (tmp_path / "c2i_B_256.json").write_text(json.dumps({"num_heads": 2, "num_tokens": 4}))
  assert find_model(str(tmp_path / "c2i_B_256.safetensors")).num_tokens == 4
  (shutil.copytree(released, tmp_path / "odd") / "config.json").write_text('{"model_type": "gpt_neo"}')
  with pytest.raises(CheckpointError, match="is missing"):
    find_model(str(tmp_path / "odd"))


def test_a_long_conversion_is_shown(released, monkeypatch, capsys):
  assert model_folder(shutil.copytree(released, released.parent / "quick")) and not capsys.readouterr().err
  monkeypatch.setattr("jaxspec.render.working.LINE_EVERY_S", 0.0)
  model_folder(released)
  lines = capsys.readouterr().err.splitlines()
  assert lines[0] == "Converting neo: writing weights" and lines[-1].split("  ")[0] == lines[0] and "tensors" in lines[-1]


def test_what_needs_no_conversion(places, released, tmp_path, monkeypatch):
  done = conversions(monkeypatch)
  ours = tiny.texts(tmp_path / "ours")
  write_bundle(ours, target="target", drafts={"small": "draft"}, parts={})
  snapshot = hub_folders.cache(places, "acme/bundle", ours)
  assert model_folder("hf:acme/bundle") == snapshot and load_pipeline("hf:acme/bundle").name == "bundle"
  assert model_folder("hf:acme/bundle@main") == snapshot
  snapshot = hub_folders.cache(places, "acme/network", ours / "target")
  assert model_folder("hf:acme/network") == snapshot
  for path in (ours, ours / "target", tmp_path / "nowhere", tmp_path, ours / "bundle.json"):
    assert model_folder(path) == path
  assert model_folder("scenes") == shipped("scenes") and not done
  # A bundle may name the hub.
  hub_folders.cache(places, "acme/neo", released)
  write_bundle(tmp_path / "mixed", target="hf:acme/neo", drafts={"far": "hf:acme/neo"}, parts={})
  pipe = load_pipeline(tmp_path / "mixed")
  assert pipe.name == "mixed" and pipe.drafts.family_name("far") == "gpt_neo" and len(done) == 1
  # The hub is asked once for a draft.
  monkeypatch.setattr(hub, "pin", lambda reference: pytest.fail("asked again"))
  assert pipe.default_method and pipe.drafts.loaded("far").family_name == "gpt_neo"


def test_files_and_parts_of_a_pipeline(places, tmp_path):
  official(tmp_path / "c2i_B_256.safetensors", CLASSES, llamagen.FAMILY)
  official(tmp_path / "vq.safetensors", VQ, llamagen_vq.FAMILY)
  beside = {"num_heads": 2, "num_tokens": 4}
  (tmp_path / "c2i_B_256.json").write_text(json.dumps(beside))
  pipe = load_pipeline(tmp_path / "c2i_B_256.safetensors", tokenizer=tmp_path / "vq.safetensors")
  assert pipe.name == "c2i_B_256" and pipe.target.config.num_tokens == 4 and pipe.family.tokenizer.config == VQ
  folder = tmp_path / "several"
  folder.mkdir()
  for name in ("c2i_B_256.safetensors", "c2i_B_256.json", "vq.safetensors"):
    shutil.copy(tmp_path / name, folder)
  hub_folders.cache(places, "acme/llamagen", folder)
  far = load_pipeline("hf:acme/llamagen/c2i_B_256.safetensors", tokenizer="hf:acme/llamagen/vq.safetensors")
  assert far.name == "c2i_B_256"
  assert checkpoints.read_config(far.target.folder)["meta"]["source"] == "hf:acme/llamagen/c2i_B_256.safetensors"
  np.testing.assert_array_equal(far.target.params["norm"]["weight"], pipe.target.params["norm"]["weight"])
  assert "one file of hf:acme/llamagen: hf:acme/llamagen/c2i_B_256.safetensors, hf" in fails("hf:acme/llamagen")
  assert "No file no.pt in acme/llamagen" in fails("hf:acme/llamagen/no.pt")
  (tmp_path / "c2i_B_256.json").write_text('{"heads": 2}')
  assert "c2i_B_256.json, we instead got heads" in fails(tmp_path / "c2i_B_256.safetensors")


def test_chameleon_brings_its_image_tokenizer(places, tmp_path):
  download = tiny_chameleon.save_anole(tmp_path / "download", layers=1)
  far = tiny_chameleon.save_lumina(tmp_path / "hub", layers=1)
  hub_folders.cache(places, "acme/anole", download)
  pipes = [load_pipeline(path) for path in (download, "hf:acme/anole")]
  for pipe in pipes:
    assert pipe.target.config.layout == "anole" and pipe.family.tokenizer.config == tiny_chameleon.VQ
  # A folder of the hub may have the tokenizer among the tensors of its network.
  tensors = load_file(far / "model.safetensors")
  vq = tiny_chameleon.random_tensors(chameleon_vq.FAMILY, tiny_chameleon.VQ, 3)
  save_file(tensors | {f"model.vqmodel.{name}": array for name, array in vq.items()}, far / "model.safetensors")
  shutil.copy(download / "tokenizer" / "text_tokenizer.json", far / "tokenizer.json")
  pipe = load_pipeline(far)
  assert pipe.target.config.layout == "lumina" and pipe.family.tokenizer.config == tiny_chameleon.VQ


@pytest.mark.slow
def test_janus_and_emu3_bring_their_image_tokenizers(places, tmp_path):
  """By name and as a folder; Emu3's tokenizer lies beside its network, under its released name."""
  hub_folders.cache(places, "acme/janus", janus_golden.FOLDER / "target")
  janus = load_pipeline("hf:acme/janus")
  assert isinstance(janus.target.config, JanusConfig) and janus.family.tokenizer.config.codebook_size == 256
  emu3 = load_pipeline(emu3_golden.write_download(tmp_path / "hub"))
  assert isinstance(emu3.target.config, Emu3Config) and emu3.family.tokenizer.config == emu3_golden.VQ


def test_the_side_of_images_is_not_guessed(tmp_path, monkeypatch):
  """It is not in the tensors; a wrong one draws broken images."""
  given = []
  monkeypatch.setattr(engine, "convert_file", lambda source, to, family, fields, **more: given.append(fields))
  convert = lambda name, fields={}: llamagen.convert_published(
    tmp_path / name, tmp_path / "to", llamagen.FAMILY, fields, on_write=engine.silent
  )
  for name in ("c2i_L_384.pt", "t2i_XL_stage2_512.pt", "c2i_3B_384.pt"):
    convert(name)
  convert("mine.pt", {"num_tokens": 36})
  assert given == [{"image_size": 384}, {"image_size": 512}, {"image_size": 384}, {"num_tokens": 36}]
  with pytest.raises(ValueError, match="num_tokens in .*mine.json"):
    convert("mine.pt")


def test_each_file_has_one_converter(tmp_path):
  """Tables of autoencoders have names in common; tensors of only one of them are all there."""
  vae = KLVAEConfig(
    base_channels=32, multipliers=(1, 1), num_res_blocks=1, attention_levels=(), z_channels=4, latent_channels=4
  )
  file = official(tmp_path / "kl.safetensors", vae, mar_vae.FAMILY)
  assert list(conversion.auto.for_file(file)) == ["chameleon-vq", "mar-vae", "var-vae"]
  assert checkpoints.read_config(model_folder(file))["family"] == "kl_vae"
  assert list(conversion.auto.for_file(official(tmp_path / "vq.safetensors", VQ, llamagen_vq.FAMILY))) == ["llamagen-vq"]
  save_file({"a": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
  assert "converter reads (llamagen, " in fails(tmp_path / "other.safetensors")
  (tmp_path / "broken.pt").write_bytes(b"not a file of weights")
  assert "broken.pt" in fails(tmp_path / "broken.pt")
  assert all(converter.released for name, converter in CONVERTERS.items() if name != "auto")


def test_errors_of_one_line(places, released, tmp_path, monkeypatch):
  assert "HF_HUB_OFFLINE" in fails("hf:acme/none", LinkError)
  hub_folders.cache(places, "acme/neo", released)
  assert "acme/neo@v2" in fails("hf:acme/neo@v2", LinkError)
  for form in ("hf:acme", "hf:acme/", "hf:", "hf:acme/neo@", "hf:acme/neo/../x.pt", "hf:a b/c"):
    assert "hf:ORG/NAME" in fails(form)
  for name, config in {"bert": {"model_type": "bert"}, "unet": {"_class_name": "UNet2DModel"}}.items():
    folder = shutil.copytree(released, tmp_path / name)
    (folder / "config.json").write_text(json.dumps(config))
    assert next(iter(config.values())) in fails(folder)
    hub_folders.cache(places, f"acme/{name}", folder)
    assert f"hf:acme/{name}@{COMMIT}" in fails(f"hf:acme/{name}")
  # Configs of other values, and a folder without its weights, whose config is enough for a plan.
  odd = shutil.copytree(janus_golden.FOLDER / "target", tmp_path / "odd")
  whole = json.loads((odd / "config.json").read_text())
  for fields, words in (
    ({"language_config": None}, "another type of value"),
    ({"gen_head_config": {}}, "'params' is missing"),
  ):
    (odd / "config.json").write_text(json.dumps(whole | fields))
    assert words in fails(odd) and "odd/config.json" in fails(odd)
  narrow = whole | {"language_config": whole["language_config"] | {"hidden_size": 0}}
  (odd / "config.json").write_text(json.dumps(narrow))
  with pytest.raises(CheckpointError, match="config of .*odd: Must have dim"):
    find_model(str(odd))
  (odd / "config.json").write_text(json.dumps(whole))
  for file in odd.glob("pytorch_model*"):
    file.unlink()
  assert "No weights in" in fails(odd) and find_model(str(odd)).config.dim == 64
  # A download that did not end has broken links.
  snapshot = hub_folders.cache(places, "acme/half", released)
  (snapshot / "model.safetensors").resolve().unlink()
  assert "weights" in fails("hf:acme/half").lower()
  monkeypatch.setitem(sys.modules, "huggingface_hub", None)
  assert "pip install 'jaxspec-decoding[hub]'" in fails_to_import("hf:acme/neo")


def fails_to_import(path):
  with pytest.raises(ImportError) as caught:
    model_folder(path)
  return str(caught.value)


def test_a_conversion_is_whole_or_not_there(released, tmp_path, monkeypatch):
  def killed(config, *args, **kwargs):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr("conversion.hugging_face.read_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
      model_folder(released)
  place = next((tmp_path / "xdg" / "jaxspec" / "models").iterdir())
  assert [path.name for path in place.iterdir()] == ["lock"]
  # What a killed process could not remove, and a folder of which the user deleted a part.
  (place / ".neo.x" / "neo").mkdir(parents=True)
  whole = model_folder(released)
  assert sorted(path.name for path in whole.parent.iterdir()) == ["lock", "neo"]
  (whole / "params.safetensors").unlink()
  assert (model_folder(released) / "params.safetensors").is_file()


def test_one_converts_and_the_others_wait(released, monkeypatch):
  done, found = conversions(monkeypatch), []
  threads = [threading.Thread(target=lambda: found.append(model_folder(released))) for _ in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(set(found)) == 1 and len(found) == 6 and len(done) == 1


def test_the_command(places, released, tmp_path):
  from tests.conversion.commands import fails as command_fails
  from tests.conversion.commands import works

  hub_folders.cache(places, "acme/neo", released)
  assert "gpt_neo (converter gpt-neo)" in works(conversion.auto.main, "hf:acme/neo", tmp_path / "out")
  assert checkpoints.read_config(tmp_path / "out")["meta"]["revision"] == COMMIT
  works(conversion.auto.main, released, tmp_path / "out")
  assert "revision" not in checkpoints.read_config(tmp_path / "out")["meta"]
  another = fake_bundle.save_random(tmp_path / "another", fake_bundle.CLASS_DRAFT, 0)
  before = checkpoints.digest(another)
  assert "another holds a llamagen" in command_fails(conversion.auto.main, released, another)
  assert checkpoints.digest(another) == before
  assert "No folder or file" in command_fails(conversion.auto.main, tmp_path / "none", tmp_path / "no")
  assert "needs no conversion" not in command_fails(conversion.auto.main, tmp_path / "out", tmp_path / "no")
  assert not (tmp_path / "no").exists() and not list(tmp_path.glob(".out*"))


_SCRIPT = """
import sys
from jaxspec.errors import CheckpointError, LinkError
from jaxspec.io.model_folders import model_folder
for name in sys.argv[1:]:
  try:
    print(model_folder(name))
  except (CheckpointError, LinkError) as error:
    print(type(error).__name__, error)
"""


def _in_another_process(places, *names, **variables):
  environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": str(places), "HF_HUB_OFFLINE": "0", **variables}
  call = subprocess.run(
    [sys.executable, "-c", _SCRIPT, *names], env=environment, capture_output=True, text=True, timeout=120
  )
  assert call.returncode == 0, call.stderr
  return call.stdout.splitlines()


@pytest.mark.slow
def test_downloads_from_a_server(places, released, tmp_path):
  folder = shutil.copytree(released, tmp_path / "folder")
  for name in ("pytorch_model.bin", "flax_model.msgpack"):  # other forms of the weights are not fetched
    (folder / name).write_bytes(b"0")
  with hub_folders.server({"acme/neo": folder, "acme/closed": folder}, {"acme/closed"}) as (address, seen):
    online = dict(HF_ENDPOINT=address, HF_HUB_DISABLE_XET="1")
    names = ("hf:acme/neo", "hf:acme/none", "hf:acme/closed", "hf:acme/neo@v9")
    first, none, closed, revision = _in_another_process(places, *names, **online)
    assert checkpoints.read_config(first)["meta"]["revision"] == COMMIT
    assert not any("pytorch_model" in request or "msgpack" in request for request in seen)
    assert none.startswith("CheckpointError No repository acme/none")
    assert closed.startswith("CheckpointError hf:acme/closed") and "is gated: accept its terms" in closed
    assert revision.startswith("CheckpointError No revision v9")
    seen.clear()
    assert _in_another_process(places, "hf:acme/neo", f"hf:acme/neo@{COMMIT}", **online) == [first, first]
    assert not any("resolve" in request for request in seen)
  # Without a network: what is there still loads.
  again, other = _in_another_process(places, "hf:acme/neo", "hf:acme/other", **online)
  assert again == first and other.startswith("LinkError Cannot reach the hub for hf:acme/other")
  again, other = _in_another_process(places, "hf:acme/neo", "hf:acme/other", HF_HUB_OFFLINE="1")
  assert again == first and other.startswith("LinkError Must have hf:acme/other in")
