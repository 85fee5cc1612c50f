"""Declarations of every method and every sampling setting."""

import dataclasses
import json
import math

import click
import pytest

from jaxspec import methods
from jaxspec.cli.method_options import value_type
from jaxspec.cli.methods import value_word
from jaxspec.core.options import check_options, option
from jaxspec.methods import METHODS, SAME_FAMILY, all_options, make_method, options_of
from jaxspec.models.registry import FAMILIES
from jaxspec.run.decode_options import fitting
from jaxspec.run.method_schema import option_schemas, range_text
from jaxspec.sampling import ContinuousSampling, DenoisingSampling, SamplingConfig

DECLARING = [*METHODS.values(), SamplingConfig, ContinuousSampling, DenoisingSampling]
EACH_OPTION = [(cls, declared) for cls in DECLARING for declared in options_of(cls).values()]


def _wrong_values(declared):
  """Invalid values for a declaration: of other types, not finite, outside of the bounds, unknown."""
  wrong = [object(), [1]] if declared.optional else [object(), [1], None]
  wrong.append("yes" if declared.kind is bool else True)
  spec = declared.spec
  if declared.kind is str:
    return wrong + (["no-such-choice", ""] if spec.choices else [])
  if declared.kind is bool:
    return wrong + [1]
  wrong.append("many")
  if declared.kind is int:
    return wrong + [1.5] + _outside(spec, 1)
  return wrong + [math.nan] + ([] if spec.infinite else [math.inf, -math.inf]) + _outside(spec, 0.5)


def _outside(spec, step):
  """Numbers just outside of the declared bounds."""
  number = int if step == 1 else float
  wrong = [number(bound) + sign * step for bound, sign in ((spec.ge, -1), (spec.le, 1)) if bound is not None]
  return wrong + [number(bound) for bound in (spec.gt, spec.lt) if bound is not None]


@dataclasses.dataclass(frozen=True)
class _Many:
  sizes: tuple[int, ...] = option((2, 3), "Sizes.", ge=1)

  def __post_init__(self):
    check_options(self)


def test_options_may_be_tuples():
  declared = options_of(_Many)["sizes"]
  assert (declared.kind, declared.many, declared.default) == (int, True, (2, 3))
  assert _Many([4, 5]) == _Many((4, 5)) and hash(_Many([4])) == hash(_Many((4,)))
  assert fitting(declared, "4,5") == (4, 5) and value_type([declared]) is click.STRING
  described = option_schemas(_Many)["sizes"]
  assert value_word(described["default"]) == "2,3" and range_text(described) == "whole numbers from 1"
  for wrong, words in {(0,): "sizes of at least 1", (1.5,): "an int as sizes", 3: "a tuple of int as sizes"}.items():
    with pytest.raises(ValueError, match=words):
      _Many(wrong)
  with pytest.raises(ValueError, match="int items with commas between as --sizes, we instead got '1,x'"):
    fitting(declared, "1,x")


def test_declared_options_have_help_and_a_default_that_fits():
  for cls, declared in EACH_OPTION:
    where = f"{cls.__name__}.{declared.name}"
    assert declared.kind in (int, float, str, bool), where
    assert declared.spec.help.endswith(".") and "\n" not in declared.spec.help, where
    declared.check(declared.default)
    assert declared.default is not None or declared.optional, where
    assert not (declared.optional and declared.default is not None), f"{where}: None would mean two things"


def test_declared_options_refuse_what_lies_outside_in_one_line():
  refused = 0
  for cls, declared in EACH_OPTION:
    for value in _wrong_values(declared):
      with pytest.raises(ValueError) as caught:
        cls(**{declared.name: value})
      message = str(caught.value)
      where = f"{cls.__name__}({declared.name}={value!r}): {message}"
      assert declared.name in message and "\n" not in message and "we instead got" in message, where
      refused += 1
  assert refused > 200


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_methods_describe_themselves(cls):
  method = cls()
  assert cls.title and cls.title[0].islower() | cls.title.startswith("Jacobi") and not cls.title.endswith(".")
  assert cls.source or cls is methods.Plain, "a method cites where it comes from"
  assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), "a docstring of its own"
  assert cls.draft_family in (None, SAME_FAMILY, *FAMILIES)
  assert issubclass(cls, methods.DraftingMethod) == (cls.draft_family is not None)
  assert cls.fits(cls.tokens) and isinstance(method.is_exact, bool)
  assert hash(method) == hash(cls()) and method == cls() and dataclasses.replace(method) == method
  assert make_method(cls.name, **json.loads(json.dumps(method.options()))) == method
  assert method.drafts_per_round() > 0 or cls in (methods.Plain, methods.Parallel, methods.Rows)


