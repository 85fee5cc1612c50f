"""Agreement with the official LlamaGen code: compares every array of the golden files, each with its tolerance.

One function per golden file yields `Row` values. The tests assert them, and ``python -m experiments.run parity:llamagen``
prints them. Weights go through the real conversion of the ``.pt`` files. Tolerances come from the README there.
"""

from __future__ import annotations

import functools
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from conversion import engine
from conversion.llamagen import FAMILY as GPT
from conversion.llamagen_vq import FAMILY as VQ
from jaxspec.core.network import Network
from jaxspec.core.types import ModelFns, Params, PyTree
from jaxspec.io import checkpoints
from jaxspec.models.conditions import Caption, ClassLabels, Prefixed, left_pad
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.llamagen import CaptionEmbedding, ClassEmbedding, LlamaGenConfig, llamagen_fns
from jaxspec.models.nn import quantizer
from jaxspec.models.nn.causal import Attention
from jaxspec.models.nn.rope import rope_2d, rotate
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig, llamagen_vq_fns
from jaxspec.models.tokenizers.tokenizer_fns import to_uint8
from jaxspec.training.common_losses import token_cross_entropy
from tests.conversion.array_tensor import ArrayTensor
from tests.parity import GoldenRows, Row, max_error

GOLDEN = Path(__file__).parents[1] / "golden" / "llamagen"

# Config fields that cannot be inferred from the shapes of a tiny model.
FIELDS = {
  "c2i_tiny": {"num_heads": 2, "num_tokens": 36},
  "t2i_tiny": {"num_heads": 3, "num_tokens": 25},
  "gqa_tiny": {"num_heads": 4, "num_tokens": 16},
  "wrapper": {"num_heads": 2, "num_tokens": 4},
}

# Arrays that are only inputs of a check.
INPUTS = frozenset(
  "labels tokens block_wrong_tokens force_drop_ids raw_caption_emb raw_mask valid positions vocab_stride image "
  "flat_image random_indices apply_x apply_spec".split()
)


_Rows = functools.partial(GoldenRows, GOLDEN, inputs=INPUTS)


@functools.cache
def load(stem: str) -> Network:
  """The checkpoint converted from ``STEM.pt``."""
  family, fields = (VQ, {}) if stem.startswith("vq") else (GPT, FIELDS[stem])
  with tempfile.TemporaryDirectory() as folder:
    engine.convert_file(GOLDEN / f"{stem}.pt", Path(folder) / "model", family, fields)
    return checkpoints.load(Path(folder) / "model")


# Models: teacher-forced, cached, guided, greedy.


@functools.cache
def _jitted(fns: ModelFns):
  return jax.jit(lambda params, inputs, cache, positions: fns.apply(params, inputs, cache, positions=positions))


def full_logits(fns: ModelFns, params: Params, condition: PyTree, tokens: np.ndarray) -> jax.Array:
  """Teacher-forced logits ``[B, N, V]``; row i predicts token i."""
  prefix = fns.prefix_len(condition)
  positions = jnp.arange(prefix + tokens.shape[1] - 1)[None]
  inputs = Prefixed(condition, jnp.asarray(tokens[:, :-1], jnp.int32))
  output, _ = _jitted(fns)(params, inputs, None, positions)
  return output.logits[:, prefix - 1 :]


def attention_masks(fns: ModelFns, params: Params, inputs: Prefixed, length: int) -> np.ndarray:
  """The boolean masks ``[layers, B, T, T]`` that the attention layers of a teacher-forced pass are given."""

  masks = []

  def spy(call, args, kwargs, context):
    if isinstance(context.module, Attention) and context.method_name == "__call__":
      masks.append(args[1].mask)
    return call(*args, **kwargs)

  with jax.disable_jit(), nn.intercept_methods(spy):  # a block that was traced before is not called again
    fns.apply(params, inputs, None, positions=jnp.arange(length)[None])
  return np.stack(masks)


def prefill(fns: ModelFns, params: Params, condition: PyTree, batch: int, num_tokens: int):
  """Logits of the condition ``[B, P, V]`` and the filled cache."""
  prefix = fns.prefix_len(condition)
  cache = fns.init_cache(batch, prefix + num_tokens)
  output, cache = _jitted(fns)(params, condition, cache, jnp.arange(prefix)[None])
  return output.logits, cache


