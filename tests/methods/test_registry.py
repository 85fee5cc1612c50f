"""The names of the methods; a user-defined method is one class and one entry."""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.network import Network
from jaxspec.methods import METHODS, all_options, get_method, make_method, option
from jaxspec.methods.speculative import ChainMethod
from jaxspec.rules.scaled_rule import ScaledRule
from jaxspec.run.decoder import Decoder
from tests.helpers import labels, markov_fns

NAMES = (
  "ar speculative sqs lantern sjd gsd scaled eagle eagle-chain eagle-lantern ciar cspd parallel scale-speculative "
  "step-speculative scale-ciar step-ciar"
).split()


def test_names():
  assert list(METHODS) == NAMES
  assert {cls.__name__ for cls in METHODS.values()} <= set(methods.__all__)
  exact = {*NAMES[:3], "sjd", "eagle", "eagle-chain", "scale-speculative", "step-speculative"}
  assert {name for name in NAMES if METHODS[name]().is_exact} == exact
  assert [name for name in NAMES if METHODS[name].fits(methods.CONTINUOUS)] == ["ar", "cspd", "parallel"]
  assert [name for name in NAMES if METHODS[name].fits(methods.SCALES)] == ["ar", "scale-speculative", "scale-ciar"]
  assert [name for name in NAMES if METHODS[name].fits(methods.DENOISING_STEPS)] == ["ar", "step-speculative", "step-ciar"]


def test_methods_from_json():
  assert make_method("gsd", group_size=50, max_gap=1) == methods.Gsd(group_size=50, max_gap=1.0)
  assert make_method("cspd", exact=True).is_exact and not make_method("cspd").is_exact
  network = Network(markov_fns(3), None)
  assert make_method("speculative", draft=network).draft is network
  for name, options, words in (
    ("beam", {}, "a method in ar, speculative"),
    ("sjd", {"gamma": 4, "rho": 0.1}, "options window, .* for method sjd, we instead got gamma, rho"),
    ("ar", {"draft": "small"}, "no options for method ar, we instead got draft"),
  ):
    with pytest.raises(ValueError, match=words):
      make_method(name, **options)
  with pytest.raises(ValueError, match="a method in"):
    get_method("")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boosted(ChainMethod):
  """A user-defined method: a chain with a raised acceptance ratio."""

  boost: float = option(1.5, "What ratios are raised by.", ge=1)
  name: ClassVar[str] = "boosted"
  title: ClassVar[str] = "a chain with a raised ratio"
  source: ClassVar[str] = "this test"

  def rule(self, context):
    return ScaledRule(self.boost), ()


def test_a_method_of_ones_own_is_a_class_and_an_entry(monkeypatch):
  monkeypatch.setitem(METHODS, "boosted", Boosted)
  assert [name for name, _ in all_options()["boost"]] == ["boosted"] and "boosted" in dict(all_options()["gamma"])
  method = make_method("boosted", boost=1e6, gamma=3)
  with pytest.raises(ValueError, match="boost of at least 1, we instead got 0.5"):
    make_method("boosted", boost=0.5)
  fns = markov_fns(4)
  target, draft = (Network(fns, fns.init(jax.random.key(seed))) for seed in (0, 1))
  out = Decoder(target, method, draft)(labels(3), key=jax.random.key(2), max_len=9)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)  # so large a ratio rejects nothing
  np.testing.assert_array_equal(out.counters.rounds, 2)  # 1 + 4 + 4 tokens
