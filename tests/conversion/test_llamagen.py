"""Conversion of LlamaGen files: inference of configs and round trips."""

import dataclasses
import itertools
import shutil

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from conversion import engine, llamagen, llamagen_vq, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.llamagen import PUBLISHED_SIZES, LlamaGenConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from tests.conversion.commands import fails, run, write_fields
from tests.conversion.llamagen_sources import TINY_VQ, assert_same, leaves_of, random_params
from tests.models.llamagen_parity import FIELDS, GOLDEN

# Inference of configs.
PUBLISHED = [
  pytest.param(model_type, name, marks=() if name == "GPT-3B" else pytest.mark.slow)
  for model_type, name in itertools.product(["c2i", "t2i"], PUBLISHED_SIZES)
]


def _template(config):
  """Shapes of a deep network, with one traced block, since blocks are equal."""
  shapes = engine.template_of(dataclasses.replace(config, num_layers=1))
  block = {path: shape for path, shape in shapes.items() if path.startswith("layers_0.")}
  names = ((path, path.replace("layers_0.", f"layers_{layer}.")) for layer in range(config.num_layers) for path in block)
  return shapes | {name: block[path] for path, name in names}


@pytest.mark.parametrize("model_type, name", PUBLISHED)
def test_published_sizes_need_no_config(name, model_type):
  config = LlamaGenConfig.named(name, model_type=model_type)
  shapes = engine.source_shapes(llamagen.FAMILY, _template(config))
  assert llamagen.infer_config(shapes, {}) == config
  larger = llamagen.infer_config(shapes, {"image_size": 384})
  assert (larger.num_tokens, larger.num_heads) == (576, config.num_heads)


@pytest.mark.parametrize("name, count", [("VQ-16", 344), ("VQ-8", 300)])
def test_published_tokenizers(name, count):
  config = LlamaGenVQConfig.named(name)
  shapes = engine.source_shapes(llamagen_vq.FAMILY, engine.template_of(config))
  assert llamagen_vq.infer_config(shapes, {}) == config
  assert len(shapes) + len(llamagen_vq.FAMILY.buffers(config)) == count
  assert shapes["encoder.conv_blocks.1.res.0.conv2.weight"][2:] == (3, 3)
  assert shapes["quant_conv.weight"] == (8, 256, 1, 1)


def test_official_names_and_shapes():
  config = LlamaGenConfig.named("GPT-B")
  assert engine.template_of(config) == _template(config)
  shapes = engine.source_shapes(llamagen.FAMILY, _template(config))
  assert len(shapes) == 7 * 12 + 4
  assert shapes["layers.11.attention.wqkv.weight"] == (2304, 768)
  assert shapes["layers.0.feed_forward.w2.weight"] == (768, 2048)
  text = engine.source_shapes(llamagen.FAMILY, engine.template_of(LlamaGenConfig.named("GPT-B", model_type="t2i")))
  assert len(text) == 7 * 12 + 6
  assert text["cls_embedding.uncond_embedding"] == (120, 2048)


@given(dim=st.integers(8, 6000), hidden=st.integers(1, 40000))
def test_every_hidden_size_can_be_expressed(dim, hidden):
  config = LlamaGenConfig(dim=4 * dim, num_heads=1, **llamagen.ffn_fields(4 * dim, hidden))
  assert config.ffn_hidden == hidden


def test_user_fields_override_inferred_ones(tmp_path):
  fields = FIELDS["gqa_tiny"] | {"multiple_of": 16, "ffn_dim_multiplier": 1.3, "rope_base": 500.0}
  assert (
    run(llamagen.main, GOLDEN / "gqa_tiny.pt", tmp_path / "a", "--config", write_fields(tmp_path, fields)).exit_code == 0
  )
  config = checkpoints.load(tmp_path / "a").config
  assert (config.multiple_of, config.ffn_dim_multiplier, config.rope_base, config.num_kv_heads) == (16, 1.3, 500.0, 2)
  options = ("--config", write_fields(tmp_path, fields | {"vocab_size": 49}))
  line = fails(llamagen.main, GOLDEN / "gqa_tiny.pt", tmp_path / "b", *options)
  assert "output.weight has shape [50, 32], must have [49, 32]" in line


# Round trips.
_SETTINGS = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _round_trip(folder, config, family, command, fields, seed):
  params = random_params(config, seed)
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()
  checkpoints.save(folder / "start", config, checkpoints.unflatten({k: jax.device_put(v) for k, v in params.items()}))
  options = ("--config", write_fields(folder, fields)) if fields else ()
  previous = folder / "start"
  for step, suffix in enumerate((".pt", ".safetensors", ".pth")):
    file, converted = folder / f"file{step}{suffix}", folder / f"checkpoint{step}"
    for args in (("--export", previous, file), (file, converted, *options)):
      result = run(command, *args)
      assert result.exit_code == 0, result.output
    assert_same(leaves_of(converted), params)
    previous = converted
  tensors = torch_files.read(folder / "file0.pt")["model"]
  assert_same(load_file(folder / "file1.safetensors"), {name: tensor.read() for name, tensor in tensors.items()})
  return checkpoints.load(previous).config


@pytest.mark.slow
@_SETTINGS
@given(
  layers=st.integers(1, 2),
  kv_heads=st.sampled_from([1, 2]),
  group=st.integers(1, 3),
  head_dim=st.sampled_from([4, 8]),
  hidden=st.integers(1, 90),
  text=st.booleans(),
  seed=st.integers(0, 2**32 - 1),
)
def test_transformers_round_trip(tmp_path, layers, kv_heads, group, head_dim, hidden, text, seed):
  heads = kv_heads * group
  config = LlamaGenConfig(
    model_type="t2i" if text else "c2i",
    num_layers=layers,
    dim=heads * head_dim,
    num_heads=heads,
    num_kv_heads=kv_heads if group > 1 else None,
    vocab_size=7 + layers,
    num_tokens=4,
    prefix_len=5 if text else 1,
    num_classes=3 if not text else 1000,
    caption_dim=6 if text else 2048,
    **llamagen.ffn_fields(heads * head_dim, hidden),
  )
  fields = {"num_heads": heads, "num_tokens": 4}
  assert _round_trip(tmp_path / "r", config, llamagen.FAMILY, llamagen.main, fields, seed) == config


@pytest.mark.slow
@_SETTINGS
@given(
  multipliers=st.lists(st.integers(1, 2), min_size=1, max_size=3).map(tuple),
  blocks=st.integers(1, 2),
  z=st.integers(1, 9),
  codes=st.integers(1, 9),
  width=st.integers(1, 5),
  seed=st.integers(0, 2**32 - 1),
)
def test_tokenizers_round_trip(tmp_path, multipliers, blocks, z, codes, width, seed):
  config = LlamaGenVQConfig(32, multipliers, blocks, z, codes, width)
  assert _round_trip(tmp_path / "r", config, llamagen_vq.FAMILY, llamagen_vq.main, {}, seed) == config


@pytest.mark.slow
def test_exported_tokenizers_have_the_buffer_the_official_loader_demands(tmp_path):
  _round_trip(tmp_path / "r", TINY_VQ, llamagen_vq.FAMILY, llamagen_vq.main, {}, 0)
  buffer = torch_files.read(tmp_path / "r" / "file0.pt")["model"]["quantize.codebook_used"].read()
  assert buffer.shape == (65536,) and not buffer.any()
