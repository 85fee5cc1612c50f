"""Names of networks, and checkpoints without their weights."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from jaxspec.errors import CheckpointError
from jaxspec.io import checkpoints
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from tests.cli import fake_bundle


def test_a_network_is_known_without_its_weights(tmp_path):
  """The name depends on weights and config, not on the folder, the compute dtype, or the writer of the file."""
  config = fake_bundle.CLASS_DRAFT
  save = lambda name, config, seed: fake_bundle.save_random(tmp_path / name, config, seed)
  first, same, other = save("a", config, 0), save("b", config, 0), save("c", config, 1)
  wider = save("d", dataclasses.replace(config, rope_base=2.0 * config.rope_base), 0)
  name = checkpoints.digest(first)
  assert len(name) == 32 and checkpoints.digest(same) == name
  assert len({name, checkpoints.digest(other), checkpoints.digest(wider)}) == 3
  whole = checkpoints.load(first, dtype=jnp.bfloat16)
  (first / checkpoints.PARAMS_FILE).unlink()
  assert checkpoints.digest(first) == name
  bare = checkpoints.load(first, dtype=jnp.bfloat16, weights=False)
  shapes = lambda network: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), network.params)
  assert shapes(bare) == shapes(whole) and bare.config == whole.config
  assert whole.has_weights and not bare.has_weights
  with pytest.raises(ValueError, match="the checkpoint is incomplete"):
    checkpoints.load(first)


def test_a_network_without_a_name(tmp_path):
  folder = fake_bundle.save_random(tmp_path / "a", fake_bundle.CLASS_DRAFT, 0)
  document = json.loads((folder / checkpoints.CONFIG_FILE).read_text())
  write = lambda document: (folder / checkpoints.CONFIG_FILE).write_text(json.dumps(document))
  (folder / checkpoints.PARAMS_FILE).rename(folder / "elsewhere")
  write({key: value for key, value in document.items() if key != "sha256"})
  with pytest.raises(ValueError, match="or its sha256 in config.json, in .* to name the network"):
    checkpoints.digest(folder)
  write(document | {"sha256": 3})
  with pytest.raises(ValueError, match="'sha256' must be a string"):
    checkpoints.digest(folder)
  # An existing file takes precedence over the record of another one.
  (folder / "elsewhere").rename(folder / checkpoints.PARAMS_FILE)
  write(document | {"sha256": "00"})
  found = checkpoints.digest(folder)
  write(document)
  assert checkpoints.digest(folder) == found


def test_networks_of_another_family_are_not_replaced(tmp_path):
  folder = fake_bundle.save_random(tmp_path / "a", fake_bundle.CLASS_DRAFT, 0)
  before = checkpoints.digest(folder)
  with pytest.raises(CheckpointError, match="a new folder or a checkpoint of gpt_neo to write to, .* holds a llamagen$"):
    checkpoints.save(folder, GPTNeoConfig(), {})
  assert checkpoints.digest(folder) == before
  checkpoints.check_destination(folder, family="llamagen")


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
  """As that of an unset variable."""
  monkeypatch.chdir(fake_bundle.save_random(tmp_path / "a", fake_bundle.CLASS_DRAFT, 0))
  assert checkpoints.load(".").has_weights
  for call in (checkpoints.load, checkpoints.digest, checkpoints.check_destination):
    with pytest.raises(ValueError, match="^Must have (the folder of a network|a folder to write to), we instead got ''$"):
      call("")
