"""MAR's parallel decoding beside the official sampler (github.com/LTH14/mar).

Both draw one image with the same generation order and the same noise, and its tokens are compared. Timed images have other
orders and noise. The official code moves everything to a CUDA device; without one, its tensors stay on the CPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from conversion import engine
from conversion.mar import FAMILY
from experiments.bench.beside import OURS, Beside, Program, official_part, with_weights
from experiments.bench.memory import write_source
from jaxspec.core import orders, rng
from jaxspec.diffusion.chain import TokenNoise, token_noise
from jaxspec.io import checkpoints
from jaxspec.methods.masked_decode import generate_masked
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.mar import MARConfig
from jaxspec.sampling import unmasking

LABEL = 207
FACTORIES = {"MAR-B": "mar_base", "MAR-L": "mar_large", "MAR-H": "mar_huge"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfficialMAR(Beside):
  """Parallel decoding of a published size.

  Attributes:
    size: a published one.
    iterations: of parallel decoding.
    steps: of diffusion.
    scale: of guidance, which grows linearly.
  """

  size: str = "MAR-B"
  iterations: int = 64
  steps: int = 100
  scale: float = 2.9
  repeats: int = 3
  kind: ClassVar[str] = "official MAR"
  repository: ClassVar[str] = "LTH14/mar"
  modules: ClassVar[tuple[str, ...]] = ("models.mar", "models.diffloss")
  packages: ClassVar[tuple[str, ...]] = ("torch", "timm", "scipy", "tqdm")
  tolerance: ClassVar[float] = 1e-3

  def facts(self) -> dict[str, Any]:
    """See `Beside.facts`."""
    tokens = MARConfig.named(self.size).num_tokens
    names = ("size", "iterations", "steps", "scale")
    return {name: getattr(self, name) for name in names} | {"tokens": tokens, "tolerance": self.tolerance}

  def programs(self, folder: Path) -> dict[str, Program]:
    """See `Beside.programs`."""
    config = MARConfig.named(self.size)
    write_source(config, folder / "source.pt", FAMILY, distinct=True)
    engine.convert_file(folder / "source.pt", folder / OURS, FAMILY, {})
    keys = rng.row_keys(jax.random.key(0), 1)
    order = orders.random_order(keys, config.num_tokens)
    noise = token_noise(keys, jnp.arange(config.num_tokens)[None], self.steps, config.token_dim)
    return {
      OURS: self.ours(folder / OURS, order, noise),
      "official, eager": self.official(config, folder / "source.pt", np.asarray(order[0]), noise),
    }

  def ours(self, folder: Path, order: jax.Array, noise: TokenNoise) -> Program:
    """This library."""
    network = checkpoints.load(folder)
    labels, turn = ClassLabels(jnp.asarray([LABEL], jnp.int32)), iter(range(10**9))

    def draw(**given: Any) -> np.ndarray:
      found = generate_masked(
        network.fns, network.params, jax.random.key(next(turn)), labels, num_iter=self.iterations,
        num_steps=self.steps, scale=self.scale, **given,
      )  # fmt: skip
      return np.asarray(orders.to_raster(found.tokens, found.report.order)[0])

    return Program(lambda: draw(order=order, noise=noise), draw)

  def official(self, config: MARConfig, source: Path, order: np.ndarray, noise: TokenNoise) -> Program:
    """The official code."""
    import torch

    make = official_part(self.modules[0], FACTORIES[self.size])
    sizes = dict(diffloss_w=config.diffloss_width, diffloss_d=config.diffloss_depth)
    model = with_weights(make(**sizes, num_sampling_steps=str(self.steps)), source)
    labels = torch.tensor([LABEL])

    def draw() -> np.ndarray:
      with torch.no_grad(), tensors_stay():
        settings = dict(num_iter=self.iterations, cfg=self.scale, cfg_schedule="linear", labels=labels)
        found = model.sample_tokens(1, **settings)
      return found[0].reshape(config.token_dim, -1).T.numpy()

    def draw_alike() -> np.ndarray:
      # The official order lists the longest masked positions first.
      same_order = mock.patch.object(model, "sample_orders", lambda rows: torch.tensor(order[::-1].copy())[None])
      with same_order, normals_of(self.tape(order, noise)):
        return draw()

    return Program(draw_alike, draw)

  def tape(self, order: np.ndarray, noise: TokenNoise) -> Iterator[np.ndarray]:
    """Noise ``[n, C]`` in the order of the official sampler's draws; its tokens are in raster order."""
    initial, steps = (np.asarray(leaf[0]) for leaf in noise)
    for iteration in unmasking.iterations(len(order), self.iterations):
      positions = np.sort(order[iteration.known : iteration.known + iteration.count])
      yield initial[positions]
      for step in reversed(range(self.steps)):
        yield steps[positions, step]


@contextlib.contextmanager
def tensors_stay() -> Iterator[None]:
  """A context in which ``Tensor.cuda`` leaves a tensor where it is, if there is no such device."""
  import torch

  if torch.cuda.is_available():
    yield
    return
  with mock.patch.object(torch.Tensor, "cuda", lambda self, *args, **kwargs: self):
    yield


@contextlib.contextmanager
def normals_of(tape: Iterator[np.ndarray]) -> Iterator[None]:
  """A context in which PyTorch's normals come from a tape.

  With guidance there are two copies of the states. The second copy gets the noise of the first.
  """
  import torch

  def like(tensor: Any) -> Any:
    found = torch.tensor(next(tape))
    return found.repeat(len(tensor) // len(found), 1)

  with (
    mock.patch.object(torch, "randn", lambda *shape: torch.tensor(next(tape))),
    mock.patch.object(torch, "randn_like", like),
  ):
    yield
