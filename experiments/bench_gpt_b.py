"""Plain decoding of GPT-B (class-conditional, 256 tokens, guidance) against eager PyTorch.

Command (needs ``pip install 'jaxspec-decoding[bench]'``)::

    python -m experiments.bench_gpt_b --out experiments/results

Both sides have random weights of the same shapes, float32, batch 1, guidance 4, every token sampled. The PyTorch side is
the transformers library's Llama of the same size (12 layers, width 768, 12 heads, SwiGLU 2048, vocabulary 16384) with a
static cache, run eagerly as the official sampler runs. The two alternate in one process; figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from jaxspec.decode import measure
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns

SCALE, TOKENS = 4.0, 256


def jax_decoder():
  """A callable that decodes one picture's tokens in JAX."""
  fns = llamagen_fns(LlamaGenConfig.named("GPT-B"))
  template = jax.eval_shape(fns.init, jax.random.key(0))
  generator = np.random.default_rng(0)
  draw = lambda leaf: jnp.asarray(
    generator.normal(size=leaf.shape) * 0.02 if leaf.ndim > 1 else np.ones(leaf.shape), jnp.float32
  )
  params = jax.tree.map(draw, template)
  verifier = jaxspec.target_model(jaxspec.guided(fns), jaxspec.lossless, warp=jaxspec.Warp())
  side = jaxspec.ModelParams(jaxspec.Guided(params, jnp.float32(SCALE)), jaxspec.sampling_params())
  spec, condition = jaxspec.SpecParams((), side), ClassLabels(jnp.asarray([207], jnp.int32))
  streamed = sum(
    leaf.nbytes for path, leaf in jax.tree_util.tree_leaves_with_path(params) if "embed" not in str(path)
  )

  def decode(seed: int):
    out = jaxspec.autoregress(spec, jax.random.key(seed), condition, verifier=verifier, max_len=TOKENS)
    return jax.block_until_ready(out.tokens)

  return decode, streamed


def torch_decoder():
  """The same in eager PyTorch."""
  import torch
  from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

  config = LlamaConfig(
    vocab_size=16384, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
    max_position_embeddings=264, tie_word_embeddings=False, attn_implementation="sdpa",
  )  # fmt: skip
  torch.manual_seed(0)
  model = LlamaForCausalLM(config).eval()

  @torch.inference_mode()
  def decode(seed: int):
    generator = torch.Generator().manual_seed(seed)
    cache = StaticCache(config=config, max_cache_len=264)
    token = torch.full((2, 1), 207)
    tokens = []
    for position in range(TOKENS):
      where = torch.tensor([position])
      output = model(input_ids=token, past_key_values=cache, cache_position=where, position_ids=where[None])
      cond, uncond = output.logits[:, -1].float().split(1)
      probs = torch.softmax(uncond + (cond - uncond) * SCALE, dim=-1)
      token = torch.multinomial(probs, 1, generator=generator)
      tokens.append(int(token))
      token = token.expand(2, 1)
    return tokens

  return decode, torch


def bandwidth(megabytes: int = 512) -> float:
  """Bytes per second of reading memory: the sum of a large array, all cores."""
  data = jnp.ones((megabytes * 2**18,), jnp.float32)
  add = jax.jit(lambda x: jnp.sum(x.reshape(64, -1), axis=1))
  seconds = measure.alternate({"read": lambda: add(data)}, 5)["read"]
  return data.nbytes / min(seconds)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--repeats", type=int, default=5)
  parser.add_argument("--out", type=Path)
  args = parser.parse_args()
  run_jax, streamed = jax_decoder()
  run_torch, torch = torch_decoder()
  started = time.perf_counter()
  run_jax(0)
  compile_s = time.perf_counter() - started
  run_torch(0)
  wall: dict[str, list[float]] = {"jax": [], "torch": []}
  cpu: dict[str, list[float]] = {"jax": [], "torch": []}
  for repeat in range(args.repeats):
    for name, run in (("jax", run_jax), ("torch", run_torch)):
      before = time.process_time(), time.perf_counter()
      run(repeat + 1)
      cpu[name].append(time.process_time() - before[0])
      wall[name].append(time.perf_counter() - before[1])
  read = bandwidth()
  median = lambda x: measure.Timing.of(x).median
  report = {
    "tokens_per_s": {k: TOKENS / median(v) for k, v in wall.items()},
    "tokens_per_cpu_s": {k: TOKENS / median(v) for k, v in cpu.items()},
    "ratio_wall": measure.pairwise_ratio(wall["torch"], wall["jax"])._asdict(),
    "ratio_cpu": measure.pairwise_ratio(cpu["torch"], cpu["jax"])._asdict(),
    "first_call_s": compile_s,
    "streamed_mb_per_step": streamed / 1e6,
    "memory_read_gb_per_s": read / 1e9,
    "share_of_memory_floor": TOKENS * streamed / read / median(wall["jax"]),
    "threads": {"torch": torch.get_num_threads(), "cpus": os.cpu_count()},
    "versions": {"jax": jax.__version__, "torch": torch.__version__},
    "repeats": args.repeats,
  }
  table = "\n".join(
    [
      "| GPT-B c2i, random weights, guidance, float32, batch 1 | tokens/s | tokens per CPU-second |",
      "|---|---|---|",
      *(f"| {n} | {report['tokens_per_s'][n]:.1f} | {report['tokens_per_cpu_s'][n]:.1f} |" for n in ("jax", "torch")),
      "| ratio (median, lowest–highest of pairs) | "
      + " | ".join("{median:.2f} ({low:.2f}–{high:.2f})".format(**report[k]) for k in ("ratio_wall", "ratio_cpu"))
      + " |",
      "",
      f"Memory floor ({streamed / 1e6:.0f} MB a step at {read / 1e9:.1f} GB/s): "
      f"{100 * report['share_of_memory_floor']:.0f} % reached. First call {compile_s:.1f} s.",
    ]
  )
  print(table)
  if args.out is not None:
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpt_b.json").write_text(json.dumps(report, indent=2) + "\n")
    (args.out / "gpt_b.md").write_text(table + "\n")


if __name__ == "__main__":
  main()
