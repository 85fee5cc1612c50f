"""Official LlamaGen files: wrappers, names, and suffixes."""

import hashlib
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conversion import engine, llamagen, llamagen_vq, torch_files
from jaxspec.io import checkpoints
from tests.conversion.array_tensor import ArrayTensor
from tests.conversion.commands import run, write_fields
from tests.conversion.llamagen_sources import TINY, TINY_VQ, assert_same, leaves_of, official_weights, random_params
from tests.models.llamagen_parity import FIELDS, GOLDEN


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("wrapper_*.pt")), ids=lambda file: file.stem)
def test_wrappers_are_read(tmp_path, file):
  result = run(llamagen.main, file, tmp_path / "out", "--config", write_fields(tmp_path, FIELDS["wrapper"]))
  assert result.exit_code == 0, result.output
  checkpoint = checkpoints.load(tmp_path / "out")
  reference = load_file(GOLDEN / "wrapper.safetensors")
  got = engine.to_state_dict(checkpoints.flatten(checkpoint.params), llamagen.FAMILY)
  if file.stem == "wrapper_bf16":
    reference = {k: np.asarray(jnp.asarray(v).astype(jnp.bfloat16).astype(jnp.float32)) for k, v in reference.items()}
  assert_same(got, reference)
  assert checkpoint.meta == {
    "source": file.name,
    "source_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    "licence": "unknown",
  }


@pytest.mark.parametrize("stem", ["c2i_tiny", "t2i_tiny", "gqa_tiny", "vq_tiny"])
def test_pt_and_safetensors_give_the_same(tmp_path, stem):
  command = llamagen_vq.main if stem == "vq_tiny" else llamagen.main
  options = () if stem == "vq_tiny" else ("--config", write_fields(tmp_path, FIELDS[stem]))
  for suffix in ("pt", "safetensors"):
    result = run(command, GOLDEN / f"{stem}.{suffix}", tmp_path / suffix, *options)
    assert result.exit_code == 0, result.output
    checkpoints.load(tmp_path / suffix)
  assert_same(leaves_of(tmp_path / "pt"), leaves_of(tmp_path / "safetensors"))


@pytest.mark.slow
def test_the_command_line_itself(tmp_path):
  """Runs one real process in which PyTorch cannot be imported."""
  blocked = "import sys, runpy; sys.modules['torch'] = None; "
  blocked += "runpy.run_module('conversion.llamagen', run_name='__main__')"
  options = ["--config", str(write_fields(tmp_path, FIELDS["c2i_tiny"]))]
  command = [sys.executable, "-c", blocked, str(GOLDEN / "c2i_tiny.pt"), str(tmp_path / "out"), *options]
  done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
  assert (done.returncode, done.stderr) == (0, "")
  assert done.stdout.startswith("Wrote ") and done.stdout.count("\n") == 1
  assert checkpoints.load(tmp_path / "out").config.num_heads == 2


def test_averaged_weights_of_a_tokenizer_are_read(tmp_path):
  source = official_weights(TINY_VQ, llamagen_vq.FAMILY)
  average = official_weights(TINY_VQ, llamagen_vq.FAMILY, seed=1)
  torch_files.write(tmp_path / "a.pt", {"model": source, "ema": average, "steps": 5})
  for options, expected in (((), source), (("--ema",), average)):
    result = run(llamagen_vq.main, tmp_path / "a.pt", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    params = checkpoints.flatten(checkpoints.load(tmp_path / "out").params)
    assert_same(engine.to_state_dict(params, llamagen_vq.FAMILY, TINY_VQ), expected)
  assert checkpoints.read_config(tmp_path / "out")["meta"]["source_weights"] == "ema"


def test_wrappers_are_searched_in_their_order():
  first, second, third = ({"a": ArrayTensor(np.float32(i))} for i in range(3))
  assert engine.unwrap({"state_dict": third, "module": second, "model": first}) == first
  assert engine.unwrap({"state_dict": third, "module": second}) == second
  assert engine.unwrap({"steps": 4, "state_dict": third}) == third
  assert engine.unwrap(first) == first
  for content in ({}, {"optimizer": {}}, [1], 3, {"ema": first}):
    with pytest.raises(ValueError, match="Must have a state dict"):
      engine.unwrap(content)


def test_wrappers_in_wrappers_are_opened():
  state_dict = {"a": ArrayTensor(np.float32(0))}
  assert engine.unwrap({"epoch": 3, "trainer": {"state_dict": {"module": state_dict}}}) == state_dict
  assert engine.unwrap({"ema": {"module": state_dict}, "model": {}}, ema=True) == state_dict
  trainer = {"epoch": 3, "trainer": {"var_wo_ddp": state_dict, "vae_local": {}}, "args": {}}
  assert engine.unwrap(trainer, wrappers=("var_wo_ddp",)) == state_dict
  circle = {}
  circle["model"] = circle
  assert engine.unwrap(circle) == circle  # no tensors of a network, an error of matching


@pytest.mark.parametrize(
  ("written", "read"),
  [
    ("_orig_mod.norm.weight", "norm.weight"),
    ("module.norm.weight", "norm.weight"),
    ("module._orig_mod.norm.weight", "norm.weight"),
    ("_orig_mod.module.norm.weight", "norm.weight"),
    ("module.module.norm.weight", "norm.weight"),
    ("layers.0._orig_mod.attention._checkpoint_wrapped_module.wo", "layers.0.attention.wo"),
    ("_fsdp_wrapped_module.norm._orig_mod", "norm._orig_mod"),
    ("a_orig_mod.module.b", "a_orig_mod.module.b"),
  ],
)
def test_what_compilers_and_devices_add_to_names_is_dropped(written, read):
  tensor = ArrayTensor(np.float32(0))
  assert engine.unwrap({"model": {written: tensor}}) == {read: tensor}
  assert engine.unwrap({written: tensor, "step": 3}) == {read: tensor, "step": 3}


def test_names_that_would_become_one_are_left():
  both = {"module.a": ArrayTensor(np.float32(0)), "module._orig_mod.a": ArrayTensor(np.float32(1))}
  assert engine.unwrap(both) == both
  some = {"module.a": ArrayTensor(np.float32(0)), "b": ArrayTensor(np.float32(1))}
  assert engine.unwrap(some) == some


def test_files_of_training_scripts_are_read_under_every_suffix(tmp_path):
  expected = random_params(TINY)
  state_dict = {f"module._orig_mod.{name}": array for name, array in official_weights(TINY, llamagen.FAMILY).items()}
  for name in ("a.bin", "A.PT", "a.Ckpt"):
    torch_files.write(tmp_path / name, {"model": state_dict})
  save_file(state_dict, tmp_path / "A.SAFETENSORS")
  options = ("--config", write_fields(tmp_path, {"num_heads": 2, "num_tokens": 9}))
  for name in ("a.bin", "A.PT", "a.Ckpt", "A.SAFETENSORS"):
    result = run(llamagen.main, tmp_path / name, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    assert_same(leaves_of(tmp_path / "out"), expected)
