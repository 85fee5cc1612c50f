"""Images of discrete tokens: captions, classes and features as conditions, pixels of tokens, and networks that do not
fit."""

import dataclasses

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxspec.families.family import FamilyParts
from jaxspec.families.token_images import CaptionFamily, FeatureFamily, LabelFamily, make_family
from jaxspec.methods.method import SAME_FAMILY
from jaxspec.models.conditions import Caption, ClassLabels
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import InterHeadConfig
from jaxspec.models.tokenizers.tokenizer_fns import to_uint8
from jaxspec.sampling import SamplingConfig
from tests.run import tiny

NAN = float("nan")


TABLES = {"tok_embeddings": {"weight": np.zeros((8, 16))}, "output": {"weight": np.ones((8, 16))}}


@pytest.fixture(scope="module")
def tokenizer():
  return tiny.checkpoint(tiny.VQ, "vq", tiny.weights(tiny.VQ, 0))


@pytest.fixture(scope="module")
def caption_family(tokenizer, tmp_path_factory):
  file = tmp_path_factory.mktemp("family") / "vocabulary.json"
  tiny.save_vocabulary(file)
  text = tiny.checkpoint(tiny.TEXT, "text", tiny.weights(tiny.TEXT, 1))
  parts = {"tokenizer": tokenizer, "text": text, "vocabulary": str(file)}
  return make_family(tiny.checkpoint(tiny.CAPTIONS, "target", TABLES), FamilyParts("here", parts))


@pytest.fixture(scope="module")
def feature_family(tokenizer):
  return make_family(tiny.checkpoint(tiny.CAPTIONS, "target", TABLES), FamilyParts("here", {"tokenizer": tokenizer}))


@pytest.fixture(scope="module")
def label_family(tokenizer):
  return make_family(tiny.checkpoint(tiny.CLASSES, "target", TABLES), FamilyParts("here", {"tokenizer": tokenizer}))


SMALL = tiny.checkpoint(tiny.SMALL_CAPTIONS, "small")
FEATURE = tiny.checkpoint(EagleConfig.of(tiny.CAPTIONS), "feature")
EDGE = tiny.checkpoint(InterHeadConfig(tiny.SMALL_CAPTIONS), "edge")


def test_the_config_and_the_parts_choose_the_family(caption_family, feature_family, label_family):
  families = (caption_family, feature_family, label_family)
  assert [type(family) for family in families] == [CaptionFamily, FeatureFamily, LabelFamily]
  for family in (caption_family, feature_family, label_family):
    assert (family.noun, family.space.kind) == ("image", "discrete")
    assert (family.space.vocab_size, family.space.num_tokens, family.space.grid) == (8, 4, (2, 2))
    assert family.end_token is None and family.default_length(SamplingConfig()) == 4
    assert family.space.embedding().shape == (8, 16) and family.space.codebook().shape == (8, 4)
  assert feature_family.published_sampling() == {"cfg_scale": 7.5, "top_k": 1000}
  assert label_family.published_sampling() == {"cfg_scale": 4.0, "top_k": 2000}


def test_captions(caption_family):
  encoded = caption_family.encode(["a red apple", "a cat"])
  assert isinstance(encoded.condition, Caption) and encoded.condition.batch_size == 2
  assert encoded.condition.features.shape == (2, 6, 8) and encoded.captions == ["a red apple", "a cat"]
  assert not encoded.warnings
  assert caption_family.encode("a cat").condition.batch_size == 1
  long = caption_family.encode(["cat", "zq " * 9])
  assert len(long.warnings) == 1 and "Prompt 2 is too long: its last" in long.warnings[0]
  assert caption_family.encode(["a cat"], ["mine"]).captions == ["mine"]


@pytest.mark.parametrize(
  ("prompts", "words"),
  [
    ([], "at least one prompt"), ([""], "prompt 1"), (["red apple", "  "], "prompt 2"), (["?!"], "at least one word"),
    (["apple", "red \udcff"], "prompt 2"), ([3], "prompt 1 is 3"), (5, "we instead got 5"),
  ],
)  # fmt: skip
def test_prompts_without_words(caption_family, prompts, words):
  with pytest.raises(ValueError, match="ust have") as caught:
    caption_family.encode(prompts)
  assert words in str(caught.value)


