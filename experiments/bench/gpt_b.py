"""Plain decoding of GPT-B (class-conditional, 256 tokens, guidance) against eager PyTorch.

Needs ``pip install 'jaxspec-decoding[bench]'``.

Both sides have random weights of the same shapes, float32, batch 1, guidance 4, every token sampled. The PyTorch side is
the transformers library's Llama of the same size (12 layers, width 768, 12 heads, SwiGLU 2048, vocabulary 16384) with a
static cache, run eagerly like the official sampler. The two alternate in one process; figures are medians.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from experiments.engine.experiment import Experiment, Lab, provenance
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.planning.this_machine import bandwidth
from jaxspec.run import measure

SCALE, TOKENS = 4.0, 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptB(Experiment):
  """``repeats`` pairs of decodes, and the bandwidth of this machine's memory."""

  repeats: int = 5
  kind: ClassVar[str] = "eager"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    run_jax, streamed = jax_decoder()
    run_torch, torch = torch_decoder()
    started = time.perf_counter()
    run_jax(0)
    compile_s = time.perf_counter() - started
    run_torch(0)
    wall: dict[str, list[float]] = {"jax": [], "torch": []}
    cpu: dict[str, list[float]] = {"jax": [], "torch": []}
    for repeat in range(self.repeats):
      for name, run in (("jax", run_jax), ("torch", run_torch)):
        before = time.process_time(), time.perf_counter()
        run(repeat + 1)
        cpu[name].append(time.process_time() - before[0])
        wall[name].append(time.perf_counter() - before[1])
    read, median = bandwidth(512), lambda x: measure.Timing.of(x).median
    return {
      "tokens_per_s": {k: TOKENS / median(v) for k, v in wall.items()},
      "tokens_per_cpu_s": {k: TOKENS / median(v) for k, v in cpu.items()},
      "ratio_wall": measure.pairwise_ratio(wall["torch"], wall["jax"])._asdict(),
      "ratio_cpu": measure.pairwise_ratio(cpu["torch"], cpu["jax"])._asdict(),
      "first_call_s": compile_s,
      "streamed_mb_per_step": streamed / 1e6,
      "memory_read_gb_per_s": read / 1e9,
      "share_of_memory_floor": TOKENS * streamed / read / median(wall["jax"]),
      "threads": torch.get_num_threads(),
      "versions": provenance()["versions"] | {"torch": torch.__version__},
      "repeats": self.repeats,
    }


def jax_decoder():
  """A callable that decodes one image's tokens in JAX."""
  fns = llamagen_fns(LlamaGenConfig.named("GPT-B"))
  template = jax.eval_shape(fns.init, jax.random.key(0))
  generator = np.random.default_rng(0)
  draw = lambda leaf: jnp.asarray(
    generator.normal(size=leaf.shape) * 0.02 if leaf.ndim > 1 else np.ones(leaf.shape), jnp.float32
  )
  params = jax.tree.map(draw, template)
  verifier = jaxspec.TargetVerifier(guided(fns), jaxspec.lossless, warp=jaxspec.Warp())
  side = jaxspec.ModelParams(Guided(params, jnp.float32(SCALE)), jaxspec.sampling_params())
  spec, condition = jaxspec.SpecParams((), side), ClassLabels(jnp.asarray([207], jnp.int32))
  streamed = sum(leaf.nbytes for path, leaf in jax.tree_util.tree_leaves_with_path(params) if "embed" not in str(path))

  def decode(seed: int):
    out = jaxspec.autoregress(spec, jax.random.key(seed), condition, verifier=verifier, max_len=TOKENS)
    return jax.block_until_ready(out.tokens)

  return decode, streamed


def torch_decoder(device: str = "cpu", dtype=None, num_layers: int = 12):
  """The same in eager PyTorch; ``dtype`` is float32 by default."""
  import torch
  from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

  config = LlamaConfig(
    vocab_size=16384, hidden_size=768, intermediate_size=2048, num_hidden_layers=num_layers, num_attention_heads=12,
    max_position_embeddings=264, tie_word_embeddings=False, attn_implementation="sdpa",
  )  # fmt: skip
  torch.manual_seed(0)
  model = LlamaForCausalLM(config).eval().to(device, dtype)

  @torch.inference_mode()
  def decode(seed: int):
    generator = torch.Generator(device).manual_seed(seed)
    cache = StaticCache(config=config, max_cache_len=264)
    token = torch.full((2, 1), 207, device=device)
    tokens = []
    for position in range(TOKENS):
      where = torch.tensor([position], device=device)
      output = model(input_ids=token, past_key_values=cache, cache_position=where, position_ids=where[None])
      cond, uncond = output.logits[:, -1].float().split(1)
      probs = torch.softmax(uncond + (cond - uncond) * SCALE, dim=-1)
      token = torch.multinomial(probs, 1, generator=generator)
      tokens.append(int(token))
      token = token.expand(2, 1)
    return tokens

  return decode, torch
