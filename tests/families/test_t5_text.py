"""Images from texts with a T5 encoder: conditions, the encoder's memory, and folders that do not fit."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.families import t5_text
from jaxspec.families.family import FamilyParts
from jaxspec.families.text_features import write_features
from jaxspec.families.token_images import FeatureFamily, T5Family, make_family
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.io.text.t5_tokenizer import encode, load_t5_tokenizer
from jaxspec.models.conditions import Caption, left_pad
from jaxspec.models.text_encoders.t5 import T5Config
from jaxspec.run.loading import load_pipeline
from tests import t5_folders
from tests.run import tiny

TARGET = tiny.CAPTIONS  # 6 positions, features of 8 channels
PROMPTS = ["Of a", "a Bowl of ramen on a table", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return t5_folders.converted(tmp_path_factory.mktemp("t5") / "text")


@pytest.fixture(scope="module")
def tokenizer():
  return tiny.checkpoint(tiny.VQ, "vq", tiny.weights(tiny.VQ, 0))


@pytest.fixture
def family(folder, tokenizer):
  return make_family(tiny.checkpoint(TARGET, "target"), FamilyParts("here", {"tokenizer": tokenizer, "text": str(folder)}))


def _is_loaded(family):
  return family.encoder._loaded is not None


def test_prompts(family, folder):
  """Cleaned, truncated, encoded with padding on the right, then padded on the left."""
  assert isinstance(family, T5Family) and not _is_loaded(family)
  encoded = family.encode(PROMPTS)
  whole = checkpoints.load(folder)
  ids, mask, dropped = encode(load_t5_tokenizer(folder), ["of a", "a bowl of ramen on a table", ""], 6)
  assert mask.sum(axis=1).tolist() == [3, 6, 1] and dropped[1] > 0
  wanted = left_pad(jax.jit(whole.fns.apply)(whole.params, ids, mask), jnp.asarray(mask))
  assert isinstance(encoded.condition, Caption) and encoded.captions == PROMPTS
  np.testing.assert_array_equal(encoded.condition.mask, np.flip(mask, axis=1))
  np.testing.assert_allclose(encoded.condition.features, wanted.features, atol=1e-5)
  assert not encoded.condition.features[~encoded.condition.mask].any()
  assert encoded.warnings == [
    "Nothing of prompt 3 is left after cleaning",
    f"Prompt 2 is too long: its last {dropped[1]} of {5 + dropped[1]} tokens were cut off",
  ]
  assert family.encode("a fox", ["mine"]).captions == ["mine"]


def test_batches_do_not_matter(family, monkeypatch):
  together = family.encode(PROMPTS).condition
  monkeypatch.setattr(t5_text, "_ROWS", 2)
  apart = family.encode(PROMPTS).condition
  np.testing.assert_array_equal(apart.mask, together.mask)
  np.testing.assert_allclose(apart.features, together.features, atol=1e-5)


def test_weights_are_there_while_they_are_used(family, folder, tokenizer):
  assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(family.text.params))
  first = family.encode(["a fox"]).condition
  assert _is_loaded(family)
  family.release()
  assert not _is_loaded(family)
  jax.tree.map(np.testing.assert_array_equal, family.encode(["a fox"]).condition, first)
  # A loaded network is unchanged.
  parts = FamilyParts("here", {"tokenizer": tokenizer, "text": checkpoints.load(folder)})
  given = make_family(family.target, parts)
  given.release()
  jax.tree.map(np.testing.assert_array_equal, given.encode(["a fox"]).condition, first)


def test_features_are_kept_in_a_file(family, tokenizer, tmp_path):
  encoded = family.encode(PROMPTS)
  write_features(tmp_path / "t5.npz", encoded.condition, encoded.captions)
  again = make_family(family.target, FamilyParts("here", {"tokenizer": tokenizer})).encode(tmp_path / "t5.npz")
  jax.tree.map(np.testing.assert_array_equal, again.condition, encoded.condition)
  assert again.captions == PROMPTS and not again.warnings
  with np.load(tmp_path / "t5.npz") as arrays:
    wrong = dict(arrays) | {"captions": np.asarray(["one"])}
  with pytest.raises(ValueError, match="as many captions as features, we instead got 1 for 3"):
    make_family(family.target, FamilyParts("here", {"tokenizer": tokenizer})).encode(wrong)


def test_pipelines(folder, tmp_path):
  """By folder; the encoder has the dtype of the target."""
  target, vq = tiny.save(tmp_path / "target", TARGET, 0), tiny.save(tmp_path / "vq", tiny.VQ, 1)
  pipe = load_pipeline(target, tokenizer=vq, text=folder, dtype="bfloat16")
  assert isinstance(pipe.family, T5Family) and not _is_loaded(pipe.family)
  assert {leaf.dtype for leaf in jax.tree.leaves(pipe.family.text.params)} == {jnp.dtype("bfloat16")}
  encoded = pipe.encode(["a fox"])
  assert encoded.condition.features.dtype == np.float32 and encoded.condition.features.shape == (1, 6, 8)
  assert {leaf.dtype for leaf in jax.tree.leaves(pipe.family.encoder._loaded)} == {jnp.dtype("bfloat16")}
  bare = load_pipeline(target, tokenizer=vq)
  assert isinstance(bare.family, FeatureFamily)
  with pytest.raises(ValueError, match="prompts need a T5 encoder"):
    bare.encode(["a fox"])


def test_a_folder_of_the_hub_is_converted(family, tokenizer, tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  hub = t5_folders.hub(tmp_path / "hub")
  made = make_family(family.target, FamilyParts("here", {"tokenizer": tokenizer, "text": str(hub)}))
  assert type(made) is type(family)
  assert list((tmp_path / "cache").rglob("params.safetensors"))


def test_folders_that_do_not_fit(family, folder, tokenizer, tmp_path):
  def refused(text):
    with pytest.raises(ValueError) as caught:
      make_family(family.target, FamilyParts("here", {"tokenizer": tokenizer, "text": str(text)}))
    return str(caught.value)

  wide = t5_folders.converted(tmp_path / "wide", T5Config(vocab_size=500, dim=12, num_layers=1, num_heads=1, ffn_hidden=4))
  assert refused(wide) == f"The T5 encoder {wide} does not fit the target: its features are 12 wide, target takes 8"
  silent = shutil.copytree(folder, tmp_path / "silent")
  (silent / TOKENIZER_FILE).unlink()
  assert f"tokenizer.json or spiece.model of the T5 in {silent}" in refused(silent)
  small = T5Config(vocab_size=499, dim=8, num_layers=1, num_heads=1, ffn_hidden=4)
  few = t5_folders.converted(tmp_path / "few", small, tokenizers=())
  shutil.copyfile(folder / TOKENIZER_FILE, few / TOKENIZER_FILE)
  assert f"a tokenizer of at most the 499 tokens of {few}, we instead got 500" in refused(few)
  assert "No checkpoint folder" in refused(tmp_path / "nowhere")
  other = tiny.save(tmp_path / "other", tiny.VQ, 0)
  assert f"Must have a text_encoder or a t5 for captions, {other} holds a patch_vq" in refused(other)
