"""Decodes tiny random networks on one device and on meshes, in this process or in several; prints one JSON line.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.run.on_devices FOLDER

After that, process 0 of two with four devices each::

    XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m tests.run.on_devices FOLDER ADDRESS 2 0
"""

import dataclasses
import shutil
import sys
from pathlib import Path

import jax
import numpy as np

from jaxspec.io import checkpoints
from jaxspec.io.bundle import write_bundle
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.conditions import Prefixed
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.janus import JanusConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.planning import program_text
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from tests import devices
from tests.models import emu3_golden, janus_golden
from tests.run import tiny, tiny_chameleon

# Blocks of the targets. Every one is compiled for every mesh, so only one kind has two, to count exchanges per block.
LAYERS = {"images": 1, "texts": 2, "codes": 1, "janus": 1, "emu3": 1}
ROWS, LENGTHS = 8, {"texts": 8}
BOTH, MODEL, DATA = "data=2,model=4", "model=8", "data=8"
COPIED = ("vectors", "masked")  # kinds of networks that are copied to every device
IMAGES = LlamaGenConfig(
  num_layers=LAYERS["images"], dim=64, num_heads=8, vocab_size=16, num_tokens=9, num_classes=7, multiple_of=64
)
TEXTS = dataclasses.replace(
  tiny.LLAMA, num_layers=LAYERS["texts"], dim=64, num_heads=16, num_kv_heads=8, ffn_hidden=64, vocab_size=264,
  max_positions=64,
)  # fmt: skip
_ODD = tiny_chameleon.CONFIG.vocab_size // 2 * 2 + 1  # tables not divided by any mesh
CODES = dataclasses.replace(
  tiny_chameleon.CONFIG, num_layers=LAYERS["codes"], dim=64, num_heads=8, ffn_hidden=64, vocab_size=_ODD, rows=3, columns=3
)
JANUS = JanusConfig(
  vocab_size=16, text_vocab_size=448, dim=64, num_layers=LAYERS["janus"], num_heads=8, ffn_hidden=64, head_hidden=32, rows=3,
  columns=3, begin_text=400, begin_image=403, pad=402,
)  # fmt: skip
# Every program takes seconds to compile: all kinds of rounds in groups that are divided, chains (of vectors) and trees in
# groups of one device; all kinds of networks on one mesh that divides them; and by all devices where exchanges are counted.
MESHES = {
  "images": {"speculative": (MODEL,), "sjd": (BOTH,), "eagle": (BOTH, DATA)},
  "texts": {"speculative": (BOTH,)}, "janus": {"speculative": (BOTH,)}, "codes": {"sjd": (MODEL,)},
  "emu3": {"sjd": (MODEL,)}, "vectors": {"cspd": (DATA,)}, "masked": {"ar": (DATA,)},
}  # fmt: skip
# Decodes of two processes: groups that never meet, and networks that the processes divide.
OF_PROCESSES = {("images", "sjd"): BOTH, ("codes", "sjd"): MODEL}
EXPECTED = "one.npz"  # tokens of one device, by kind and method


def make_bundles(path: Path) -> None:
  """Images with a small draft and an EAGLE head, texts with grouped queries and a small draft, codes, Janus with
  a small draft, and continuous tokens."""
  tiny.save(path / "images/vq", dataclasses.replace(tiny.VQ, image_size=12, num_codes=16), 0)
  tiny.save(path / "images/target", IMAGES, 2, scale=0.2)
  tiny.save(path / "images/small", dataclasses.replace(IMAGES, num_layers=1, dim=32), 3, scale=0.2)
  tiny.save(path / "images/feature", EagleConfig.of(IMAGES), 5, scale=0.2)
  write_bundle(
    path / "images", target="target", drafts={"small": "small", "feature": "feature"}, parts={"tokenizer": "vq"},
    sampling={"cfg_scale": 2.0}, options={"gamma": 3, "window": 4, "tree_size": 8, "tree_top_k": 3, "tree_depth": 3},
  )  # fmt: skip
  tiny.save(path / "texts/target", TEXTS, 7, scale=0.2)
  tiny.save(path / "texts/small", dataclasses.replace(TEXTS, num_layers=1, num_kv_heads=None), 8, scale=0.2)
  for name in ("target", "small"):
    tiny.byte_tokenizer().save(str(path / "texts" / name / TOKENIZER_FILE))
  write_bundle(path / "texts", target="target", drafts={"small": "small"}, options={"gamma": 3})
  tiny.save(path / "codes/target", CODES, 9, scale=0.2)
  tiny.save(path / "codes/vq", tiny_chameleon.VQ, 10)
  tiny.vectors(path / "vectors", tiny.CAUSAL)
  tiny.vectors(path / "masked", tiny.MAR)
  tiny_chameleon.text_tokenizer().save(str(path / "codes/target" / TOKENIZER_FILE))
  tiny.save(path / "janus/target", JANUS, 11, scale=0.2)
  tiny.save(path / "janus/small", dataclasses.replace(JANUS, dim=32), 12, scale=0.2)
  tiny.save(path / "janus/vq", dataclasses.replace(tiny.VQ, image_size=12, num_codes=16), 0)
  shutil.copyfile(janus_golden.FOLDER / "target" / TOKENIZER_FILE, path / "janus/target" / TOKENIZER_FILE)
  write_bundle(
    path / "janus", target="target", drafts={"small": "small"}, parts={"tokenizer": "vq"}, sampling={"cfg_scale": 2.0},
    options={"gamma": 3},
  )  # fmt: skip
  emu3 = checkpoints.load(emu3_golden.convert(path / "released", ratio="1:1", area=9 * 2**2), weights=False)
  divided = dict(num_layers=LAYERS["emu3"], dim=64, num_heads=16, num_kv_heads=8, ffn_hidden=64)
  tiny.save(path / "emu3/target", dataclasses.replace(emu3.config, **divided), 13, scale=0.2)
  shutil.copyfile(emu3.folder / TOKENIZER_FILE, path / "emu3/target" / TOKENIZER_FILE)
  shutil.copytree(emu3.folder / "vq", path / "emu3/vq")
  sampling = {"cfg_scale": 3.0, "top_k": 6}
  write_bundle(path / "emu3", target="target", parts={"tokenizer": "vq"}, sampling=sampling, options={"window": 4})
  # Without the released top-p: programs with few optimisations may compute the logits twice, with different nuclei.
  sampling, options = {"cfg_scale": 3.0, "top_k": 6}, {"window": 4}
  write_bundle(path / "codes", target="target", parts={"tokenizer": "vq"}, sampling=sampling, options=options)