def feed(fns: ModelFns, params: Params, cache: PyTree, tokens: np.ndarray, first: int):
  """Feeds consecutive tokens ``[B, T]`` from position ``first``; returns logits ``[B, T, V]`` and the cache."""
  tokens = jnp.asarray(tokens, jnp.int32)
  output, cache = _jitted(fns)(params, tokens, cache, first + jnp.arange(tokens.shape[1])[None])
  return output.logits, cache


def forced_steps(fns: ModelFns, params: Params, condition: PyTree, tokens: np.ndarray, steps: int, num_tokens: int):
  """Prefill logits, then the logits of ``steps`` single steps ``[B, steps, V]``, and the cache."""
  first, cache = prefill(fns, params, condition, tokens.shape[0], num_tokens)
  prefix, logits = fns.prefix_len(condition), []
  for i in range(steps):
    step, cache = feed(fns, params, cache, tokens[:, i : i + 1], prefix + i)
    logits.append(step)
  return first, jnp.concatenate(logits, axis=1), cache


def greedy(fns: ModelFns, params: Params, condition: PyTree, batch: int, num_tokens: int) -> np.ndarray:
  """Greedy tokens ``[B, N]`` by single steps."""
  logits, cache = prefill(fns, params, condition, batch, num_tokens)
  prefix, tokens = fns.prefix_len(condition), [np.argmax(logits[:, -1:], axis=-1)]
  for i in range(num_tokens - 1):
    logits, cache = feed(fns, params, cache, tokens[-1], prefix + i)
    tokens.append(np.argmax(logits, axis=-1))
  return np.concatenate(tokens, axis=1)


def _check_guidance(rows: GoldenRows, fns: ModelFns, params: Params, condition: PyTree, scales: Mapping[str, float]) -> None:
  """Conditional, unconditional and combined logits of prefill and single steps."""
  tokens, steps = rows["tokens"], rows["cfg_cond_logits"].shape[1] - 1
  num_tokens = tokens.shape[1]

  def path(model, weights, prompt):
    first, others, _ = forced_steps(model, weights, prompt, tokens, steps, num_tokens)
    return jnp.concatenate([first[:, -1:], others], axis=1)

  rows.add("cfg_cond_logits", path(fns, params, condition), 2e-5)
  rows.add("cfg_uncond_logits", path(fns, params, fns.null_condition(params, condition)), 2e-5)
  for name, scale in scales.items():
    logits = path(guided(fns), Guided(params, jnp.float32(scale)), condition)
    rows.add(f"cfg_combined_logits_s{name}", logits, 2e-5 * (2 * scale - 1))


def c2i_tiny() -> list[Row]:
  """Class-conditional model: all paths."""
  rows = _Rows("c2i_tiny")
  checkpoint = load("c2i_tiny")
  fns, params, config = checkpoint.fns, checkpoint.params, checkpoint.config
  tokens, labels = rows["tokens"], jnp.asarray(rows["labels"], jnp.int32)
  condition, batch, num_tokens = ClassLabels(labels), *tokens.shape

  logits = full_logits(fns, params, condition, tokens)
  rows.add("logits_full", logits, 2e-5)
  rows.add("train_loss", token_cross_entropy(logits, jnp.asarray(tokens, jnp.int32)), 1e-5)

  steps = rows["decode_logits"].shape[1]
  first, others, cache = forced_steps(fns, params, condition, tokens, steps, num_tokens)
  rows.add("prefill_logits", first, 2e-5)
  rows.add("decode_logits", others, 2e-5)
  rows.add("cache_len_allocated", np.asarray(cache.key_mask.shape[1]), 0)
  for name, layer in (("layer0", 0), ("last", -1)):
    for kind in "kv":
      buffer = getattr(cache, kind)[layer]
      content = buffer.reshape(batch, config.kv_heads, *buffer.shape[1:])[:, :, : steps + 1]
      rows.add(f"cache_{kind}_{name}", content, 2e-5)

  # A block is drafted, partly rejected and fed again: stale slots must be invisible.
  _, cache = prefill(fns, params, condition, batch, num_tokens)
  block, cache = feed(fns, params, cache, tokens[:, :4], 1)
  rows.add("block_a_logits", block, 2e-5)
  block, cache = feed(fns, params, cache, rows["block_wrong_tokens"], 5)
  rows.add("block_b_logits", block, 2e-5)
  block, cache = feed(fns, params, cache, tokens[:, 4:6], 5)
  rows.add("block_c_logits", block, 2e-5)

  _check_guidance(rows, fns, params, condition, {"2": 2.0, "4": 4.0})
  rows.add("greedy_cfg1", greedy(fns, params, condition, batch, num_tokens), 0)
  for name, scale, interval in (("cfg2", 2.0, -1), ("cfg4", 4.0, -1), ("cfg2_interval5", 2.0, 5)):
    model, weights = guided(fns, interval=interval), Guided(params, jnp.float32(scale))
    rows.add(f"greedy_{name}", greedy(model, weights, condition, batch, num_tokens), 0)

  dropped = jnp.where(jnp.asarray(rows["force_drop_ids"]) == 1, config.num_classes, labels)
  embed = ClassEmbedding(config).apply({"params": params["cls_embedding"]}, ClassLabels(dropped))
  rows.add("dropped_cond_embedding", embed, 0)
  rows.add("freqs_cis", _table(config, num_tokens + 1), 3e-6)
  return rows.done()


