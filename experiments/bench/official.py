"""Plain decoding beside the official LlamaGen sampler (github.com/FoundationVision/LlamaGen), eager and compiled.

Greedy tokens with guidance are compared. Timed images are sampled as released: guidance 4, top-k 2000.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from conversion import engine
from conversion.llamagen import FAMILY
from experiments.bench.beside import OURS, Beside, Program, official_part, with_weights
from experiments.bench.memory import write_source
from jaxspec.io import checkpoints
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig

SCALE, TOP_K, LABEL = 4.0, 2000, 207


@dataclasses.dataclass(frozen=True, kw_only=True)
class Official(Beside):
  """Plain decoding of a published size.

  Attributes:
    size: a published one.
    tokens: of an image, a square number.
    compiled: measure the official code under ``torch.compile``, too.
  """

  size: str = "GPT-B"
  tokens: int = 256
  compiled: bool = True
  kind: ClassVar[str] = "official"
  repository: ClassVar[str] = "FoundationVision/LlamaGen"
  modules: ClassVar[tuple[str, ...]] = ("autoregressive.models.gpt", "autoregressive.models.generate")

  def facts(self) -> dict[str, Any]:
    """See `Beside.facts`."""
    return {"size": self.size, "tokens": self.tokens}

  def programs(self, folder: Path) -> dict[str, Program]:
    """See `Beside.programs`."""
    config = LlamaGenConfig.named(self.size, num_tokens=self.tokens)
    write_source(config, folder / "source.pt", FAMILY, distinct=True)
    fields = {"num_heads": config.num_heads, "num_tokens": config.num_tokens}
    engine.convert_file(folder / "source.pt", folder / OURS, FAMILY, fields)
    programs = {OURS: ours(folder / OURS, self.tokens)}
    eager, compiled = self.official(config, folder / "source.pt")
    programs["official, eager"] = eager
    if self.compiled:
      programs["official, torch.compile"] = compiled
    return programs

  def official(self, config: LlamaGenConfig, source: Path) -> tuple[Program, Program]:
    """The official code, eager and compiled."""
    import torch

    models, sample = official_part(self.modules[0], "GPT_models"), official_part(self.modules[1], "generate")
    model = models[self.size](
      vocab_size=config.vocab_size, block_size=config.num_tokens, num_classes=config.num_classes, cls_token_num=1,
      model_type="c2i",
    )  # fmt: skip
    model = with_weights(model, source)
    labels = torch.tensor([LABEL])

    def draw(network: Any, is_greedy: bool) -> np.ndarray:
      settings = dict(temperature=1.0, top_k=0 if is_greedy else TOP_K, top_p=1.0, sample_logits=not is_greedy)
      tokens = sample(network, labels, config.num_tokens, cfg_scale=SCALE, cfg_interval=-1, **settings)
      return tokens[0].numpy()

    program = lambda network: Program(functools.partial(draw, network, True), functools.partial(draw, network, False))
    return program(model), program(torch.compile(model, fullgraph=True))


def ours(folder: Path, tokens: int) -> Program:
  """This library."""
  network = checkpoints.load(folder)
  sampled = Decoder(network, sampling=SamplingConfig(cfg_scale=SCALE, top_k=TOP_K))
  greedy = Decoder(network, sampling=SamplingConfig(cfg_scale=SCALE, temperature=0.0))
  labels, turn = ClassLabels(jnp.asarray([LABEL], jnp.int32)), iter(range(10**9))

  def draw(decoder: Decoder) -> np.ndarray:
    return np.asarray(decoder(labels, key=jax.random.key(next(turn)), max_len=tokens).tokens[0])

  return Program(functools.partial(draw, greedy), functools.partial(draw, sampled))
