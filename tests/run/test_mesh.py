"""Meshes: their names, how networks are divided, and decodes on eight devices and in two processes."""

import dataclasses

import jax
import pytest
from jax.sharding import PartitionSpec

from jaxspec.core import mesh
from jaxspec.io import checkpoints
from jaxspec.methods import Speculative
from jaxspec.models.chameleon.chameleon import ChameleonConfig, chameleon_fns
from jaxspec.models.janus import JanusConfig, janus_fns
from jaxspec.models.language.emu3 import Emu3Config, emu3_fns
from jaxspec.models.language.gpt_neo import GPTNeoConfig, gpt_neo_fns
from jaxspec.models.language.llama import LlamaConfig, llama_fns
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.models.mar.mar import MARConfig
from jaxspec.run.loading import load_pipeline
from tests import devices
from tests.run import on_devices


@pytest.mark.parametrize("text", ["", "data", "data=0", "data=2,data=2", "rows=2", "data=2;model=2", "model=-1", "data=1.5"])
def test_what_is_no_mesh(text):
  with pytest.raises(ValueError, match="Must have a mesh such as data=2,model=4"):
    mesh.parse(text)


def test_names_of_meshes():
  assert mesh.parse(" model=4, data=2") == (2, 4) and mesh.parse("data=3") == mesh.MeshSizes(3, 1)
  with pytest.raises(ValueError, match="Must have 4096 devices for the mesh model=4096, we instead got"):
    mesh.make_mesh("model=4096")
  made = mesh.make_mesh("data=1")
  assert mesh.make_mesh(made) is made
  with pytest.raises(ValueError, match="automatic axes data and model"):
    mesh.make_mesh(jax.make_mesh((1,), ("x",)))


@pytest.mark.slow
def test_one_device_is_a_mesh_too(classes):
  kwargs = dict(tokenizer=classes / "vq", draft=classes / "draft")
  on_mesh, plain = (load_pipeline(classes / "target", **kwargs, **more) for more in ({"mesh": "data=1"}, {}))
  one, other = (pipe([4, 1], key=jax.random.key(0), method=Speculative(gamma=2)) for pipe in (on_mesh, plain))
  assert one.tokens.tolist() == other.tokens.tolist() and (one.images == other.images).all()


