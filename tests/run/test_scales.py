"""Networks of scales as a family: on stored tiny networks, through the pipeline and the command line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from conversion import engine, var, var_vae
from jaxspec import methods
from jaxspec.io.bundle import write_bundle
from jaxspec.models.conditions import ClassLabels
from jaxspec.sampling import ScaleSampling
from jaxspec.testing import assert_same_distribution
from tests.core.next_scale import ScaleParams, generate_scales
from tests.methods import networks
from tests.models import var_golden as golden
from tests.run import tiny
from tests.scale_toy import places


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  return write_tiny(tmp_path_factory.mktemp("maps"))


def write_tiny(folder):
  """A bundle of the stored networks."""
  for stem, name in (("var_tiny", "target"), ("var_small_tiny", "drafts/small"), ("var_tiny_vae", "tokenizer")):
    family = var_vae.FAMILY if name == "tokenizer" else var.FAMILY
    engine.convert_file(golden.GOLDEN / f"{stem}.safetensors", folder / name, family, {"sides": golden.SIDES})
  write_bundle(folder, target="target", drafts={"small": "drafts/small"}, parts={"tokenizer": "tokenizer"})
  return folder


@pytest.mark.slow
def test_parts_that_do_not_fit(bundle, tmp_path):
  pipe = jaxspec.load_pipeline(bundle)
  assert {"ar", "scale-speculative", "scale-ciar"} <= set(pipe.methods()) and "sjd" not in pipe.methods()
  assert pipe.default_method == "scale-speculative"
  assert jaxspec.load_pipeline(bundle / "target", tokenizer=bundle / "tokenizer").sampling() == ScaleSampling(2.5, 900, 0.96)
  encoded = pipe.encode([1, 0])
  assert encoded.captions == ["class 1", "class 0"] and encoded.condition.labels.tolist() == [1, 0]
  with pytest.raises(ValueError, match="a class from 0 to 9, we instead got 10"):
    pipe.encode(10)
  with pytest.raises(ValueError, match="gamma below the 6 tokens of a row, we instead got 6"):
    pipe.decoder(methods.ScaleSpeculative(gamma=6))
  with pytest.raises(ValueError, match="a method that draws scales, we instead got speculative"):
    pipe.decoder("speculative")
  with pytest.raises(ValueError, match="sampling settings in cfg_scale, top_k, top_p, temperature, we instead got steps"):
    pipe.sampling(steps=3)
  with pytest.raises(ValueError, match="no audit with method ar, whose scales"):
    _ = pipe.decoder("ar", audit=True).parts
  engine.convert_file(
    golden.GOLDEN / "var_tiny_vae.safetensors", tmp_path / "vae", var_vae.FAMILY, {"sides": [1, 2, 3, 4, 6]}
  )
  with pytest.raises(ValueError, match=r"vae does not fit the target: sides \(1, 2, 3, 4, 6\) instead of"):
    jaxspec.load_pipeline(bundle / "target", tokenizer=tmp_path / "vae")
  with pytest.raises(ValueError, match="a var_vae as tokenizer"):
    jaxspec.load_pipeline(bundle / "target", tokenizer=bundle / "target")
  with pytest.raises(ValueError, match="a part 'tokenizer'"):
    jaxspec.load_pipeline(bundle / "target")


@pytest.mark.slow
def test_plain_decoding_is_the_sampler(tmp_path):
  """The same scales from the same keys, guided and truncated; the first scales alone give a coarse image."""
  pipe, keys = jaxspec.load_pipeline(tiny.scales(tmp_path)), jax.random.split(jax.random.key(5), 3)
  sampling = ScaleSampling(2.5, 4, 0.96)
  out = pipe([0, 1, 2], key=keys, method="ar", sampling=sampling)
  target = pipe.target
  maps = generate_scales(
    target.fns.model, target.fns.tokenizer, ScaleParams(*target.params), keys, ClassLabels(jnp.arange(3)),
    sampling.side(target).sampling, top_k=4,
  )  # fmt: skip
  np.testing.assert_array_equal(places(out.tokens, target.fns.sizes), maps.tokens)
  fns, params = target.fns.tokenizer, target.params.tokenizer
  whole = np.clip(127.5 * np.asarray(fns.decode_latent(params, maps.report.total)) + 128, 0, 255).astype(np.uint8)
  assert np.abs(whole.astype(int) - out.images).max() <= 1
  few = pipe([0, 1, 2], key=keys, method="ar", sampling=sampling, max_len=2)
  np.testing.assert_array_equal(few.tokens, out.tokens[:, :2])
  coarse = pipe.family.decode(few.tokens)
  assert few.images is None and coarse.shape == out.images.shape and (coarse != out.images).any()
  np.testing.assert_array_equal(pipe.family.decode(out.tokens, lengths=np.full(3, 2)), coarse)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["map", "place"])
def test_distribution_of_a_random_network(rule):
  """Chi-square against teacher forcing: all scales of a tiny network jointly, guided and truncated."""
  sampling, rows = ScaleSampling(3.0, 2, 0.9), 4000
  decoder = networks.decoder(methods.ScaleSpeculative(gamma=1, rule=rule), sampling)
  decode = decoder.decode_fn(max_len=2)
  keys = jax.random.key_data(jax.random.split(jax.random.key(3), (rows // 2, 2)))
  labels = ClassLabels(jnp.zeros(2, jnp.int32))
  out = jax.jit(jax.vmap(lambda key: decode(decoder.parts.params, key, labels)))(keys)
  tokens = np.asarray(out.tokens).reshape(rows, 2, -1)
  assert_same_distribution(places(tokens, (1, 4)), _joint(sampling, networks.maps(1)))


def _joint(sampling, network):
  """Joint probability ``[V] * 5`` of the first two scales, by teacher forcing."""
  fns, side = sampling.bind(network), sampling.side(network)
  size = networks.V
  start = fns.start(side, ClassLabels(jnp.zeros(size, jnp.int32)))
  (first,), state = fns.read(side, start, (), first=0, end=1)
  (second,), _ = fns.read(side, state, [jnp.arange(size)[:, None]], first=1, end=2)
  joint = np.asarray(jax.nn.softmax(first[0, 0].astype(jnp.float32)), np.float64)
  law = np.asarray(jax.nn.softmax(second), np.float64)  # [V, 4, V]
  return np.einsum("a,ab,ac,ad,ae->abcde", joint, *(law[:, place] for place in range(4)))