def test_classes(label_family):
  encoded = label_family.encode([4, 0])
  assert isinstance(encoded.condition, ClassLabels) and encoded.condition.labels.tolist() == [4, 0]
  assert encoded.captions == ["class 4", "class 0"]
  assert label_family.encode(np.int64(3)).condition.labels.tolist() == [3]
  for wrong in ([5], [-1], ["cat"], "cat", [True], [1.0]):
    with pytest.raises(ValueError, match="a class from 0 to 4"):
      label_family.encode(wrong)
  with pytest.raises(ValueError, match="at least one class"):
    label_family.encode([])
  with pytest.raises(ValueError, match="as many captions as classes, we instead got 2 for 1"):
    label_family.encode([1], ["one", "two"])


GOOD = {"features": np.zeros((2, 6, 8), np.float32), "mask": np.ones((2, 6), bool)}


def test_features_as_files_and_as_arrays(feature_family, tmp_path):
  arrays = {"features": np.arange(96, dtype=np.float32).reshape(2, 6, 8), "mask": np.arange(6)[None] < [[2], [6]]}
  np.savez(tmp_path / "f.npz", **arrays)
  save_file({"features": arrays["features"], "mask": arrays["mask"].astype(np.uint8)}, tmp_path / "f.safetensors")
  found = [feature_family.encode(source) for source in (tmp_path / "f.npz", str(tmp_path / "f.safetensors"), arrays)]
  for encoded in found:
    jax.tree.map(np.testing.assert_array_equal, encoded.condition, found[0].condition)
    np.testing.assert_array_equal(encoded.condition.mask[0], [False] * 4 + [True] * 2)
    np.testing.assert_array_equal(encoded.condition.features[0, 4:], arrays["features"][0, :2])
  assert [encoded.captions[1] for encoded in found] == ["f.npz row 1", "f.safetensors row 1", "features row 1"]


@pytest.mark.parametrize(
  ("arrays", "words"),
  [
    ({"features": GOOD["features"]}, "mask is missing"),
    (GOOD | {"features": np.zeros((2, 6, 9), np.float32)}, "[B, 6, 8]"),
    (GOOD | {"features": np.zeros((6, 8), np.float32)}, "[B, 6, 8]"),
    (GOOD | {"features": np.full((2, 6, 8), NAN, np.float32)}, "finite"),
    (GOOD | {"mask": np.ones((2, 5), bool)}, "a mask [2, 6]"),
    (GOOD | {"mask": np.arange(6)[None].repeat(2, 0) > 2}, "right-padded"),
  ],
)
def test_features_of_other_shapes(feature_family, arrays, words):
  with pytest.raises(ValueError) as caught:
    feature_family.encode(arrays)
  assert words in str(caught.value)


def test_damaged_features(feature_family, tmp_path):
  for name, words in (("f.npz", "Corrupt"), ("f.safetensors", "Corrupt"), ("f.txt", ".npz or .safetensors")):
    (tmp_path / name).write_text("hello")
    with pytest.raises(ValueError) as caught:
      feature_family.encode(tmp_path / name)
    assert words in str(caught.value)
  with pytest.raises(ValueError, match="No features file"):
    feature_family.encode(tmp_path / "g.npz")
  with pytest.raises(ValueError, match="a file of text features"):
    feature_family.encode(["a red heart"])


def test_pixels(label_family):
  tokens = np.asarray([[0, 1, 2, 3], [7, 7, 7, 7]], np.int32)
  images = label_family.decode(tokens)
  assert images.shape == (2, 8, 8, 3) and images.dtype == np.uint8
  tokenizer = label_family.tokenizer
  draw = jax.jit(lambda params, tokens: to_uint8(tokenizer.fns.decode(params, tokens)))
  np.testing.assert_array_equal(images, draw(tokenizer.params, tokens))
  for wrong in (dict(tokens=tokens[:, :3]), dict(tokens=tokens, lengths=np.asarray([4, 2]))):
    with pytest.raises(ValueError, match="all 4 tokens of an image, we instead got [23]"):
      label_family.decode(**wrong)


