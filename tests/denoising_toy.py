"""Toy networks of denoising steps with Gaussian chains, so that every distribution of a chain is known exactly."""

import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.models.dit.denoising_network import DenoisingNetwork, DenoisingSide
from jaxspec.models.dit.dit import DiTFns

STEPS, DIM = "10", 2


def _predictor(params, condition, timesteps):
  """``eps = x A + b (1 + label)`` and a constant v, the same at every step."""
  shift = params["shift"][None] * (1.0 + condition.labels[:, None])  # [B, C]

  def predict(index, x):
    along = shift.reshape((1,) * (x.ndim - 2) + shift.shape)
    return Prediction(x @ params["matrix"] + along, jnp.broadcast_to(params["v"], x.shape))

  return predict


FNS = DiTFns(lambda key: None, _predictor, None, None, DIM, "linear")
NETWORK = DenoisingNetwork(FNS, STEPS)


def side(matrix=((0.4, 0.2), (-0.1, 0.5)), shift=(0.3, -0.2), v=(0.0, 0.6)):
  """Parameters; the deviations of a step are those of v alone."""
  return DenoisingSide({name: jnp.asarray(leaf, jnp.float32) for name, leaf in
                    dict(matrix=matrix, shift=shift, v=v).items()}, None)  # fmt: skip


def affine(number, side, label=0, ddim_eta=None):
  """Step ``number`` as ``x -> x M + c``, with deviations ``[C]``, float64; of DDPM or DDIM (arXiv 2010.02502, eq. 12)."""
  tables, params = NETWORK.tables, {name: np.asarray(leaf, np.float64) for name, leaf in side.params.items()}
  if ddim_eta is not None:
    now, before = tables.alphas_cumprod[number], tables.alphas_cumprod_prev[number]
    sigma = ddim_eta * np.sqrt((1 - before) / (1 - now)) * np.sqrt(1 - now / before)  # eq. 16
    factor = np.sqrt(1 - before - sigma**2) - np.sqrt(before * (1 - now) / now)  # of the noise
    matrix = np.sqrt(before / now) * np.eye(DIM) + factor * params["matrix"]
    return matrix, factor * params["shift"] * (1 + label), np.full(DIM, sigma if number else 0.0)
  c1, c2 = tables.posterior_mean_coef1[number], tables.posterior_mean_coef2[number]
  root, rootm1 = tables.sqrt_recip_alphas_cumprod[number], tables.sqrt_recipm1_alphas_cumprod[number]
  matrix = (c1 * root + c2) * np.eye(DIM) - c1 * rootm1 * params["matrix"]
  share = (params["v"] + 1) / 2
  low, high = tables.posterior_log_variance_clipped[number], np.log(tables.betas[number])
  std = np.exp(0.5 * (share * high + (1 - share) * low)) if number else np.zeros(DIM)
  return matrix, -c1 * rootm1 * params["shift"] * (1 + label), std


def moments(side, label=0, ddim_eta=None):
  """Mean ``[N C]`` and covariance of all states of a chain, float64."""
  mean, load = np.zeros(DIM), np.eye(DIM)  # of the previous state and its components: rows are normals
  means, loads = [], []
  for number in reversed(range(NETWORK.num_steps)):
    matrix, shift, std = affine(number, side, label, ddim_eta)
    mean = mean @ matrix + shift
    load = np.concatenate([load @ matrix, np.diag(std)])
    means.append(mean)
    loads.append(load)
  size = len(loads[-1])
  whole = np.concatenate([np.pad(load, ((0, size - len(load)), (0, 0))) for load in loads], axis=1)
  return np.concatenate(means), whole.T @ whole


TARGET = side()
# Other means and, where v differs, other deviations.
NEAR = side(((0.5, 0.1), (0.0, 0.4)), (0.2, 0.1), (0.2, 0.3))


def network(of):
  """The network of one side for a `jaxspec.Decoder`."""
  return Network(FNS, of.params, name="toy")
