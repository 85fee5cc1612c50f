"""Residual quantisation over scales: sums, residuals, and the order of codes."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.models.nn import scales
from jaxspec.models.tokenizers.scale_quantizer import ScaleQuantizer, scale_inputs

SIDES = (1, 2, 4)
QUANTIZER = ScaleQuantizer(9, 3, SIDES, 2)


def _params(rng, conv=0.1):
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  convs = {f"qresi_ls_{i}": {"weight": conv * draw(3, 3, 3, 3), "bias": conv * draw(3)} for i in range(2)}
  return {"embedding": {"weight": draw(9, 3)}, "quant_resi": convs}


def test_every_scale_takes_the_nearest_codes_of_what_is_left():
  rng = np.random.default_rng(0)
  params, latent = _params(rng), rng.normal(size=(2, 4, 4, 3)).astype(np.float32)

  @jax.jit
  def run(params, latent):
    call = lambda method, *args: QUANTIZER.apply({"params": params}, *args, method=method)
    indices = call("encode", latent)
    return indices, call("totals", indices), QUANTIZER.apply({"params": params}, latent)

  indices, totals, whole = run(params, latent)
  assert indices.shape == (2, 21) and indices.dtype == jnp.int32
  np.testing.assert_array_equal(whole, totals[-1])
  starts, rest = scales.starts(SIDES), latent
  for k, side in enumerate(SIDES):
    area = scales.area_matrix(4, side)
    z = np.einsum("ph,qw,bhwc->bpqc", area, area, rest).reshape(2, -1, 1, 3)
    nearest = np.square(z - params["embedding"]["weight"]).sum(axis=-1).argmin(axis=-1)
    np.testing.assert_array_equal(indices[:, starts[k] : starts[k + 1]], nearest)
    rest = latent - np.asarray(totals[k])


def test_convolutions_enter_by_half():
  """With zero kernels and a bias, a scale gives half of its codes and half of the bias."""
  rng = np.random.default_rng(1)
  params = _params(rng, conv=0.0)
  bias = rng.normal(size=3).astype(np.float32)
  params["quant_resi"]["qresi_ls_1"]["bias"] = bias
  indices = rng.integers(0, 9, size=(1, 16)).astype(np.int32)
  value = QUANTIZER.apply({"params": params}, indices, 2, method="value")
  wanted = 0.5 * params["embedding"]["weight"][indices].reshape(1, 4, 4, 3) + 0.5 * bias
  np.testing.assert_allclose(value, wanted, atol=1e-6)


def test_inputs_are_means_in_raster_order():
  total = jnp.arange(16.0).reshape(1, 4, 4, 1)
  assert scale_inputs(total, 2).ravel().tolist() == [2.5, 4.5, 10.5, 12.5]
  assert scale_inputs(total, 4).ravel().tolist() == list(range(16))
