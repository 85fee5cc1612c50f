"""The noise schedules of diffusion models and their respacing to fewer steps.

Improved DDPM (Nichol and Dhariwal 2021, arXiv 2102.09672), as the diffusion head of MAR (arXiv 2406.11838) and DiT (arXiv
2212.09748) use it:

1. the betas of the ``J`` = 1000 training steps. ``cosine``, of MAR: ``beta_j = min(1 - abar((j+1)/J) / abar(j/J), 0.999)``
   with ``abar(u) = cos((u + 0.008) / 1.008 * pi / 2)^2`` (eq. 17). ``linear``, of DiT: from 1e-4 to 0.02 in equal steps
   (arXiv 2006.11239, section 4);
2. a sampler uses ``T`` of these steps; the new betas follow from the cumulative products at these steps (section 4 of
   the paper), and the network still receives the original step numbers;
3. every other table follows from the betas.

Everything here is NumPy in float64 and is computed once. In float32, ``beta_0`` of a respaced schedule would have a relative
error of 5e-4.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

NUM_TRAIN_STEPS = 1000


class DiffusionTables(NamedTuple):
  """Tables of ``T`` diffusion steps, float64 ``[T]``; index 0 is the step that ends in the clean token."""

  timesteps: np.ndarray  # int32, the original step number of each index: the input of the network
  betas: np.ndarray
  alphas_cumprod: np.ndarray  # A_i = prod_{k <= i} (1 - beta_k)
  alphas_cumprod_prev: np.ndarray  # A_{i-1}, with A_{-1} = 1
  sqrt_recip_alphas_cumprod: np.ndarray  # 1 / sqrt(A_i)
  sqrt_recipm1_alphas_cumprod: np.ndarray  # sqrt(1 / A_i - 1)
  posterior_variance: np.ndarray  # beta_i (1 - A_{i-1}) / (1 - A_i)
  posterior_log_variance_clipped: np.ndarray  # its logarithm; index 0, where it is 0, has the value of index 1
  posterior_mean_coef1: np.ndarray  # beta_i sqrt(A_{i-1}) / (1 - A_i), the factor of x_0
  posterior_mean_coef2: np.ndarray  # (1 - A_{i-1}) sqrt(1 - beta_i) / (1 - A_i), the factor of x_i

  @property
  def num_steps(self) -> int:
    return len(self.betas)


def cosine_betas(num_steps: int = NUM_TRAIN_STEPS) -> np.ndarray:
  """Betas ``[num_steps]`` float64 of the cosine schedule (arXiv 2102.09672, eq. 17)."""
  u = np.arange(num_steps + 1) / num_steps
  abar = np.cos((u + 0.008) / 1.008 * np.pi / 2) ** 2
  return np.minimum(1 - abar[1:] / abar[:-1], 0.999)


def linear_betas(num_steps: int = NUM_TRAIN_STEPS) -> np.ndarray:
  """Betas ``[num_steps]`` float64 of the linear schedule (arXiv 2006.11239, section 4)."""
  return np.linspace(1e-4, 0.02, num_steps)


SCHEDULES = {"cosine": cosine_betas, "linear": linear_betas}


def kept_steps(respacing: str, num_steps: int = NUM_TRAIN_STEPS) -> list[int]:
  """Original step numbers that a respaced schedule keeps, ascending.

  Args:
    respacing: comma-separated counts of steps, one per section; the original steps are divided into nearly equal sections:
      ``"100"``, ``"10,15,20"``. A count may be 0. ``"ddimN"`` gives N steps at a fixed integer distance. Empty keeps all
      steps.
  Raises:
    ValueError: if the steps cannot be divided in this way.
  """
  if not respacing:
    return list(range(num_steps))
  fault = f"Must have step counts such as '100', '10,15,20' or 'ddim25', we instead got {respacing!r}"
  ddim = respacing.startswith("ddim")
  parts = respacing.removeprefix("ddim").split(",")
  if not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
    raise ValueError(fault)
  counts = [int(part) for part in parts]
  if min(counts) < 0 or max(counts) < 1 or (ddim and len(counts) > 1):
    raise ValueError(fault)
  if ddim:
    for stride in range(1, num_steps):
      if len(range(0, num_steps, stride)) == counts[0]:
        return list(range(0, num_steps, stride))
    raise ValueError(f"Must have a number of steps that an integer stride gives, we instead got {respacing!r}")

  size, longer = divmod(num_steps, len(counts))
  steps, start = [], 0
  for section, count in enumerate(counts):
    length = size + (section < longer)
    if count > length:
      raise ValueError(f"Must have at most {length} steps in a section of {length}, we instead got {count}")
    stride = (length - 1) / (count - 1) if count > 1 else 1.0
    # A running sum, rounded half to even: a product would round some of the steps differently.
    position = 0.0
    for _ in range(count):
      steps.append(start + round(position))
      position += stride
    start += length
  return steps


def tables_of(betas: np.ndarray, timesteps: np.ndarray) -> DiffusionTables:
  """All tables of a chain with betas ``[T]``."""
  cumprod = np.cumprod(1.0 - betas)
  previous = np.append(1.0, cumprod[:-1])
  variance = betas * (1.0 - previous) / (1.0 - cumprod)
  return DiffusionTables(
    timesteps=np.asarray(timesteps, np.int32),
    betas=betas,
    alphas_cumprod=cumprod,
    alphas_cumprod_prev=previous,
    sqrt_recip_alphas_cumprod=np.sqrt(1.0 / cumprod),
    sqrt_recipm1_alphas_cumprod=np.sqrt(1.0 / cumprod - 1.0),
    posterior_variance=variance,
    posterior_log_variance_clipped=np.log(np.append(variance[1:2] if len(betas) > 1 else betas, variance[1:])),
    posterior_mean_coef1=betas * np.sqrt(previous) / (1.0 - cumprod),
    posterior_mean_coef2=(1.0 - previous) * np.sqrt(1.0 - betas) / (1.0 - cumprod),
  )


@functools.cache
def diffusion_tables(respacing: str = "", schedule: str = "cosine") -> DiffusionTables:
  """Tables of a schedule respaced as `kept_steps` says; ``""`` is the training schedule of 1000 steps.

  Args:
    schedule: a name in `SCHEDULES`.
  Raises:
    ValueError: for another schedule, or an impossible respacing.

  Example:
    >>> tables = diffusion_tables("100")
    >>> tables.num_steps, tables.timesteps[[0, 6, 99]].tolist()
    (100, [0, 61, 999])
  """
  if schedule not in SCHEDULES:
    raise ValueError(f"Must have a schedule in {', '.join(SCHEDULES)}, we instead got {schedule!r}")
  full = tables_of(SCHEDULES[schedule](), np.arange(NUM_TRAIN_STEPS))
  steps = kept_steps(respacing)
  if len(steps) == NUM_TRAIN_STEPS:
    return full
  kept = full.alphas_cumprod[steps]
  return tables_of(1.0 - kept / np.append(1.0, kept[:-1]), np.asarray(steps))
