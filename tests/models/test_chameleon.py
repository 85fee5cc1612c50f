"""Chameleon against stored outputs: forward passes, guided runs of Anole and Lumina-mGPT, and legal ids by position."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.io.text.language_tokenizer import pad_left
from jaxspec.models.chameleon.chameleon import ChameleonConfig, chameleon_fns
from jaxspec.models.chameleon.chameleon_drawing import drawing_fns, drawing_params, null_prompt
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.language.image_rows import ImageRows
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig
from jaxspec.testing import Tape
from jaxspec.testing.tape import first_draw, round_draws
from tests.models import chameleon_golden as golden

GEN = golden.arrays("chameleon_gen_tiny")
CODES = 8192


@pytest.mark.parametrize("kind", ["pre", "swin"])
def test_forward_passes_agree(kind):
  """Norms before and after, with and without padding; features are the input of the output matrix."""
  config, params = golden.tiny(kind)
  stored = golden.arrays("chameleon_tiny")
  mask = stored[f"{kind}_pad_mask"].astype(bool)
  ids = jnp.asarray(stored[f"{kind}_ids"], jnp.int32)
  apply = jax.jit(lambda inputs: chameleon_fns(config).apply(params, inputs, None, positions=None)[0])
  whole = apply(Prompt(ids, jnp.ones(ids.shape, bool)))
  np.testing.assert_allclose(whole.logits, stored[f"{kind}_logits"], atol=2e-5)
  np.testing.assert_allclose(whole.features, stored[f"{kind}_hidden"], atol=2e-5)
  padded = apply(Prompt(ids, jnp.asarray(mask)))
  np.testing.assert_allclose(np.asarray(padded.logits)[mask], stored[f"{kind}_pad_logits"][mask], atol=2e-5)


def _prompt(layout, number=None, config=None) -> Prompt:
  texts = golden.prompts() if number is None else [golden.prompts()[number]]
  if layout == "anole":
    return pad_left([[0, *text, 8710, 8197] for text in texts])
  return pad_left([[0, *text, 8710, 8197, 8804 + config.rows // 2, 8804 + config.columns // 2] for text in texts])


def _local(tokens) -> np.ndarray:
  """Local ids of the vocabulary's."""
  tokens = np.asarray(tokens)
  return np.where(tokens == 8803, CODES, np.where(tokens == 8196, CODES + 1, tokens - 4)).astype(np.int32)


def _tape(uniforms) -> Tape:
  """Row keys whose draws are the stored numbers ``[rows, steps]``."""
  addresses = [first_draw()] + [address for i in range(uniforms.shape[1] - 1) for address in round_draws(i)]
  return Tape(dict(zip(addresses, np.asarray(uniforms, np.float64).T)))


def _decoder(config, params, sampling, method=methods.Plain()) -> Decoder:
  network = Network(drawing_fns(config), drawing_params(config, params), config)
  space = TokenSpace(vocab_size=len(config.drawn_ids), legal=config.image_rows)
  return Decoder(network, method, sampling=sampling, space=space)


@pytest.mark.slow
@pytest.mark.long_runs  # with few optimisations, top-p at temperature 0 may round the largest logit below itself
def test_anole_draws_what_the_official_decoder_draws():
  """Two prompts of different lengths as one guided batch, with a cache: arg-max, and draws from stored uniforms."""
  config, params = golden.drawing("anole", 32, 32)
  prompt, steps = _prompt("anole"), GEN["anole_uniforms"].shape[1]
  temperature, top_p = GEN["anole_temp_top_p"].tolist()
  sampled = SamplingConfig(cfg_scale=3.0, temperature=temperature, top_p=top_p)
  greedy = SamplingConfig(cfg_scale=3.0, temperature=0.0, top_p=top_p)  # the same program
  for sampling, name in ((greedy, "greedy"), (sampled, "sampled")):
    found = _decoder(config, params, sampling)(prompt, key=_tape(GEN["anole_uniforms"]).keys(), max_len=steps)
    np.testing.assert_array_equal(found.tokens, _local(GEN[f"anole_{name}_tokens"]))

  tokens = jnp.asarray(_local(GEN["anole_sampled_tokens"]))[:, :-1]
  weights = Guided(drawing_params(config, params), jnp.float32(3.0))
  logits = guided(drawing_fns(config)).apply(weights, Prefixed(prompt, tokens), None, positions=None)[0].logits
  logits = np.asarray(logits)[:, prompt.tokens.shape[1] - 1 :].swapaxes(0, 1)
  np.testing.assert_allclose(logits[:, :, ::64], GEN["anole_sampled_strided"], atol=3e-4)
  kept = sampled.warp()(jnp.asarray(logits), sampled.params())
  np.testing.assert_array_equal(np.isfinite(kept).sum(-1), GEN["anole_sampled_support"])


