"""The draft from layers of a Llama: its head starts as the identity, and least squares finds an affine map."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.data.pack_text import TOKENS_FILE
from experiments.train.cut_draft import CutRun, cut, least_squares, train
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.language.llama import LlamaConfig, llama_fns
from jaxspec.training.train_loop import LoopConfig
from tests.cli import fake_language
from tests.cli.fake_bundle import save_random

CONFIG = LlamaConfig(
  vocab_size=20, dim=16, num_layers=3, num_heads=2, num_kv_heads=1, ffn_hidden=24, max_positions=32, tie_embeddings=True
)


@pytest.mark.slow
def test_a_cut_network_is_the_first_layers():
  params = jax.jit(llama_fns(CONFIG).init)(jax.random.key(0))
  config, draft = cut(CONFIG, params, 2)
  ids = np.arange(6)[None]
  logits = lambda config, params: jax.jit(llama_fns(config).apply)(params, ids)[0].logits
  short = {name: leaf for name, leaf in params.items() if name != "layers_2"}
  wanted = logits(dataclasses.replace(CONFIG, num_layers=2), short)
  np.testing.assert_array_equal(logits(config, draft), wanted)
  assert jax.tree.structure(draft) == jax.tree.structure(jax.eval_shape(llama_fns(config).init, jax.random.key(1)))


@pytest.mark.parametrize("layers", [0, 3])
def test_a_cut_has_fewer_layers(layers):
  with pytest.raises(ValueError, match="fewer layers"):
    cut(CONFIG, {}, layers)


def test_a_cut_needs_a_shared_table():
  with pytest.raises(ValueError, match="token table"):
    cut(dataclasses.replace(CONFIG, tie_embeddings=False), {}, 1)


def test_least_squares_finds_an_affine_map():
  rng = np.random.default_rng(0)
  x, weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((200, 5), (5, 5), (5,)))
  found = least_squares(jnp.asarray(x), jnp.asarray(x @ weight.T + bias), ridge=1e-6)
  np.testing.assert_allclose(found[0], weight, atol=1e-3)
  np.testing.assert_allclose(found[1], bias, atol=1e-3)


@pytest.mark.slow
def test_a_run_goes_from_texts_to_a_trained_draft(tmp_path):
  size = len(fake_language.VOCABULARY)
  target, data = tmp_path / "target", tmp_path / "data"
  save_random(target, dataclasses.replace(CONFIG, num_layers=2, vocab_size=size, max_positions=64), 0, scale=0.2)
  fake_language.tokenizer().save(str(target / TOKENIZER_FILE))
  data.mkdir()
  fake_language.tokenizer().save(str(data / TOKENIZER_FILE))
  tokens = np.random.default_rng(0).integers(1, 200, 40 * 12).astype(np.uint16)
  np.savez(data / TOKENS_FILE, train=tokens, train_starts=np.arange(41) * 12)
  run = CutRun(
    num_layers=1, num_texts=36, num_held_out=4, num_tokens=12, prompt_tokens=2, batch_size=4, data=str(data),
    loop=LoopConfig(num_steps=12, eval_every=6, checkpoint_every=6), matmul_precision=None,
  )  # fmt: skip
  config, params, figures = train(run, target, tmp_path / "run")
  found = jax.jit(llama_fns(config).apply)(params, np.arange(4)[None])[0].logits
  assert config.num_layers == 1 and found.shape == (1, 4, size) and np.isfinite(found).all()
  assert 0 < figures["cut"] < figures["trained"] <= 1
  again = train(run, target, tmp_path / "run")[2]  # all parts exist already
  assert again == figures
  with pytest.raises(ValueError, match="resume .* with its ridge 0.01, we instead got 0.1"):
    train(dataclasses.replace(run, ridge=0.1), target, tmp_path / "run")
  with pytest.raises(ValueError, match="held-out"):
    train(dataclasses.replace(run, num_held_out=0), target, tmp_path / "other")
