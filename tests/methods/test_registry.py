"""Declarations of methods; a user-defined method is one registered class."""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core.network import Network
from jaxspec.core.token_kinds import CONTINUOUS, DENOISING_STEPS, DISCRETE, KINDS, SCALES
from jaxspec.methods import METHODS, all_options, get_method, make_method, option
from jaxspec.methods.speculative import ChainMethod
from jaxspec.rules.scaled_rule import ScaledRule
from jaxspec.run.decoder import Decoder
from tests.helpers import labels, markov_fns

EXACT = "ar speculative sqs sjd eagle eagle-chain block-head spatial scale-speculative step-speculative".split()
LOSSY = "lantern gsd scaled eagle-lantern ciar cspd parallel scale-ciar step-ciar".split()
# Methods that draw no discrete tokens; `ar` draws all kinds.
KIND_OF = {"cspd": CONTINUOUS, "parallel": CONTINUOUS, "scale-speculative": SCALES, "scale-ciar": SCALES}
KIND_OF |= {"step-speculative": DENOISING_STEPS, "step-ciar": DENOISING_STEPS}


def test_names():
  assert all(name == cls.name and getattr(methods, cls.__name__) is cls for name, cls in METHODS.items())
  assert {cls.__name__ for cls in METHODS.values()} <= set(methods.__all__)


def test_what_is_exact_and_which_tokens_are_drawn():
  assert all(METHODS[name]().is_exact for name in EXACT) and not any(METHODS[name]().is_exact for name in LOSSY)
  for name in EXACT + LOSSY:
    kinds = set(KINDS) if name == "ar" else {KIND_OF.get(name, DISCRETE)}
    assert {kind for kind in KINDS if METHODS[name].fits(kind)} == kinds, name


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


@pytest.mark.slow
def test_a_method_of_ones_own_is_a_class_that_is_registered():
  with METHODS.adding("boosted", Boosted):
    _check_boosted()
  assert "boosted" not in METHODS


def _check_boosted():
  assert [name for name, _ in all_options()["boost"]] == ["boosted"] and "boosted" in dict(all_options()["gamma"])
  method = make_method("boosted", boost=1e6, gamma=3)
  with pytest.raises(ValueError, match="boost of at least 1, we instead got 0.5"):
    make_method("boosted", boost=0.5)
  fns = markov_fns(4)
  target, draft = (Network(fns, fns.init(jax.random.key(seed))) for seed in (0, 1))
  out = Decoder(target, method, draft)(labels(3), key=jax.random.key(2), max_len=9)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)  # so large a ratio rejects nothing
  np.testing.assert_array_equal(out.counters.rounds, 2)  # 1 + 4 + 4 tokens


def test_what_is_no_method_is_refused():
  unnamed = dataclasses.make_dataclass("Unnamed", [], bases=(methods.Plain,), frozen=True)
  untitled = dataclasses.make_dataclass("Untitled", [], bases=(methods.Method,), frozen=True, namespace={"name": "untitled"})
  plain_class = type("Undeclared", (methods.Plain,), {"name": "undeclared"})
  for cls, words in (
    (unnamed, "a new name for a method, we instead got 'ar'"),
    (untitled, "a title of method untitled, Untitled has none"),
    (plain_class, "a frozen dataclass that derives from Method as undeclared"),
    (Network, "a frozen dataclass that derives from Method"),
  ):
    with pytest.raises(ValueError, match=words):
      methods.register(cls)
  assert "untitled" not in METHODS and METHODS["ar"] is methods.Plain
