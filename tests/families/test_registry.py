"""Families by name: generating ones, user-defined ones, and former names."""

import dataclasses

import numpy as np
import pytest

from jaxspec.families import register, token_images
from jaxspec.models import registry
from jaxspec.models.conditions import Caption, ClassLabels, OrderedLabels, Pairs, Prefixed, Prompt
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.registry import FAMILIES, FamilySpec
from jaxspec.models.trunk import Trunk, declare, find_trunk


@dataclasses.dataclass(frozen=True)
class OwnConfig:
  width: int = 3


OWN = FamilySpec(OwnConfig, lambda config: None, "jaxspec.families.token_images:make_family")


def test_families_of_your_own():
  with FAMILIES.adding("own", OWN):
    assert registry.make_config("own", {"width": 4}) == OwnConfig(4) and registry.family_name(OwnConfig()) == "own"
    assert "own" in registry.generating() and registry.family_maker("own") is token_images.make_family
    with pytest.raises(ValueError, match="a new name for a family, we instead got 'own'"):
      register("own", OWN)
    with pytest.raises(ValueError, match="a config class of its own for other, OwnConfig is that of own"):
      register("other", OWN)
  assert "own" not in FAMILIES


def test_a_trunk_is_declared_once():
  trunk = find_trunk(LlamaGenConfig())
  assert isinstance(trunk, Trunk) and find_trunk(OwnConfig()) is None
  with pytest.raises(ValueError, match="a new name for a trunk, we instead got 'llamagen'"):
    declare("llamagen", OwnConfig, trunk)


def test_every_host_is_found():
  for name in registry.generating():
    assert callable(registry.family_maker(name))
  names = ", ".join(registry.generating())
  with pytest.raises(ValueError, match=rf"a network that generates \({names}\), we instead got a kl_vae"):
    registry.family_maker("kl_vae")


@pytest.mark.parametrize("kind", [ClassLabels, OrderedLabels, Caption, Prompt, Prefixed, Pairs])
def test_conditions_know_their_rows(kind):
  array = np.zeros((3, 2), np.int32)
  fields = {name: array for name in kind._fields} | ({"condition": ClassLabels(array[:, 0])} if kind is Prefixed else {})
  assert kind(**fields).batch_size == 3
