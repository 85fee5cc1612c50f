"""Janus-Pro against stored outputs of the official code: layers, caches, guided runs, images, and a wide network."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.token_space import TokenSpace
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.janus import JanusConfig, code_embeddings, null_prompt
from jaxspec.models.tokenizers.tokenizer_fns import truncate_to_uint8
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig
from jaxspec.testing import Tape
from jaxspec.testing.tape import first_draw, round_draws
from tests.helpers import slow_but
from tests.models import janus_golden as golden

NAMES = ("target", "draft")
# The default suite compiles the guided target alone.
_OF_TARGET = (
  *("greedy_cfg5", "sampled_cfg5", "greedy_cfg5_long", "sampled_cfg2_cool", "sampled_cfg2_hot", "greedy_cfg1"),
  "sampled_cfg1",
)
FAST = [("target", "greedy_cfg5"), ("target", "sampled_cfg5")]
RUNS = slow_but([*(("target", run) for run in _OF_TARGET), ("draft", "greedy_cfg5"), ("draft", "sampled_cfg5")], FAST)


def _close(found, expected, atol):
  np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def _images_agree(found, expected):
  """At most one apart, in at most 0.1 % of the values: another rule of rounding is one apart in half of them."""
  gap = np.abs(np.asarray(found, int) - np.asarray(expected, int))
  assert gap.max() <= 1 and np.mean(gap > 0) <= 1e-3


@pytest.mark.parametrize("name", slow_but(NAMES, ["target"]))
def test_every_layer_agrees(name):
  """Both prompts with both halves, in one batch that is padded on the left."""
  network, stored = golden.load(name)[0], golden.arrays(name)
  halves = [half for p in "01" for half in stored[f"p{p}_halves"]]
  prompt, codes = golden.prompts(*halves), np.repeat([stored[f"p{p}_image_ids"] for p in "01"], 2, axis=0)

  @jax.jit
  def run(params, inputs):
    x, context = network.fns.layers.embed(params, inputs, None, positions=None)
    found = {"inputs_embeds": x}
    for i in range(network.config.num_layers):
      x, _ = network.fns.layers.blocks(params, x, context, None, i, i + 1)
      found[f"layer{i}"] = x
    return found, network.fns.layers.head(params, x)

  layers, output = jax.device_get(run(network.params, Prefixed(prompt, codes)))
  for p in "01":
    rows, first = slice(2 * int(p), 2 * int(p) + 2), prompt.tokens.shape[1] - stored[f"p{p}_halves"].shape[1]
    for layer, values in layers.items():
      _close(values[rows, first:], stored[f"p{p}_{layer}"], 1e-5 if layer == "inputs_embeds" else 5e-5)
    of_image = slice(prompt.tokens.shape[1] - 1, None)
    _close(output.features[rows, of_image], stored[f"p{p}_head_hidden"], 5e-5)
    _close(output.logits[rows, of_image], stored[f"p{p}_logits"], 5e-5)
    null = null_prompt(network.config, Prompt(*(leaf[2 * int(p) : 2 * int(p) + 1] for leaf in prompt)))
    np.testing.assert_array_equal(null.tokens[0, first:], stored[f"p{p}_halves"][1])
    assert null.mask.sum() == stored[f"p{p}_halves"].shape[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_cache_agrees(name):
  """Prefill of both prompts and both halves in one batch, then single steps."""
  network, stored = golden.load(name)[0], golden.arrays(name)
  prompt = golden.prompts(*(half for p in "01" for half in stored[f"p{p}_halves"]))
  codes = np.repeat([stored[f"p{p}_image_ids"] for p in "01"], 2, axis=0)
  rows, width = prompt.tokens.shape

  @jax.jit
  def run(params, prompt, codes):
    cache = network.fns.init_cache(rows, width + 8)
    apply = functools.partial(network.fns.apply, params)
    output, cache = apply(prompt, cache, positions=jnp.arange(width)[None], logits_at=jnp.array([width - 1]))

    def step(cache, at):
      codes_at = jax.lax.dynamic_slice_in_dim(codes, at, 1, axis=1)
      stepped, cache = apply(codes_at, cache, positions=width + at[None, None])
      return cache, stepped.logits[:, 0]

    cache, logits = jax.lax.scan(step, cache, jnp.arange(8))
    return jnp.concatenate([output.logits, logits.swapaxes(0, 1)], axis=1), cache

  logits, cache = jax.device_get(run(network.params, prompt, codes))
  for p in "01":
    length = stored[f"p{p}_halves"].shape[1]
    own, slots = slice(2 * int(p), 2 * int(p) + 2), slice(width - length, width + 8)
    _close(logits[own], stored[f"p{p}_logits_cached"], 5e-5)
    for kind, buffer in (("k", cache.k[0]), ("v", cache.v[0])):
      split = buffer.reshape(rows, network.config.kv_heads, *buffer.shape[1:])
      _close(split[own, :, slots], stored[f"p{p}_cache_{kind}_layer0"], 5e-5)


@functools.cache
def _logits_of(fns):
  """Logits of the codes of images, teacher forced; one program for the networks of equal functions."""

  @jax.jit
  def logits(params, inputs):
    output, _ = fns.apply(params, inputs, None, positions=None)
    return output.logits[:, inputs.condition.tokens.shape[1] - 1 :]

  return logits


def _run_of(name, run):
  """Prompts, codes and settings of a stored run, with two rows: the only one is repeated."""
  stored = golden.arrays(name)
  number, scale, temperature = stored[f"{run}_settings"].tolist()
  twice = lambda array: np.resize(array, (2, *array.shape[1:]))
  prompt = golden.prompts(*twice(stored[f"{run}_ids"][::2]))
  assert stored[f"{run}_ids"][0].tolist() == golden.texts()[int(number)]["ids"]
  return prompt, twice(stored[f"{run}_tokens"]), scale, 0.0 if run.startswith("greedy") else temperature


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_runs_draw_the_official_codes(name, run):
  """With a cache: arg-max, and draws from the stored numbers; then the guided logits along the codes, and the images."""
  (network, vq), stored = golden.load(name), golden.arrays(name)
  prompt, tokens, scale, temperature = _run_of(name, run)
  sampling = SamplingConfig(cfg_scale=scale, temperature=temperature)
  decoder = Decoder(network, methods.Plain(), sampling=sampling, space=TokenSpace(vocab_size=256))
  uniforms = np.resize(stored.get(f"{run}_uniforms", [0.5]), tokens.shape)
  addresses = [first_draw()] + [address for i in range(24) for address in round_draws(i)]
  found = decoder(prompt, key=Tape(dict(zip(addresses, uniforms.T))).keys(), max_len=25)
  np.testing.assert_array_equal(found.tokens, tokens)

  inputs = Prefixed(prompt, tokens[:, :-1])
  # Without guidance the library computes the conditional half alone, the official loop u + (c - u).
  guided_logits = _logits_of(guided(network.fns))(Guided(network.params, np.float32(scale)), inputs)
  _close(guided_logits[: len(stored[f"{run}_guided"])], stored[f"{run}_guided"], 5e-5 * (2 * scale - 1))
  if scale == 1:
    plain = _logits_of(network.fns)(network.params, inputs)
    _close(plain[: len(stored[f"{run}_guided"])], stored[f"{run}_guided"], 5e-5)
  _images_agree(_pixels(vq, tokens, (5, 5))[1][: len(stored[f"{run}_image"])], stored[f"{run}_image"])


def _pixels(vq, codes, grid):
  decode = jax.jit(lambda params, codes: vq.fns.decode(params, codes, grid))(vq.params, codes)
  return np.asarray(decode), np.asarray(truncate_to_uint8(decode))


@pytest.mark.slow
@pytest.mark.parametrize("run", ["sampled_cfg5", "sampled_cfg2_hot"])
def test_the_draft_along_the_codes_of_the_target(run):
  stored, pair, draft = golden.arrays("target"), golden.arrays("pair"), golden.load("draft")[0]
  prompt, tokens, scale, temperature = _run_of("target", run)
  params = Guided(draft.params, np.float32(scale))
  logits = np.asarray(_logits_of(guided(draft.fns))(params, Prefixed(prompt, tokens[:, :-1])))
  _close(logits, pair[f"{run}_draft_guided"], 5e-5 * (2 * scale - 1))
  p, q = (np.asarray(jax.nn.softmax(each / temperature)) for each in (stored[f"{run}_guided"], logits))
  _close(np.minimum(p, q).sum(-1), pair[f"{run}_acceptance"], 1e-5)


@pytest.mark.parametrize("name", slow_but(NAMES, ["target"]))
def test_the_image_tokenizer_agrees(name):
  stored, vq = golden.arrays(name), golden.load(name)[1]
  decoded, pixels = _pixels(vq, stored["vq_codes"], tuple(stored["vq_grid"].tolist()))
  _close(decoded, np.moveaxis(stored["vq_decoded"], 1, -1), 5e-5)
  _images_agree(pixels, stored["vq_image"])


@pytest.mark.slow
@pytest.mark.long_runs
def test_a_wide_network_agrees():
  """16384 codes, an image of 576 of them, and the released image tokenizer."""
  (network, vq), stored = golden.wide(), golden.arrays("wide_recipe")
  assert int(stored["pad"]) == network.config.pad
  config, codes, at = network.config, stored["codes"], stored["positions"]
  prompt = golden.prompts(stored["ids"])
  embedded = jax.jit(lambda params: code_embeddings(config, params))(network.params)
  _close(np.asarray(embedded)[codes[::32]], stored["embed_strided"], 1e-5)
  both = jax.tree.map(lambda a, b: np.concatenate([a, b]), prompt, jax.device_get(null_prompt(config, prompt)))
  logits = np.asarray(_logits_of(network.fns)(network.params, Prefixed(both, np.stack([codes[:-1]] * 2))))[:, at]
  _close(logits[:, :, ::16], stored["logits_strided"], 2e-5)
  _close(jax.nn.logsumexp(logits, axis=-1), stored["logsumexp"], 1e-5)
  mixed = logits[1] + 5 * (logits[0] - logits[1])
  _close(mixed[:, ::16], stored["guided_strided"], 2e-4)
  _close(jax.nn.logsumexp(mixed, axis=-1), stored["guided_logsumexp"], 1e-4)
  top = np.argsort(-mixed, axis=-1)[:, :8]
  np.testing.assert_array_equal(top, stored["guided_top8_indices"])
  _close(np.take_along_axis(mixed, top, -1), stored["guided_top8_values"], 2e-4)

  sampling, space = SamplingConfig(cfg_scale=5.0, temperature=0.0), TokenSpace(vocab_size=16384)
  found = Decoder(network, methods.Plain(), sampling=sampling, space=space)(prompt, key=0, max_len=576)
  np.testing.assert_array_equal(found.tokens, stored["greedy_tokens"])

  decoded, pixels = _pixels(vq, codes[None], (24, 24))
  strided = slice(int(stored["offset"]), None, 12)
  _close(decoded[:, strided, strided], np.moveaxis(stored["decoded_strided"], 1, -1), 5e-5)
  _close(decoded.mean(dtype=np.float64), stored["decoded_mean"], 1e-5)
  _images_agree(pixels[:, strided, strided], stored["image_strided"])


def test_unconditional_partners_of_a_batch():
  """Padding on either side stays hidden; the tokens between the first and the last are pads that are seen."""
  config = JanusConfig(text_vocab_size=20, begin_text=1, begin_image=2, pad=3)
  tokens = jnp.asarray([[1, 7, 8, 2, 0, 0], [0, 1, 7, 9, 6, 2], [0, 0, 0, 0, 1, 2]])
  mask = jnp.asarray([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1]], bool)
  null = null_prompt(config, Prompt(tokens, mask))
  assert null.tokens.tolist() == [[0, 0, 1, 3, 3, 2], [0, 1, 3, 3, 3, 2], [0, 0, 0, 0, 1, 2]]
  assert null.mask.sum(1).tolist() == mask.sum(1).tolist() and null.mask[:, -1].all()


def test_configs():
  for fields, words in (
    (dict(dim=30, num_heads=4), "width divisible by the heads"),
    (dict(num_kv_heads=5), "heads divisible by kv heads"),
    (dict(rows=0), "rows as an integer of at least 1"),
    (dict(aligner_depth=1.5), "aligner_depth as an integer"),
    (dict(pad=102400), "pad below 102400"),
    (dict(begin_text=-1), "begin_text as an integer of at least 0"),
    (dict(rope_theta=0.5), "RoPE base above 1"),
  ):
    with pytest.raises(ValueError, match=words):
      JanusConfig(**fields)
  with pytest.raises(ValueError, match="a size in 1B, 7B"):
    JanusConfig.named("3B")
