"""Networks of denoising steps as a family: on stored tiny networks, through the pipeline."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from conversion import dit, dit_vae, engine
from jaxspec import methods
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.chain import row_noise
from jaxspec.io.bundle import write_bundle
from jaxspec.io.shipped import named
from jaxspec.methods import get_method
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.dit import DiTConfig, to_latents
from jaxspec.models.tokenizers.kl_vae import SD_LATENT_SCALE
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling import DenoisingSampling
from tests.methods import networks
from tests.models import dit_golden as golden
from tests.run import tiny

STEPS = 6
SMALL = DiTConfig(latent_size=8, num_classes=10, dim=8, num_layers=1, num_heads=2)  # fits the stored target


def write_tiny(folder, *, draft=True):
  """A bundle of the stored networks; the draft is the target."""
  engine.convert_file(golden.GOLDEN / "dit.safetensors", folder / "target", dit.FAMILY, golden.HEADS)
  engine.convert_file(golden.GOLDEN / "vae.safetensors", folder / "tokenizer", dit_vae.FAMILY, golden.GROUPS)
  drafts = {"small": "drafts/small"} if draft else {}
  if draft:
    shutil.copytree(folder / "target", folder / "drafts" / "small")
  sampling = {"steps": STEPS, "cfg_scale": 1.5}
  write_bundle(folder, target="target", drafts=drafts, parts={"tokenizer": "tokenizer"}, sampling=sampling)
  return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  return write_tiny(tmp_path_factory.mktemp("states"))


def test_what_a_pipeline_draws_with(bundle):
  pipe = jaxspec.load_pipeline(bundle)
  assert {"ar", "step-speculative", "step-ciar"} <= set(pipe.methods()) and "sjd" not in pipe.methods()
  assert pipe.default_method == "step-speculative"
  assert pipe.method("step-speculative").draft == "small"
  assert pipe.method("step-speculative", draft="frozen").draft == "frozen"
  assert pipe.decoder(methods.StepSpeculative(draft="frozen")).drafting is None
  alone = jaxspec.load_pipeline(bundle / "target", tokenizer=bundle / "tokenizer")
  assert alone.sampling() == DenoisingSampling(250, 1.5) and alone.default_method == "ar"
  assert {"ar", "step-speculative"} <= set(alone.methods()) and "step-ciar" not in alone.methods()
  assert alone.method("step-speculative").draft == "frozen"
  assert alone.decoder("step-speculative").context.space.num_tokens == 250
  # Five steps in a pass of two rows, both halves of guidance, in float32; each with noise and variance.
  assert alone.decoder("step-speculative").decode_bytes(2, None) == 4 * 3 * 2 * 2 * 5 * 256
  assert alone.decoder("step-speculative", steps=20).context.space.num_tokens == 20
  assert pipe.encode([1, 0]).condition.labels.tolist() == [1, 0]


def test_what_does_not_fit(bundle):
  pipe = jaxspec.load_pipeline(bundle)
  for call, words in (
    (lambda: pipe.encode(10), "a class from 0 to 9, we instead got 10"),
    (lambda: pipe.decoder(methods.StepSpeculative(gamma=STEPS)), f"gamma below the {STEPS} tokens of a row"),
    (lambda: pipe.decoder("speculative"), "a method that draws denoising steps, we instead got speculative"),
    (lambda: pipe.sampling(temperature=0.5), "sampling settings in steps, cfg_scale, ddim_eta, we instead got temperature"),
    (lambda: pipe.sampling(steps="ddim5"), r"ddim_eta \(0 is DDIM\) with steps ddim5"),
    (lambda: pipe.sampling(steps=2000), "at most 1000 steps"),
    (lambda: pipe.method("step-speculative", draft="other"), "a draft in small, frozen, we instead got 'other'"),
    (lambda: pipe.decoder("ar", audit=True).parts, "no audit with method ar, whose denoising steps"),
    (lambda: jaxspec.load_pipeline(bundle / "target"), "a part 'tokenizer'"),
    (lambda: jaxspec.load_pipeline(bundle / "target", tokenizer=bundle / "target"), "a kl_vae as tokenizer"),
    (
      lambda: jaxspec.load_pipeline(bundle / "target", tokenizer=bundle / "tokenizer", latent_scale=0),
      "a positive number as latent_scale",
    ),
  ):
    with pytest.raises(ValueError, match=words) as caught:
      call()
    assert "\n" not in str(caught.value)
  for change, words in (
    (dict(latent_size=4), "latent_size 4 instead of 8"),
    (dict(schedule="cosine"), "schedule cosine instead of linear"),
    (dict(num_classes=4), "num_classes 4 instead of 10"),
  ):
    with pytest.raises(ValueError, match=f"The draft other does not fit the target: {words}"):
      pipe.family.check_fit(tiny.checkpoint(dataclasses.replace(SMALL, **change), "other"), methods.SAME_FAMILY)
  parts = dict(tokenizer=bundle / "tokenizer", draft=bundle / "tokenizer")
  with pytest.raises(ValueError, match="of the family dit as draft, .*tokenizer holds a kl_vae"):
    jaxspec.load_pipeline(bundle / "target", **parts).method("step-speculative")
  other = networks.states(2)
  with pytest.raises(ValueError, match="a draft with schedule linear as its target, we instead got cosine"):
    networks.decoder(
      methods.StepSpeculative(), draft=dataclasses.replace(other, fns=other.fns._replace(schedule="cosine"))
    ).parts
  with pytest.raises(ValueError, match="a network of denoising steps .DiTFns. as maps"):
    networks.decoder(methods.StepSpeculative(), target=networks.maps(1)).parts


@pytest.mark.slow
def test_plain_decoding_is_the_sampler(bundle):
  """The same steps from the same keys, guided; images are those of the last step."""
  pipe, keys = jaxspec.load_pipeline(bundle), jax.random.split(jax.random.key(5), 3)
  labels = ClassLabels(jnp.arange(3))
  out = pipe([0, 1, 2], key=keys, method="ar")
  target, network = pipe.target, DenoisingSampling(STEPS).bind(pipe.target)
  noise = row_noise(keys, STEPS, network.state_dim)
  predict_fn = target.fns.guided_predictor(target.params, labels, network.tables.timesteps, jnp.float32(1.5))
  chain = jax.jit(lambda: ddpm.sample(predict_fn, network.tables, noise, jnp.float32(1)))()
  np.testing.assert_allclose(out.tokens[:, -1], chain.token, rtol=2e-3, atol=2e-3)
  latents = to_latents(chain.token, target.config) / SD_LATENT_SCALE
  vae = pipe.family.tokenizer
  wanted = np.clip(127.5 * np.asarray(vae.fns.decode(vae.params, latents)) + 128, 0, 255).astype(np.uint8)
  assert out.images.shape == wanted.shape and np.abs(wanted.astype(int) - out.images).max() <= 1
  few = pipe([0, 1, 2], key=keys, method="ar", max_len=3)
  np.testing.assert_allclose(few.tokens, out.tokens[:, :3], rtol=1e-4, atol=1e-4)
  assert few.images is None and pipe.family.decode(few.tokens).shape == out.images.shape


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["frozen", "small"])
def test_a_random_network_follows_plain_decoding(draft):
  """Two-sample Kolmogorov-Smirnov test of guided chains: steps, products of neighbours, norms."""
  rows, sampling = 4000, DenoisingSampling(10, 2.0)
  target = networks.states(1)
  drafting = None if draft == "frozen" else networks.states(2)
  labels = ClassLabels(jnp.arange(rows) % 3)
  method = methods.StepSpeculative(gamma=3)
  plain = networks.decoder(methods.Plain(), sampling, target=target)(labels, key=jax.random.key(1))
  fast = networks.decoder(method, sampling, target=target, draft=drafting)(labels, key=jax.random.key(2))
  assert 0 < np.sum(fast.counters.accepted) < np.sum(fast.counters.drafted)
  found = []
  for out in (plain, fast):
    states = np.asarray(out.tokens, np.float64)
    steps = np.diff(states, axis=1)
    found.append(np.concatenate([
      states[:, :, ::5].reshape(rows, -1), (states[:, 1:] * states[:, :-1]).mean(2), (steps**2).mean(2),
      (steps[:, 1:] * steps[:, :-1]).mean(2),
    ], axis=1))  # fmt: skip
  pvalues = [stats.ks_2samp(*columns).pvalue for columns in zip(*(values.T for values in found))]
  assert min(pvalues) * len(pvalues) > 0.01


@pytest.mark.slow
def test_a_draft_that_is_given_drafts_by_every_method():
  """Not only by the bundle's default; errors for an unusable draft and for the name of the free draft."""
  bundle, steps = named("digits32-dit"), ("step-speculative", "step-ciar")
  pipe = load_pipeline(bundle, draft=bundle / "target")
  assert [pipe.default_draft(get_method(name)) for name in steps] == ["target"] * 2
  assert [load_pipeline(bundle).default_draft(get_method(name)) for name in steps] == ["small"] * 2
  with pytest.raises(ValueError, match="of the family dit as draft, .*edge holds a var$"):
    load_pipeline(bundle, draft=[bundle / "target", named("digits32-var") / "edge"])
  with pytest.raises(ValueError, match="another name, 'frozen' is that of a draft without a network"):
    load_pipeline(bundle, drafts={"frozen": bundle / "edge"})