def _table(config: LlamaGenConfig, length: int) -> jax.Array:
  return rope_2d(
    jnp.arange(length),
    prefix_len=config.prefix_len,
    grid=config.grid,
    head_dim=config.head_dim,
    base=config.rope_base,
  )


def t2i_tiny() -> list[Row]:
  """Text-conditional model: all paths."""
  rows = _Rows("t2i_tiny")
  checkpoint = load("t2i_tiny")
  fns, params, config = checkpoint.fns, checkpoint.params, checkpoint.config
  tokens, (batch, num_tokens) = rows["tokens"], rows["tokens"].shape
  condition = left_pad(jnp.asarray(rows["raw_caption_emb"]), jnp.asarray(rows["raw_mask"]))
  rows.add("caption_emb", condition.features, 0)
  rows.add("emb_mask", condition.mask, 0)

  @jax.jit
  def embed(features):
    return CaptionEmbedding(config).apply({"params": params["cls_embedding"]}, Caption(features, condition.mask))

  rows.add("cond_embedding", embed(condition.features), 1e-5)
  null = fns.null_condition(params, condition)
  drop = jnp.asarray(rows["force_drop_ids"]).reshape(-1, 1, 1) == 1
  rows.add("dropped_cond_embedding", embed(jnp.where(drop, null.features, condition.features)), 1e-5)

  logits = full_logits(fns, params, condition, tokens)
  rows.add("logits_full", logits, 2e-5)
  targets = jnp.asarray(tokens, jnp.int32)
  rows.add("train_loss", token_cross_entropy(logits, targets), 1e-5)
  valid = jnp.asarray(rows["valid"]) == 1
  rows.add("train_loss_valid", token_cross_entropy(logits, targets, valid), 1e-5)

  # Logits hardly depend on the mask of padding rows, so the mask itself is compared, in every layer.
  length = config.prefix_len + num_tokens - 1
  bits = np.unpackbits(rows["attn_mask_row_bits"], axis=-1, count=length)
  rows.arrays["attn_mask_row_bits"] = np.stack([bits] * config.num_layers)
  rows.add("attn_mask_row_bits", attention_masks(fns, params, Prefixed(condition, targets[:, :-1]), length), 0)

  steps = rows["decode_logits"].shape[1]
  first, others, _ = forced_steps(fns, params, condition, tokens, steps, num_tokens)
  real = np.asarray(condition.mask)[..., None]  # the values of padding rows are arbitrary
  rows.add("prefill_logits", np.where(real, first, rows["prefill_logits"]), 2e-5)
  rows.add("decode_logits", others, 2e-5)

  _check_guidance(rows, fns, params, condition, {"7.5": 7.5, "1.5": 1.5})
  rows.add("greedy_cfg1", greedy(fns, params, condition, batch, num_tokens), 0)
  unmasked = Caption(condition.features, jnp.ones_like(condition.mask))
  for name, scale, prompt in (("7.5", 7.5, condition), ("1.5", 1.5, condition), ("7.5_nomask", 7.5, unmasked)):
    rows.add(f"greedy_cfg{name}", greedy(guided(fns), Guided(params, jnp.float32(scale)), prompt, batch, num_tokens), 0)
  return rows.done()


def gqa_tiny() -> list[Row]:
  """Grouped queries and a visible norm eps."""
  rows = _Rows("gqa_tiny")
  checkpoint = load("gqa_tiny")
  condition = ClassLabels(jnp.asarray(rows["labels"], jnp.int32))
  rows.add("logits_full", full_logits(checkpoint.fns, checkpoint.params, condition, rows["tokens"]), 2e-5)
  return rows.done()