def refused(family, draft, draft_family=SAME_FAMILY) -> str:
  with pytest.raises(ValueError) as caught:
    family.check_fit(draft, draft_family)
  return str(caught.value)


def changed(checkpoint, **fields):
  return dataclasses.replace(checkpoint, config=dataclasses.replace(checkpoint.config, **fields))


def test_drafts_that_fit(caption_family):
  for draft, draft_family in ((SMALL, SAME_FAMILY), (SMALL, "llamagen"), (FEATURE, "eagle"), (EDGE, "inter_head")):
    caption_family.check_fit(draft, draft_family)
  caption_family.check_fit(changed(FEATURE, norm_eps=1e-3), "eagle")  # its own


def test_drafts_that_do_not_fit(caption_family, label_family):
  assert "family llamagen as draft, feature holds a eagle" in refused(caption_family, FEATURE)
  assert "family eagle as draft, small holds a llamagen" in refused(caption_family, SMALL, "eagle")
  assert "model_type t2i instead of c2i" in refused(label_family, SMALL)
  assert "num_tokens 9 instead of 4" in refused(caption_family, changed(SMALL, num_tokens=9))
  assert "caption_dim 7 instead of 8" in refused(caption_family, changed(SMALL, caption_dim=7))
  assert "dim 8 instead of 16" in refused(caption_family, changed(FEATURE, dim=8), "eagle")
  wide = dataclasses.replace(tiny.SMALL_CAPTIONS, vocab_size=16)
  assert "vocab_size 16 instead of 8" in refused(caption_family, changed(EDGE, trunk=wide), "inter_head")


def test_words_that_training_did_not_have(caption_family):
  family = dataclasses.replace(caption_family, things=("cat", "apple"), words=frozenset({"red", "cat", "apple"}))
  assert list(family.encode(["A red cat!", "an apple"]).warnings) == []
  assert list(family.encode(["a blue cat on a blue background", "cat", "Sleeping cat"]).warnings) == [
    "Prompt 1 has words that the networks have never seen: blue, on, background",
    "Prompt 3 has words that the networks have never seen: sleeping; they know 2 things: cat, apple",
  ]
  assert list(dataclasses.replace(family, things=()).encode("blue").warnings) == [
    "Prompt 1 has words that the networks have never seen: blue"
  ]
  for wrong in ("cat", {"cat": 1}, [1]):
    parts = {"tokenizer": family.tokenizer, "text": family.text, "things": wrong, "vocabulary": "none"}
    with pytest.raises(ValueError, match="Must have a list of words as part 'things' of here"):
      make_family(family.target, FamilyParts("here", parts))


def test_parts_that_do_not_fit(caption_family):
  with pytest.raises(ValueError, match="Must have an image tokenizer, small holds a llamagen"):
    dataclasses.replace(caption_family, tokenizer=SMALL)
  with pytest.raises(ValueError, match="target draws from 16 tokens but vq has only 8 codes"):
    dataclasses.replace(caption_family, target=changed(caption_family.target, vocab_size=16))
  with pytest.raises(ValueError, match="gives 6 x 8 features, the target takes 9 x 8"):
    dataclasses.replace(caption_family, target=changed(caption_family.target, prefix_len=9))
  with pytest.raises(ValueError, match="vocabulary is larger"):
    dataclasses.replace(caption_family, text=changed(caption_family.text, vocab_size=9))
  with pytest.raises(ValueError, match="Must have a text_encoder for captions, small holds a llamagen"):
    dataclasses.replace(caption_family, text=SMALL)
  with pytest.raises(ValueError, match="a part 'tokenizer' for here, we instead got none"):
    make_family(caption_family.target, FamilyParts("here", {}))
