"""What a network says of the tokens of a decode."""

import jax
import numpy as np
import pytest

from experiments.engine import forced
from experiments.engine.bench import Bench
from experiments.engine.experiment import Lab
from experiments.engine.rows import CLOSED, OPEN, row
from jaxspec.core.state import Origin
from jaxspec.models.conditions import Prefixed
from tests.cli.fake_bundle import make_fake_bundle

PROMPTS = ["red apple", "blue cat", "red cat"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
  folder = tmp_path_factory.mktemp("forced")
  lab = Lab(folder / "runs")
  return Bench(lab.pipeline(str(make_fake_bundle(folder / "bundle"))), PROMPTS, lab.decodes, batch=3)


@pytest.mark.slow
def test_a_network_reads_tokens_in_one_pass_or_after_its_condition(bench):
  edge, tokens = bench.pipeline.drafts["edge"], jax.random.randint(jax.random.key(0), (3, 16), 0, 16)
  found = jax.jit(forced.read, static_argnums=0)(edge.fns, edge.params, bench.condition, tokens)
  start = edge.fns.prefix_len(bench.condition) - 1
  wanted, _ = jax.jit(edge.fns.apply)(edge.params, Prefixed(bench.condition, tokens[:, :-1]))
  np.testing.assert_allclose(found.intervals.centre, wanted.intervals.centre[:, start:], atol=1e-5)


@pytest.mark.slow
def test_accepted_tokens_of_a_greedy_edge_are_its_likeliest(bench):
  every = row("ciar", draft="edge", tau=CLOSED)
  share = lambda entry: forced.likeliest_accepted(bench, entry, bench.decode(entry))
  assert share(every.but(pick="argmax"))[0] == 1
  result, edge = bench.decode(every), bench.pipeline.drafts["edge"]
  said = np.asarray(forced.read(edge.fns, edge.params, bench.condition, result.tokens).intervals.centre[:, :, 0])
  accepted = result.origin == Origin.DRAFT
  assert share(every)[0] == pytest.approx(np.mean(said.argmax(-1)[accepted] == result.tokens[accepted]))
  assert 0 < share(every)[0] < 1
  assert share(every.but(tau=OPEN)) is None