def wrappers() -> list[Row]:
  """Every layout of a checkpoint file."""
  rows = _Rows("wrapper")
  condition = ClassLabels(jnp.asarray(rows["labels"], jnp.int32))
  found = []
  for file in sorted(GOLDEN.glob("wrapper_*.pt")):
    name = "logits_full_bf16_weights_f32_compute" if file.stem == "wrapper_bf16" else "logits_full"
    with tempfile.TemporaryDirectory() as folder:
      engine.convert_file(file, Path(folder) / "model", GPT, FIELDS["wrapper"])
      checkpoint = checkpoints.load(Path(folder) / "model")
    logits = full_logits(checkpoint.fns, checkpoint.params, condition, rows["tokens"])
    found.append(Row(file.stem, name, max_error(logits, rows[name]), 2e-5))
  return found


def rope() -> list[Row]:
  """Rotary tables and their application."""
  rows = _Rows("rope")
  for name, expected in rows.arrays.items():
    if not name.startswith("rope_"):
      continue
    grid, head_dim, prefix = (int(part[1:]) for part in name.split("_")[1:])
    positions = jnp.arange(expected.shape[0])
    table = rope_2d(positions, prefix_len=prefix, grid=grid, head_dim=head_dim, base=10000.0)
    rows.add(name, table, 3e-6)
  grid, head_dim, prefix = map(int, rows["apply_spec"])
  positions = jnp.arange(rows["apply_x"].shape[1])[None]
  table = rope_2d(positions, prefix_len=prefix, grid=grid, head_dim=head_dim, base=10000.0)
  rows.add("apply_y", rotate(jnp.asarray(rows["apply_x"]), table), 1e-5)
  return rows.done()


# Weights by recipe.


