"""Seconds of whole decodes in virtual time, on the networks of the tables: the formulas, and lengths by the delay."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.server.faulty import Clock
from jaxspec.core.state import Origin
from jaxspec.methods.auto_length import in_plain_rounds
from jaxspec.run.round_times import forced
from jaxspec.serving.edge.link_times import table
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.wire.link_model import NETWORKS, Network, RoundSeconds
from tests.serving.edge.test_pipeline import new_engine, served
from tests.serving.edge.virtual_link import SlowCodec, VirtualLink
from tests.serving.server.crowds import one_row

DRAFT_S, VERIFY_S = 0.002, 0.004
LENGTHS = (0, 1, 2, 3)
ROWS = 24


def decode(network, *, pipeline=1, table_of=None, rows=ROWS):
  """Rows over a virtual network: the link with its counts, and the results."""
  clock, found = Clock(), served().cases[0]
  link = VirtualLink(LocalCloud(new_engine()), network, VERIFY_S, clock)
  codec = SlowCodec(*(getattr(found.codec, field.name) for field in dataclasses.fields(found.codec)), clock, DRAFT_S)
  drafter = dataclasses.replace(found.drafter, chooses_length=True, bonus=False)
  times = jnp.asarray(in_plain_rounds([9.0 + length for length in LENGTHS]))
  params = found.params._replace(draft=found.params.draft._replace(times=times, budget=jnp.float32(1e6)))
  edge = found._replace(params=params, drafter=drafter, codec=codec).edge(profile=0, pipeline=pipeline, table_of=table_of)
  settings, results = link.settings, []
  for row in range(rows):
    results.append(edge.run(*reversed(one_row(row)), link, stream=bytes([row]) * 16, settings=settings)[0])
  return link, results


def fixed(length):
  return lambda past: forced(LENGTHS, length)


def tokens_of(results):
  return sum(int(result.lengths[0]) - 1 for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4g", "5g"])
@pytest.mark.parametrize("pipeline, length", [(1, 2), (2, 2), (4, 1)])
def test_seconds_are_those_of_the_formula(name, pipeline, length):
  """Up to the ends of rows: the last rounds have fewer drafts, and nothing is sent ahead of them."""
  link, results = decode(NETWORKS[name], pipeline=pipeline, table_of=fixed(length))
  replaced = sum(int((np.asarray(result.origin) == Origin.REPLACED).sum()) for result in results)
  full = 1 - replaced / link.rounds
  drafted = sum(int(result.counters.drafted[0]) for result in results) / link.rounds
  seconds = RoundSeconds((drafted + 1) * DRAFT_S, VERIFY_S, NETWORKS[name].latency_s)
  assert link.seconds / link.rounds == pytest.approx(seconds.mean(full, pipeline), rel=0.02 if pipeline == 1 else 0.15)
  assert pipeline == 1 or link.void > link.rounds / 8


@pytest.mark.slow
def test_a_length_that_follows_the_delay_is_near_the_best_one():
  """Seconds per token on a fast link, a network, and a slow uplink."""
  worst = []
  for network in (Network(300e6, 0.001), NETWORKS["4g"], Network(0.1e6, 0.01)):
    rate = lambda link, results: link.seconds / tokens_of(results)
    each = [rate(*decode(network, table_of=fixed(length))) for length in LENGTHS]
    follows = rate(*decode(network, table_of=table))
    assert follows < 1.12 * min(each), (network, each, follows)
    worst.append(max(each) / follows)
  assert min(worst) > 1.1
