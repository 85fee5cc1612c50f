"""`assemble`: which parts a setting switches on, and what it refuses."""

import jax
import pytest

import jaxspec
from jaxspec.decode.assemble import assemble
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.models.llamagen import llamagen_fns
from tests import helpers


@pytest.fixture(scope="module")
def networks():
  target, draft = llamagen_fns(helpers.TARGET), llamagen_fns(helpers.DRAFT)
  return target, helpers.random_params(target, 1), draft, helpers.random_params(draft, 2)


def test_guidance_is_on_above_one(networks):
  params, _, _ = assemble(*networks, cfg_scale=1.0)
  assert not isinstance(params.target.model, jaxspec.Guided) and not isinstance(params.draft.model, jaxspec.Guided)
  params, _, _ = assemble(*networks, cfg_scale=3.0)
  assert params.target.model.scale == params.draft.model.scale == 3.0
  params, _, _ = assemble(*networks, cfg_scale=3.0, draft_guidance=False)
  assert isinstance(params.target.model, jaxspec.Guided) and not isinstance(params.draft.model, jaxspec.Guided)


def test_equal_settings_give_the_same_functions(networks):
  """Static arguments of a jitted decode: other objects would compile again."""
  first, second = (assemble(*networks, gamma=3, top_k=5, temperature=t)[1:] for t in (0.5, 1.0))
  assert first == second
  assert assemble(*networks, gamma=3, top_k=5, top_p=0.9)[1:] != first


def test_plain_decoding_needs_no_draft(networks):
  params, drafter, verifier = assemble(*networks[:2], method="ar")
  assert drafter is NO_DRAFTER and params.draft == ()
  out = jaxspec.autoregress(params, jax.random.key(0), helpers.labels(2), verifier=verifier, max_len=4)
  assert out.tokens.shape == (2, 4)


@pytest.mark.parametrize(
  "settings",
  [
    {"gamma": 0}, {"cfg_scale": 0.5}, {"cfg_scale": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5},
    {"temperature": -1.0}, {"temperature": float("inf")}, {"method": "magic"},
  ],
)  # fmt: skip
def test_refused_settings(networks, settings):
  with pytest.raises(ValueError, match="we instead got"):
    assemble(*networks, **settings)


def test_speculation_needs_a_draft(networks):
  with pytest.raises(ValueError, match="draft network"):
    assemble(*networks[:2])