@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.slow)])
def test_lumina_draws_what_the_official_processors_allow(name):
  """Row ends and the image end are forced, codes are limited to the top 2000, and guidance has separate positions."""
  cells = GEN[f"lumina_{name}_grid"].tolist()
  config, params = golden.drawing("lumina", 2 * cells[0], 2 * cells[1])
  prompt, expected = _prompt("lumina", "ab".index(name), config), _local(GEN[f"lumina_{name}_greedy_tokens"])
  assert config.image_rows.num_tokens == len(expected) - 1
  uniforms, scale, top_k = GEN[f"lumina_{name}_uniforms"][None], *GEN["cfg_topk_lumina"].tolist()
  for temperature, kind in ((0.0, "greedy"), (1.0, "sampled")):
    sampling = SamplingConfig(cfg_scale=scale, top_k=int(top_k), temperature=temperature)
    found = _decoder(config, params, sampling)(prompt, key=_tape(uniforms).keys(), max_len=len(expected))
    np.testing.assert_array_equal(found.tokens[0], _local(GEN[f"lumina_{name}_{kind}_tokens"]))
  index = jnp.arange(len(expected))
  warp = jaxspec.Warp(top_k=int(top_k), legal=config.image_rows)
  kept = warp(
    jnp.asarray(np.random.default_rng(0).normal(size=(len(expected), CODES + 2))), jaxspec.sampling_params(), index
  )
  np.testing.assert_array_equal(np.isfinite(kept).sum(-1), GEN[f"lumina_{name}_sampled_support"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", "b"])
def test_lumina_has_two_unconditional_partners(name):
  """Lumina-mGPT's own begins with the image; that of the code of SJD and GSD with the end of the prompt."""
  cells = GEN[f"lumina_{name}_grid"].tolist()
  tokens = jnp.asarray(_local(GEN[f"lumina_{name}_greedy_tokens"]))[None, :-1]
  for null_start, kind in (("image", "8197"), ("end", "8710")):
    config, params = golden.drawing("lumina", 2 * cells[0], 2 * cells[1], null_start)
    prompt = _prompt("lumina", "ab".index(name), config)
    rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), prompt, null_prompt(config, prompt))
    inputs = Prefixed(rows, jnp.concatenate([tokens, tokens]))
    weights = drawing_params(config, params)
    logits = np.asarray(drawing_fns(config).apply(weights, inputs, None, positions=None)[0].logits)
    cond, null = logits[:, prompt.tokens.shape[1] - 1 :, :CODES:64]
    np.testing.assert_allclose(cond, GEN[f"lumina_{name}_greedy_cond_strided"], atol=3e-4)
    np.testing.assert_allclose(null, GEN[f"lumina_{name}_uncond{kind}_strided"], atol=3e-4)


@pytest.mark.slow
def test_windows_know_where_rows_end():
  """Speculative Jacobi decoding at temperature 0 gives the same tokens; a forced token is never rejected."""
  config, params = golden.drawing("lumina", 2, 4)
  sampling = SamplingConfig(cfg_scale=3.0, temperature=0.0)
  decoder = _decoder(config, params, sampling, methods.Sjd(window=3))
  expected = _local(GEN["lumina_a_greedy_tokens"])
  found = decoder(_prompt("lumina", 0, config), key=jax.random.key(0), max_len=len(expected))
  np.testing.assert_array_equal(found.tokens[0], expected)
  assert int(found.counters.accepted[0]) >= 1  # the row end behind a window that was rejected before it
  with pytest.raises(ValueError, match="the index of every token"):
    jaxspec.Warp(legal=config.image_rows)(jnp.zeros((1, CODES + 2)), jaxspec.sampling_params())


def test_legal_ids_of_windows():
  stored = golden.arrays("lumina_window_constraints")
  for (height, width, done, length, _), modes in zip(stored["cases_h_w_done_L_total"].tolist(), stored["mode"]):
    rows = ImageRows(CODES, 2 * height, 2 * width)
    legal = np.asarray(jax.jit(rows)(np.arange(done, done + modes.size)[None]))[0, :length]
    found = np.where(legal[:, : rows.row_end].all(1), 0, np.where(legal[:, rows.row_end], 1, 2))
    np.testing.assert_array_equal(found, modes[:length])
    assert set(legal.sum(1).tolist()) <= {1, CODES}
  tokens = jnp.asarray([[1, 2, 8192, 3, 4, 8192]])
  assert ImageRows(CODES, 2, 2).codes(tokens).tolist() == [[1, 2, 3, 4]]


def test_configs():
  config = ChameleonConfig()
  shapes = {"lm_head": {"weight": jax.ShapeDtypeStruct((65536, 4096), jnp.bfloat16)}, "norm": {}}
  drawn = drawing_params(config, shapes)
  assert drawn["lm_head"]["weight"].shape == (8192, 4096) and drawn["norm"] is shapes["norm"]
  lumina = ChameleonConfig(layout="lumina", rows=48, columns=48)
  assert lumina.image_rows.num_tokens == 2352 and lumina.drawn_ids[-2:].tolist() == [8803, 8196]
  assert [config.null_length, lumina.null_length] == [2, 3] and config.image_rows is None
  ragged = Prompt(
    jnp.asarray([[1, 0, 5, 8710, 8197], [0, 5, 6, 8710, 8197]]), jnp.asarray([[False] + [True] * 4, [True] * 5])
  )
  null = jax.jit(null_prompt, static_argnums=0)(config, ragged)
  assert null.tokens[:, 3:].tolist() == [[0, 8197]] * 2 and null.mask.sum(1).tolist() == [2, 2]
  null = jax.jit(null_prompt, static_argnums=0)(ChameleonConfig(null_start="end"), ragged)
  assert null.tokens[:, 3:].tolist() == [[8710, 8197]] * 2
  for fields, words in (
    (dict(dim=30, num_heads=4), "width divisible by the heads"),
    (dict(num_kv_heads=5), "heads divisible by kv heads"),
    (dict(layout="emu"), "a layout in anole, lumina"),
    (dict(null_start="nowhere"), "null_start in text, image, end"),
    (dict(rows=0), "rows, columns and codes"),
    (dict(layout="lumina", rows=3), "even rows and columns"),
    (dict(rope_theta=0.5), "RoPE base above 1"),
  ):
    with pytest.raises(ValueError, match=words):
      ChameleonConfig(**fields)
  with pytest.raises(ValueError, match="prompts of at least 3 tokens"):
    null_prompt(lumina, Prompt(jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2), bool)))