def test_an_option_of_several_methods_has_one_kind_and_one_range():
  """They share one option of the command line, which takes the choices of all; defaults, choices and words may differ."""
  for name, found in all_options().items():
    _, first = found[0]
    for method, declared in found:
      assert declared.kind is first.kind and declared.optional == first.optional, (name, method)
      bounds = [dataclasses.replace(one.spec, help="", choices=None, words=()) for one in (declared, first)]
      assert bounds[0] == bounds[1] and (declared.spec.choices is None) == (first.spec.choices is None), (name, method)
      assert declared.name == name and method in METHODS


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: methods.Eagle(tree_size=53), "tree_size of at most the 52 candidates"),
    (lambda: methods.EagleLantern(tree_size=13, tree_top_k=3, tree_depth=1), "tree_size of at most the 12 candidates"),
    (lambda: methods.Sqs(beta1=-0.1), "beta1 of at least -eta"),
    # Programs grow with these.
    (lambda: methods.Sqs(length="delay", max_drafts=10**9), "max_drafts of at most 256 with length delay"),
    (lambda: methods.Ngram(longest=10**5), "longest of at most 64"),
    (lambda: methods.Sjd(window=10**5, branch=2, depth=10**5), "depth of at most 9"),
    (lambda: methods.Sjd(branch=10**9), "branch of at most 1,024"),
    (lambda: methods.Ciar(tau=0.1, cloud_rate=0.3), "tau or cloud_rate"),
    (lambda: methods.Ciar(cloud_rate=0.3, target_prefix=0.3), "cloud_rate above target_prefix"),
    (lambda: methods.Ciar(score="certainty"), "score in interval, entropy"),
    (lambda: methods.Ciar(score="discrete:0"), "of at least"),
    (lambda: methods.Cspd(exact=True, align=False), "no align with exact"),
    (lambda: methods.Cspd(exact=True, inner_temperature=42.0), "no inner_temperature with exact"),
    (lambda: methods.Cspd(exact=True, sigma="none"), "no sigma with exact"),
    (lambda: methods.Cspd(exact=True, block=True), "no block with exact"),
    (lambda: ContinuousSampling(1), "at least 2 diffusion steps"),
    (lambda: ContinuousSampling("some"), "we instead got"),
    (lambda: ContinuousSampling(5, 4), "stop from 0 to 3"),
    (lambda: DenoisingSampling(1), "at least 2 diffusion steps"),
    (lambda: DenoisingSampling(1001), "at most 1000 steps in a section of 1000, we instead got 1001"),
    (lambda: DenoisingSampling("ddim50"), r"ddim_eta \(0 is DDIM\) with steps ddim50, we instead got none"),
    (lambda: DenoisingSampling(50, ddim_eta=1.5), "ddim_eta of at most 1"),
  ],
)
def test_options_that_do_not_fit_each_other(make, words):
  with pytest.raises(ValueError, match=words) as caught:
    make()
  assert "\n" not in str(caught.value)


def test_limits_that_stay_legal():
  """Limiting values that are valid."""
  methods.Sqs(budget=math.inf, eta=0.0, beta1=0.0), methods.Sqs(beta1=-0.0009), methods.Sqs(max_drafts=10**5)
  methods.Sjd(window=9, branch=2, depth=9), methods.Sjd(branch=1000, depth=1)
  methods.Ciar(tau=-math.inf), methods.Ciar(tau=math.inf, target_prefix=1.0), methods.Gsd(max_distance=math.inf)
  methods.Eagle(tree_size=52)
  ContinuousSampling(5, 3), SamplingConfig(temperature=0), ContinuousSampling("5") == ContinuousSampling(5)
  assert DenoisingSampling("20") == DenoisingSampling(20) != DenoisingSampling("ddim20", ddim_eta=0.0)