def recipe_array(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
  """The recipe's value ``v`` for a key: uniform in [-1, 1), float64."""
  state = np.random.RandomState((zlib.crc32(name.encode()) ^ seed) & 0xFFFFFFFF)
  return 2 * state.random_sample(shape) - 1


def recipe_tensor(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
  """The recipe's float32 weight for a state dict key."""
  v = recipe_array(name, shape, seed)
  tables = ("tok_embeddings.weight", "embedding_table.weight", "quantize.embedding.weight", "uncond_embedding")
  if name.endswith(tables):
    pass
  elif len(shape) > 1:
    v *= np.sqrt(3 / np.prod(shape[1:]))
  elif name.endswith("weight"):
    v = 1 + 0.25 * v
  else:
    v *= 0.1
  return v.astype(np.float32)


def recipe_params(config: Any, family: engine.Family, seed: int) -> Params:
  """Parameters of a recipe model, through the conversion."""
  shapes = engine.source_shapes(family, engine.template_of(config))
  state_dict = {name: ArrayTensor(recipe_tensor(name, shape, seed)) for name, shape in shapes.items()}
  fields = {"num_heads": config.num_heads, "num_tokens": config.num_tokens} if family is GPT else {}
  converted, leaves = engine.convert(state_dict, family, fields)
  assert converted == config, (converted, config)
  return checkpoints.unflatten({path: jax.device_put(np.asarray(leaf)) for path, leaf in leaves.items()})


def _gpt_recipe(golden: str, config: LlamaGenConfig, seed: int) -> list[Row]:
  rows = _Rows(golden)
  params = recipe_params(config, GPT, seed)
  if config.model_type == "c2i":
    condition = ClassLabels(jnp.asarray(rows["labels"], jnp.int32))
  else:
    features = recipe_array("caption", (2, config.prefix_len, config.caption_dim), seed).astype(np.float32)
    condition = left_pad(jnp.asarray(features), jnp.asarray(rows["raw_mask"]))
    rows.add("emb_mask", condition.mask, 0)
  logits = full_logits(llamagen_fns(config), params, condition, rows["tokens"])
  logits = np.asarray(logits)[:, rows["positions"]]
  rows.add("logits_strided", logits[..., :: int(rows["vocab_stride"])], 5e-5)
  rows.add("logsumexp", jax.nn.logsumexp(jnp.asarray(logits), axis=-1), 1e-5)
  order = np.argsort(-logits, axis=-1, kind="stable")[..., :8]
  rows.add("top8_indices", order, 0)
  rows.add("top8_values", np.take_along_axis(logits, order, axis=-1), 5e-5)
  return rows.done()


def gpt_b_c2i() -> list[Row]:
  """Full-size GPT-B with classes."""
  return _gpt_recipe("gpt_b_c2i_recipe", LlamaGenConfig.named("GPT-B"), 3001)


def gpt_b_t2i() -> list[Row]:
  """Full-size GPT-B with captions."""
  return _gpt_recipe("gpt_b_t2i_recipe", LlamaGenConfig.named("GPT-B", model_type="t2i"), 3002)


# Tokenizers.


def _channels_last(x: np.ndarray) -> jax.Array:
  return jnp.asarray(np.moveaxis(x, 1, -1))


def _channels_first(x: jax.Array) -> np.ndarray:
  return np.moveaxis(np.asarray(x), -1, 1)


def _check_tokenizer(golden: str, config: LlamaGenVQConfig, params: Params) -> list[Row]:
  rows, fns = _Rows(golden), llamagen_vq_fns(config)
  image = _channels_last(rows["image"])
  grid = tuple(side // config.factor for side in image.shape[1:3])

  @jax.jit
  def encode(weights, images):
    features = fns.features(weights, images)
    return features, *fns.encode(weights, images)

  decode = jax.jit(lambda weights, indices: fns.decode(weights, indices, grid))
  codes = fns.codebook(params)

  features, indices, latent = encode(params, image)
  rows.add("indices", indices, 0)
  entries = quantizer.lookup(codes, indices).reshape(latent.shape)
  quantised = quantizer.straight_through(quantizer.normalise(latent), entries)
  rows.add("latent", _channels_first(latent), 5e-5)
  rows.add("quant", _channels_first(quantised), 1e-6)
  rows.add("recon", _channels_first(decode(params, indices)), 1e-4)
  if "encoder_out" in rows.arrays:
    rows.add("encoder_out", _channels_first(features), 5e-5)
    flat_features, _, flat_latent = encode(params, _channels_last(rows["flat_image"]))
    rows.add("flat_encoder_out", _channels_first(flat_features), 5e-5)
    rows.add("flat_latent", _channels_first(flat_latent), 5e-5)

  random_indices = jnp.asarray(rows["random_indices"], jnp.int32)
  rows.add("codebook_entry", quantizer.lookup(codes, random_indices), 1e-6)
  pixels = decode(params, random_indices)
  rows.add("random_decoded", _channels_first(pixels), 1e-4)
  rows.add("random_decoded_uint8", _channels_first(to_uint8(pixels)), 1)

  losses = jax.jit(lambda *args: quantizer.quantizer_losses(*args, beta=0.25, entropy_ratio=0.1))(latent, codes)
  rows.add("loss_vq", losses.vq, 1e-6)
  rows.add("loss_commit_beta0.25", losses.commit, 1e-6)
  rows.add("loss_entropy_ratio0.1", losses.entropy, 1e-5)
  return rows.done()


def vq_tiny() -> list[Row]:
  """Stored tokenizer; its image is not square."""
  checkpoint = load("vq_tiny")
  return _check_tokenizer("vq_tiny", checkpoint.config, checkpoint.params)


def vq_small() -> list[Row]:
  """Mid-size tokenizer by recipe."""
  config = LlamaGenVQConfig(base_channels=32, multipliers=(1, 2, 4), z_channels=64, codebook_size=512)
  return _check_tokenizer("vq_small_recipe", config, recipe_params(config, VQ, 1234))


def vq16() -> list[Row]:
  """VQ-16 at its released size."""
  config = LlamaGenVQConfig.named("VQ-16")
  return _check_tokenizer("vq16_full_recipe", config, recipe_params(config, VQ, 2024))


def vq8() -> list[Row]:
  """VQ-8 at its released size."""
  config = LlamaGenVQConfig.named("VQ-8")
  return _check_tokenizer("vq8_full_recipe", config, recipe_params(config, VQ, 2025))


TRANSFORMER_CHECKS = (c2i_tiny, t2i_tiny, gqa_tiny, wrappers, rope)
TOKENIZER_CHECKS = (vq_tiny, vq_small)
SLOW_CHECKS = (gpt_b_c2i, gpt_b_t2i, vq16, vq8)


def all_rows() -> Iterator[Row]:
  """Every row of the table."""
  for check in (*TRANSFORMER_CHECKS, *TOKENIZER_CHECKS, *SLOW_CHECKS):
    yield from check()
