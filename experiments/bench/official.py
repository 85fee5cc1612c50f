"""The official LlamaGen code beside ours, in one process and in turns.

Needs ``pip install 'jaxspec-decoding[bench]'`` and a checkout of github.com/FoundationVision/LlamaGen, named by
``--official``.

1. Random weights are written as the official code writes them. The official model loads the file; ours loads what
   ``conversion.llamagen`` makes of it.
2. Both draw the same class greedily with guidance, and the tokens are compared.
3. Both sample as released (guidance 4, top-k 2000), in turns: ours, the official code, and the official code under
   ``torch.compile``.
4. How much of the machine others used is measured before and meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from conversion import engine
from conversion.llamagen import FAMILY
from experiments.bench.memory import Folder, write_source
from experiments.engine import quiet
from experiments.engine.experiment import Experiment, Lab, provenance
from jaxspec import checkpoints
from jaxspec.decode import measure
from jaxspec.decoder import Decoder
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.network import Network
from jaxspec.sampling import SamplingConfig

SCALE, TOP_K, LABEL = 4.0, 2000, 207
MODULES = ("autoregressive.models.gpt", "autoregressive.models.generate")
# Draws tokens [N] of one image, greedily or as released.
Draw = Callable[[bool], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Official(Experiment):
  """Tokens per second of all programs, and where greedy tokens differ.

  Attributes:
    size: a published one.
    tokens: of an image, a square number.
    compiled: measure the official code under ``torch.compile``, too.
    busy: most of the machine that others may use.
  """

  size: str = "GPT-B"
  tokens: int = 256
  repeats: int = 5
  compiled: bool = True
  busy: float = 0.1
  kind: ClassVar[str] = "official"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`.

    Raises:
      ValueError: without a checkout or PyTorch, or if others use the machine.
    """
    checkout = check_checkout(lab.official)
    if importlib.util.find_spec("torch") is None:
      raise ValueError(
        "Must have PyTorch to run the official code (pip install 'jaxspec-decoding[bench]'), it is not installed"
      )
    quiet.check(self.busy)
    config = LlamaGenConfig.named(self.size, num_tokens=self.tokens)
    with Folder(lab.runs / "official") as folder, on_path(checkout):
      write_source(config, folder / "source.pt", distinct=True)
      engine.convert_file(
        folder / "source.pt", folder / "ours", FAMILY, {"num_heads": config.num_heads, "num_tokens": config.num_tokens}
      )
      programs = {"ours": ours(folder / "ours", self.tokens)}
      eager, compiled = official(config, self.size, folder / "source.pt")
      programs["official, eager"] = eager
      if self.compiled:
        programs["official, torch.compile"] = compiled
    return self._compared(programs)

  def _compared(self, programs: dict[str, Draw]) -> dict[str, Any]:
    greedy, first_s = {}, {}
    for name, draw in programs.items():
      logging.info("greedy tokens and first call: %s", name)
      greedy[name] = draw(True)
      first_s[name] = measure.seconds_of(lambda draw=draw: draw(False))
    watch = quiet.Watch()
    seconds = measure.alternate({name: lambda draw=draw: draw(False) for name, draw in programs.items()}, self.repeats)
    rows = []
    for name in programs:
      equal = greedy[name] == greedy["ours"]
      rows.append(
        {
          "label": name,
          "tokens_per_s": self.tokens / measure.Timing.of(seconds[name]).median,
          "ours_faster": measure.pairwise_ratio(seconds[name], seconds["ours"])._asdict(),
          "first_call_s": first_s[name],
          "equal": int(equal.sum()),
          "first_difference": None if equal.all() else int(np.argmin(equal)),
        }
      )
    import torch

    return {
      "size": self.size, "tokens": self.tokens, "repeats": self.repeats, "others": watch.others(), "rows": rows,
      "threads": torch.get_num_threads(), "versions": provenance()["versions"] | {"torch": torch.__version__},
    }  # fmt: skip


def check_checkout(path: Path | None) -> Path:
  """The folder, if it holds what is called.

  Raises:
    ValueError: in one line, if it does not.
  """
  if path is None:
    raise ValueError("Must have a checkout of github.com/FoundationVision/LlamaGen (--official PATH), we instead got none")
  for module in MODULES:
    if not (path / f"{module.replace('.', '/')}.py").is_file():
      raise ValueError(f"Must have a checkout of github.com/FoundationVision/LlamaGen, {path} has no {module}")
  return path


@contextlib.contextmanager
def on_path(folder: Path) -> Iterator[None]:
  """A context in which modules are found in a folder first."""
  sys.path.insert(0, str(folder.resolve()))
  try:
    yield
  finally:
    sys.path.remove(str(folder.resolve()))


def ours(folder: Path, tokens: int) -> Draw:
  """This library."""
  checkpoint = checkpoints.load(folder)
  network = Network(checkpoint.fns, checkpoint.params, checkpoint.config)
  sampled = Decoder(network, sampling=SamplingConfig(cfg_scale=SCALE, top_k=TOP_K))
  greedy = Decoder(network, sampling=SamplingConfig(cfg_scale=SCALE, temperature=0.0))
  labels, turn = ClassLabels(jnp.asarray([LABEL], jnp.int32)), iter(range(10**9))

  def draw(is_greedy: bool) -> np.ndarray:
    decoder = greedy if is_greedy else sampled
    return np.asarray(decoder(labels, key=jax.random.key(next(turn)), max_len=tokens).tokens[0])

  return draw


def official(config: LlamaGenConfig, size: str, source: Path) -> tuple[Draw, Draw]:
  """The official code, eager and compiled.

  Raises:
    ValueError: if its model does not take the tensors of the file.
  """
  import torch

  models, sampler = map(importlib.import_module, MODULES)
  model = models.GPT_models[size](
    vocab_size=config.vocab_size, block_size=config.num_tokens, num_classes=config.num_classes, cls_token_num=1,
    model_type="c2i",
  ).eval()  # fmt: skip
  missing, unexpected = model.load_state_dict(torch.load(source, weights_only=True)["model"], strict=False)
  if missing or unexpected:
    raise ValueError(f"Must have all tensors of the official model, we instead got {missing} missing, {unexpected} unknown")
  labels = torch.tensor([LABEL])

  def program(network: Any) -> Draw:
    def draw(is_greedy: bool) -> np.ndarray:
      settings = dict(temperature=1.0, top_k=0 if is_greedy else TOP_K, top_p=1.0, sample_logits=not is_greedy)
      tokens = sampler.generate(network, labels, config.num_tokens, cfg_scale=SCALE, cfg_interval=-1, **settings)
      return tokens[0].numpy()

    return draw

  return program(model), program(torch.compile(model, fullgraph=True))