FAMILIES = {
  "llamagen": (llamagen_fns, LlamaGenConfig(num_layers=1, dim=16, num_heads=2, num_kv_heads=2, multiple_of=8)),
  "llama": (llama_fns, LlamaConfig(num_layers=1, dim=16, num_heads=2, ffn_hidden=8, attention_bias=True)),
  "chameleon": (chameleon_fns, ChameleonConfig(num_layers=1, dim=16, num_heads=2, ffn_hidden=8)),
  "emu3": (emu3_fns, Emu3Config(num_layers=1, dim=16, num_heads=4, num_kv_heads=2, ffn_hidden=8)),
  "janus": (janus_fns, JanusConfig(num_layers=1, dim=16, num_heads=2, ffn_hidden=8, head_hidden=8)),
  "gpt_neo": (gpt_neo_fns, GPTNeoConfig(num_layers=1, dim=16, num_heads=2, vocab_size=64)),
}
VOCAB = ("tok_embeddings", "output", "embed_tokens", "lm_head", "vision_head", "wte")  # token tables and output heads
COPIED = ("cls_embedding.", "wpe.", "gen_embed.", "gen_aligner.")  # matrices that every device keeps whole
BIASES = tuple(f"{name}.bias" for name in ("c_fc", "q_proj", "k_proj", "v_proj", "output_mlp_projector", "vision_head"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_matrix_is_divided(family):
  """A matrix with an unlisted name would be copied to all devices, and a larger network would not fit."""
  make, config = FAMILIES[family]
  params = jax.eval_shape(make(dataclasses.replace(config, tensor_parallel=True)).init, jax.random.key(0))
  specs = checkpoints.flatten(mesh.param_specs(params, 2, tied=getattr(config, "tie_embeddings", False)))
  blocks = checkpoints.flatten(mesh.param_specs(params, 2, vocab=False))
  of_vocab = {name for name in specs if blocks[name] != specs[name]}
  assert all(blocks[name] == PartitionSpec() for name in of_vocab)
  assert of_vocab == {name for name in specs if set(name.split(".")) & set(VOCAB)}
  for name, leaf in checkpoints.flatten(params).items():
    is_norm = leaf.ndim < 2 or "_norm." in name
    if name.startswith(COPIED) or (is_norm and not name.endswith(BIASES)):
      assert specs[name] == PartitionSpec(), name
    else:
      assert "model" in tuple(specs[name]), name


def test_vocabularies_of_any_size():
  """A table that the axis does not divide stays whole; the blocks are still divided."""
  config = GPTNeoConfig(num_layers=1, dim=16, num_heads=4, vocab_size=50257, tensor_parallel=True)
  params = jax.eval_shape(gpt_neo_fns(config).init, jax.random.key(0))
  specs = checkpoints.flatten(mesh.param_specs(params, 4, tied=True))
  assert specs["wte.weight"] == PartitionSpec() and specs["h_0.attn.q_proj.weight"] == PartitionSpec("model")
  assert checkpoints.flatten(mesh.param_specs(params, 29, tied=True))["wte.weight"] == PartitionSpec("model")  # 50257 / 1733


def test_networks_that_cannot_be_divided():
  for config, words in (
    (LlamaGenConfig(num_layers=1, dim=24, num_heads=6), r"divides the 6 heads of here \(one of 1, 2\), .* model=4"),
    (LlamaConfig(num_heads=32, num_kv_heads=2), r"divides the 2 key and value heads of here \(one of 1, 2\)"),
    (LlamaConfig(num_heads=8, num_kv_heads=8, ffn_hidden=18), r"divides the 18 units of an MLP of here \(one of 1, 2\)"),
    (MARConfig(), "model=1 for here, whose networks are copied to all devices, we instead got 4"),
  ):
    with pytest.raises(ValueError, match=words):
      mesh.check_fits(config, 4, "here")
    mesh.check_fits(config, 1, "here")


PROGRAM = "tests.run.on_devices"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def eight_devices(folder):
  """Results of eight devices; the folder has the networks and the tokens of one device."""
  return devices.output_of(devices.run(PROGRAM, folder, devices=8))


@pytest.mark.slow
def test_tokens_on_eight_devices_are_those_of_one(eight_devices):
  expected = sum(len(meshes) for methods in on_devices.MESHES.values() for meshes in methods.values())
  assert len(eight_devices["tokens"]) == expected
  assert [name for name, same in eight_devices["tokens"].items() if not same] == []
  assert max(eight_devices["logits"].values()) <= 1e-4


@pytest.mark.slow
def test_devices_exchange_what_the_table_names(eight_devices):
  """A pass has two sums per block, and gathers embeddings of ids and logits.

  A program has the pass of the prefill, whose condition has no divided table, and that of the loop. Groups do not exchange
  rows, so nothing but these stands in it: groups whose loops end at different rounds would wait for each other forever.
  """
  assert len(eight_devices["collectives"]) == len(eight_devices["tokens"])
  for name, found in eight_devices["collectives"].items():
    if name.endswith(", data=8"):
      assert found == {}, name
    else:
      sums = 2 * 2 * on_devices.LAYERS[name.partition(",")[0]]
      assert set(found) == {"all-reduce", "all-gather"} and found["all-reduce"] == sums, (name, found)
    if name.startswith("images, speculative, model"):
      assert found["all-gather"] == 1 + 2, (name, found)
    elif name.startswith("codes, sjd, model"):
      assert found["all-gather"] == 1 + 1, (name, found)  # embeddings only: an output head of an odd vocabulary is whole


@pytest.mark.slow
def test_two_processes_give_the_tokens_of_one(eight_devices, folder):
  """The reference is the same as for eight devices of one process: the tokens of one device."""
  address = devices.free_address()
  processes = [devices.run(PROGRAM, folder, address, 2, number, devices=4) for number in range(2)]
  for found in [devices.output_of(process) for process in processes]:
    assert len(found["tokens"]) == len(on_devices.OF_PROCESSES) and all(found["tokens"].values()), found
