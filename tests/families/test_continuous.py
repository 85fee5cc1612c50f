"""Images of continuous tokens: class names, orders of rows, `Family.finish`, pixels, and errors."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxspec.core.state import Counters, DecodeResult, SpecParams
from jaxspec.families.continuous_images import CausalFamily, MaskedFamily, make_family
from jaxspec.families.family import FamilyParts
from jaxspec.methods.method import SAME_FAMILY
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.models.mar.mar import MARFns
from jaxspec.sampling import ContinuousSampling
from tests.run import tiny

PARTS = {"vae": tiny.checkpoint(tiny.VAE, "vae"), "classes": tiny.NAMES, "latent_scale": 0.5}


@pytest.fixture(scope="module")
def mar():
  return make_family(tiny.checkpoint(tiny.MAR, "target"), FamilyParts("here", PARTS))


@pytest.fixture(scope="module")
def raster():
  return make_family(tiny.checkpoint(tiny.CAUSAL, "target"), FamilyParts("here", PARTS))


def test_the_name_of_a_family_chooses_its_class(mar, raster):
  assert isinstance(mar, MaskedFamily) and isinstance(raster, CausalFamily)
  for family in (mar, raster):
    assert (family.noun, family.space.kind) == ("image", "continuous")
    assert (family.space.vocab_size, family.space.num_tokens, family.space.grid) == (None, 4, (2, 2))
    assert family.sampling_type is ContinuousSampling and family.space.codebook is family.space.embedding is None
    assert family.matmul_precision("float32") == "float32" and family.matmul_precision("bfloat16") == "bfloat16"
  assert isinstance(mar.network(mar.target, "target").fns, MARFns)


def test_classes_by_name_and_by_number(mar):
  encoded = mar.encode(["food-fruit", 0, "animal-bird"])
  assert isinstance(encoded.condition, ClassLabels) and encoded.condition.labels.tolist() == [2, 0, 1]
  assert encoded.captions == ["food-fruit", "animal-mammal", "animal-bird"]
  for numbers in (np.array([2, 0]), jax.numpy.array([2, 0]), iter([2, 0]), (np.int64(2), jax.numpy.int32(0))):
    assert mar.encode(numbers).condition.labels.tolist() == [2, 0]
  with pytest.raises(ValueError, match="class from 0 to 2, we instead got 1.5"):
    mar.encode(np.array([1.5]))
  assert mar.encode("animal-bird").condition.labels.tolist() == mar.encode(1).condition.labels.tolist() == [1]
  nameless = dataclasses.replace(mar, classes=())
  assert nameless.encode([2]).captions == ["class 2"]
  for family, prompts, words in (
    (mar, ["animal-fish"], "a class such as animal-mammal, animal-bird, we instead got 'animal-fish'"),
    (mar, ["rose"], "a class such as animal-mammal, animal-bird, food-fruit"),
    (mar, ["animal-bird", 3], "a class from 0 to 2, we instead got 3"),
    (mar, [True], "a class from 0 to 2"),
    (nameless, ["animal-bird"], "a class from 0 to 2"),
    (mar, [], "at least one class"),
    (mar, None, "a class from 0 to 2, we instead got None"),
    (mar, np.array([[1]]), "a class from 0 to 2"),
  ):
    with pytest.raises(ValueError) as caught:
      family.encode(prompts)
    assert words in str(caught.value)


def result(tokens) -> DecodeResult:
  rows, length = tokens.shape[:2]
  number = np.broadcast_to(np.arange(length, dtype=np.int32)[None], (rows, length))
  none = np.zeros((rows,), np.int32)
  counters = Counters(*[none] * len(Counters.__dataclass_fields__))
  return DecodeResult(tokens, none + length, counters, number > 1, number.astype(np.int8), number, {"tries": number})


def test_masked_rows_have_orders_of_their_own_and_end_in_raster_order(mar):
  keys = jax.random.split(jax.random.key(3), 2)
  condition = jax.jit(mar.prepare)(keys, mar.encode([0, 2]).condition)
  assert isinstance(condition, OrderedLabels) and condition.batch_size == 2
  order = np.asarray(condition.order)
  assert np.sort(order, axis=1).tolist() == [[0, 1, 2, 3]] * 2 and order[0].tolist() != order[1].tolist()
  chosen = OrderedLabels(condition.labels, np.asarray([[3, 1, 0, 2], [0, 1, 2, 3]], np.int32))
  assert mar.prepare(keys, chosen) is chosen
  tokens = np.arange(1, 17, dtype=np.float32).reshape(2, 4, 2)
  finish = jax.jit(lambda found: mar.finish(found, chosen, keys, SpecParams((), ()), ContinuousSampling(5)))
  out = finish(result(tokens))
  np.testing.assert_array_equal(out.tokens[1], tokens[1])
  np.testing.assert_array_equal(np.asarray(out.tokens)[0, [3, 1, 0, 2]], tokens[0])
  for values in (out.commit_round, out.origin, out.metrics["tries"]):
    np.testing.assert_array_equal(values[0], [2, 1, 3, 0])
  np.testing.assert_array_equal(out.accepted_mask[0], [True, False, True, False])
  part = finish(result(tokens[:, :2]))
  np.testing.assert_array_equal(part.tokens[0], [[0, 0], tokens[0, 1], [0, 0], tokens[0, 0]])
  with pytest.raises(ValueError, match="a causal network to refine"):
    mar.finish(result(tokens), chosen, keys, SpecParams((), ()), ContinuousSampling(5, 1, refine=True))


def test_causal_rows_stand_in_raster_order(raster):
  keys, tokens = jax.random.split(jax.random.key(3), 2), np.arange(1, 17, dtype=np.float32).reshape(2, 4, 2)
  condition = raster.encode([0, 2]).condition
  assert raster.prepare(keys, condition) is condition
  out = raster.finish(result(tokens), condition, keys, SpecParams((), ()), ContinuousSampling(5, 1))
  np.testing.assert_array_equal(out.tokens, tokens)
  with pytest.raises(ValueError, match="all 4 tokens of an image to refine them, we instead got 3"):
    raster.finish(result(tokens[:, :3]), condition, keys, SpecParams((), ()), ContinuousSampling(5, 1, refine=True))


@pytest.mark.slow
def test_pixels_of_tokens_with_noise_in_them(mar):
  """Latents are divided by their signal."""
  family = dataclasses.replace(mar, vae=tiny.checkpoint(tiny.VAE, "vae", tiny.weights(tiny.VAE, 0)))
  tokens = np.random.default_rng(0).normal(size=(2, 4, 2)).astype(np.float32)
  images, sampling = family.decode(tokens, sampling=ContinuousSampling(5)), ContinuousSampling(5, 2)
  assert images.shape == (2, 4, 4, 3) and images.dtype == np.uint8 and images.std() > 1
  assert sampling.signal() < 1
  noisy = family.decode(tokens * np.float32(sampling.signal()), sampling=sampling)
  assert np.abs(images.astype(int) - noisy.astype(int)).max() <= 1
  np.testing.assert_array_equal(family.decode(tokens), images)
  half = dataclasses.replace(family, latent_scale=0.25)
  np.testing.assert_array_equal(half.decode(tokens * np.float32(0.5)), images)
  with pytest.raises(ValueError, match="all 4 tokens"):
    family.decode(tokens[:, :2])


def test_the_end_of_chains_follows_other_steps(raster):
  resolve = lambda trained, **given: raster.resolve_sampling(trained, given)
  trained = {"steps": 8, "stop": 4, "refine": True}
  assert resolve(trained) == trained
  assert resolve(trained, steps=16) == {"steps": 16, "stop": 7, "refine": True}
  assert resolve(trained, steps=16, stop=2)["stop"] == 2
  assert resolve(trained, stop=None)["stop"] is None
  assert resolve({"steps": 8}, steps=16) == {"steps": 16}


def test_parts_that_do_not_fit(mar):
  for parts, words in (
    ({"vae": mar.target}, "a kl_vae as autoencoder of target, target holds a mar"),
    ({"vae": tiny.checkpoint(dataclasses.replace(tiny.VAE, latent_channels=3), "vae")}, "latent_channels 3 instead of 2"),
    ({"classes": tiny.NAMES[:2]}, "Must have 3 classes"),
    ({"classes": [1, 2, 3]}, "a list of names as classes"),
    ({"latent_scale": 0}, "a positive number as latent_scale"),
    ({"latent_scale": float("nan")}, "a positive number as latent_scale"),
    ({"latent_scale": "big"}, "a positive number as latent_scale"),
    ({"vae": None}, "a part 'vae'"),
  ):
    with pytest.raises(ValueError) as caught:
      make_family(mar.target, FamilyParts("here", PARTS | parts))
    assert words in str(caught.value)


def test_drafts_that_do_not_fit(mar, raster):
  mar.check_fit(tiny.checkpoint(tiny.MAR, "draft"), SAME_FAMILY)
  with pytest.raises(ValueError, match="family mar as draft, target holds a causal_tokens"):
    mar.check_fit(raster.target, SAME_FAMILY)
  with pytest.raises(ValueError, match="num_tokens 16 instead of 4"):
    mar.check_fit(tiny.checkpoint(dataclasses.replace(tiny.MAR, num_tokens=16), "draft"), SAME_FAMILY)
