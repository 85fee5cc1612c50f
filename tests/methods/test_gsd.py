"""GSD's variants: ours, the published rule, the released code."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core.token_space import TokenSpace
from jaxspec.methods import Gsd, Sjd
from jaxspec.methods.method import BuildContext
from jaxspec.rules import gsd_rule
from jaxspec.rules.lossless import lossless
from jaxspec.rules.static_groups import StaticGroupsRule
from jaxspec.sampling import SamplingConfig

CONTEXT = BuildContext(
  SamplingConfig(),
  TokenSpace(
    vocab_size=5,
    grid=(3, 4),
    codebook=lambda: jnp.arange(10.0).reshape(5, 2) + 1,
    embedding=lambda: jnp.eye(5),
  ),
)


def test_the_default_takes_the_maximum_with_the_exact_test_and_codes():
  rule, table = Gsd().rule(CONTEXT)
  assert rule == gsd_rule.GsdRule(14, 0.15, 0.5, max_rule=True) and table.source == "codebook" and table.power == 2
  assert float(table.values.max()) <= 4 + 1e-5  # rows of unit length
  assert (Gsd().recycle, Gsd().window, Gsd().point_mass) == ("coupled", 15, False)
  assert not Gsd().is_exact and not Gsd.published().is_exact


def test_the_published_variant():
  published = Gsd.published(group_size=50)
  rule, table = published.rule(CONTEXT)
  assert rule == gsd_rule.GsdRule(50, 0.15, 0.5, max_rule=False) and (rule.edge, rule.support) == ("clip", "target")
  assert table.source == "embedding"
  np.testing.assert_allclose(table.values, 2 - 2 * np.eye(5), atol=1e-6)
  assert (published.recycle, published.initial, published.point_mass) == ("fresh", "uniform", True)
  # The same by options, for the command line.
  by_options = Gsd(
    variant="published", distance="embedding", recycle="fresh", initial="uniform", point_mass=True, group_size=50
  )
  assert published == by_options and Gsd(**published.options()) == published


def test_the_released_code():
  assert Gsd.released().rule(CONTEXT)[0] == gsd_rule.gsd_released()
  assert Gsd.released() == dataclasses.replace(Gsd.published(), variant="released")
  assert Gsd.released(max_gap=1.0).max_gap == 1.0


def test_static_groups_are_clusters_of_the_vectors():
  codes = lambda: jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
  context = BuildContext(SamplingConfig(), TokenSpace(vocab_size=4, codebook=codes))
  rule, groups = Gsd(variant="static", group_size=2).rule(context)
  assert rule == StaticGroupsRule()
  assert groups[0] == groups[2] != groups[1] == groups[3]
  assert len(np.unique(Gsd(variant="static", group_size=9).rule(CONTEXT)[1])) == 1  # no more than there are tokens


def test_jacobi_windows():
  drafter = Sjd(window=3).drafter(CONTEXT)
  assert drafter == Sjd(window=3).drafter(CONTEXT) and drafter.window == 3
  assert Sjd.published().drafter(CONTEXT) == Gsd.published().drafter(CONTEXT)
  assert Sjd(initial="above").drafter(CONTEXT) == Sjd().drafter(CONTEXT) != Sjd(initial="left").drafter(CONTEXT)
  no_grid = BuildContext(SamplingConfig(), TokenSpace(vocab_size=5))
  assert Sjd().drafter(no_grid) == Sjd(initial="uniform").drafter(no_grid)
  with pytest.raises(ValueError, match="a grid"):
    Sjd(initial="above").drafter(no_grid)
  assert Sjd().rule(CONTEXT) == (lossless, ()) and Sjd.published(window=7).window == 7
