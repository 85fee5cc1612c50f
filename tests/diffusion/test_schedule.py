"""The noise schedules: stated facts, respacing, agreement with DiT's, errors."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxspec.diffusion.schedule import cosine_betas, diffusion_tables, kept_steps


def test_training_schedule_has_the_stated_values():
  tables = diffusion_tables()
  assert tables.betas[0] == pytest.approx(4.128422482196914e-05, rel=1e-12)
  assert tables.betas[999] == 0.999
  expected = {0: 0.999958715775178, 500: 0.492285172, 998: 2.42876691e-06, 999: 2.42876691e-09}
  for index, value in expected.items():
    assert tables.alphas_cumprod[index] == pytest.approx(value, rel=1e-8)


def test_schedule_of_a_hundred_steps_has_the_stated_values():
  tables = diffusion_tables("100")
  low = tables.posterior_log_variance_clipped
  assert low[0] == low[1] == pytest.approx(-10.15395, abs=1e-5)
  # The last step emits its prediction of the clean token.
  assert (tables.posterior_mean_coef1[0], tables.posterior_mean_coef2[0]) == (1.0, 0.0)


@pytest.mark.parametrize("respacing, factor", [("100", 316.2), ("50", 632.4), ("ddim50", 1.565)])
def test_the_first_step_multiplies_an_error_of_the_predicted_noise(respacing, factor):
  tables = diffusion_tables(respacing)
  amplified = tables.posterior_mean_coef1 * tables.sqrt_recipm1_alphas_cumprod
  assert amplified[-1] == pytest.approx(factor, rel=2e-3)


def test_single_precision_would_change_the_schedule():
  kept = np.cumprod((1 - cosine_betas()).astype(np.float32), dtype=np.float32)[0]
  assert abs((1 - kept) / diffusion_tables("100").betas[0] - 1) > 1e-4


def test_linear_schedule_agrees_with_the_official_one():
  arrays = np.load(Path(__file__).parents[1] / "golden" / "dit" / "dit.npz")
  tables = diffusion_tables("10", "linear")
  np.testing.assert_array_equal(tables.timesteps, arrays["timestep_map"])
  for name in ("betas", "alphas_cumprod", "posterior_log_variance_clipped", "posterior_mean_coef1", "posterior_mean_coef2",
               "sqrt_recip_alphas_cumprod", "sqrt_recipm1_alphas_cumprod"):  # fmt: skip
    np.testing.assert_allclose(getattr(tables, name), arrays[name], rtol=1e-6, atol=1e-9, err_msg=name)
  full = diffusion_tables("", "linear").betas
  assert (full[0], full[-1], len(full)) == (1e-4, 0.02, 1000)


def test_kept_steps_are_the_official_ones():
  arrays = np.load(Path(__file__).parents[1] / "golden" / "dit" / "dit.npz")
  respacings = [name.removeprefix("map_") for name in arrays if name.startswith("map_")]
  assert {"250", "ddim50"} < set(respacings)
  for respacing in respacings:
    assert kept_steps(respacing) == arrays[f"map_{respacing}"].tolist()


@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_respacing_keeps_what_was_asked_for(counts):
  steps = kept_steps(",".join(map(str, counts)))
  assert len(steps) == sum(counts)
  assert steps == sorted(set(steps)) and steps[0] == 0 and steps[-1] < 1000
  tables = diffusion_tables(",".join(map(str, counts)))
  # The steps in use keep their signal level; only the distance between them grows.
  np.testing.assert_allclose(tables.alphas_cumprod, diffusion_tables().alphas_cumprod[steps], rtol=1e-6)


def test_sections_may_be_left_out():
  """A count may be 0, as in the chains of the shipped causal networks."""
  steps = kept_steps("1,0,1,0,1,0,1,0,1,0,1,0,1,1")
  assert steps == [0, 144, 288, 432, 574, 716, 858, 929]


def test_ddim_respacing_has_fixed_strides():
  assert kept_steps("ddim25") == list(range(0, 1000, 40))
  assert len(diffusion_tables("ddim250").betas) == 250


@pytest.mark.parametrize("respacing", ["ten", "0", "-3", "1001", "10,,3", "ddim", "ddim3,4", "ddim999", "600,600"])
def test_impossible_respacings_are_errors(respacing):
  with pytest.raises(ValueError, match="Must have"):
    diffusion_tables(respacing)


def test_unknown_schedules_are_errors():
  with pytest.raises(ValueError, match="schedule in cosine, linear, we instead got 'sigmoid'"):
    diffusion_tables("10", "sigmoid")