def prompts(kind: str) -> list:
  """``ROWS`` prompts."""
  classes = {"images": 7, "vectors": 3, "masked": 3}.get(kind)
  return [row % classes for row in range(ROWS)] if classes else ["on ice", "once", "nice", "on"] * (ROWS // 4)


def decode(pipeline: Pipeline, kind: str, method: str) -> np.ndarray:
  """Tokens ``[ROWS, N]``."""
  return np.asarray(pipeline(prompts(kind), key=jax.random.key(1), method=method, max_len=LENGTHS.get(kind)).tokens)


def compiled(pipeline: Pipeline, kind: str, method: str) -> tuple[np.ndarray, dict[str, int]]:
  """Tokens of a compiled decode, and the exchanges of its devices before the results are gathered."""
  job = pipeline.job(prompts(kind), method=method, max_len=LENGTHS.get(kind), seed=1)
  batches = job.batches(ROWS)
  inputs = job.decoder.parts.params, *pipeline.place((batches.key_data[0], batches.condition[0]))
  with pipeline.context():
    program = jax.jit(pipeline.decode_fn(job.decoder, job.max_len, ends=job.ends)).lower(*inputs).compile()
    return np.asarray(program(*inputs).tokens), program_text.exchanges(program.as_text().splitlines())


def logits(pipeline: Pipeline) -> np.ndarray:
  """Logits of one teacher-forced pass over random image tokens."""
  tokens = np.random.default_rng(0).integers(0, IMAGES.vocab_size, (ROWS, IMAGES.num_tokens - 1)).astype(np.int32)
  inputs = Prefixed(pipeline.encode(prompts("images")).condition, tokens)
  apply = lambda params, inputs: pipeline.target.fns.apply(params, inputs, None, positions=None)[0].logits
  with pipeline.context():
    return np.asarray(jax.jit(apply)(pipeline.target.params, jax.tree.map(jax.numpy.asarray, inputs)))


def main(path: Path) -> dict:
  """All results for the tests, in one process; the folder receives the tokens of one device."""
  found, expected = {"tokens": {}, "logits": {}, "collectives": {}}, {}
  for kind, methods in MESHES.items():
    one = load_pipeline(path / kind)
    expected |= {f"{kind} {method}": decode(one, kind, method) for method in methods}
    logits_of_one = logits(one) if kind == "images" else None
    for mesh in dict.fromkeys(mesh for meshes in methods.values() for mesh in meshes):
      pipeline = load_pipeline(path / kind, mesh=mesh)
      for method in [method for method, meshes in methods.items() if mesh in meshes]:
        name = f"{kind}, {method}, {mesh}"
        tokens, found["collectives"][name] = compiled(pipeline, kind, method)
        found["tokens"][name] = same(kind, tokens, expected[f"{kind} {method}"])
        print(f"{name}: {found['tokens'][name]}", file=sys.stderr, flush=True)
      if kind == "images":
        found["logits"][mesh] = float(np.max(np.abs(logits(pipeline) - logits_of_one)))
  np.savez(path / EXPECTED, **expected)
  return found


def same(kind: str, tokens: np.ndarray, expected: np.ndarray) -> bool:
  """Whether tokens equal those of one device."""
  # Products of one row are rounded differently from those of eight; these tokens have components up to 1e5.
  return bool(np.allclose(tokens, expected, rtol=1e-5, atol=0) if kind in COPIED else np.array_equal(tokens, expected))


def in_processes(path: Path) -> dict:
  """Tokens on devices of several processes, compared with those that `main` saved."""
  found = {}
  with np.load(path / EXPECTED) as expected:
    for (kind, method), mesh in OF_PROCESSES.items():
      pipeline = load_pipeline(path / kind, mesh=mesh)
      found[f"{kind}, {method}, {mesh}"] = same(kind, decode(pipeline, kind, method), expected[f"{kind} {method}"])
  return {"tokens": found}


if __name__ == "__main__":
  devices.program(make_bundles, main, in_processes)
