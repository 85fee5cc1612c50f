"""An edge that accepts tokens locally over a cloud: the fused loop's tokens and counters, and the traffic."""

import functools

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server.in_process import LocalCloud
from tests.serving.edge.pairs import MAX_LEN, assert_gated_traffic, assert_same, rows_of
from tests.serving.server.crowds import serve

ROWS = 60
NAMES = ("markov:ciar-exact", "markov:ciar-greedy")
served = functools.cache(lambda: serve(*NAMES))


@functools.cache
def decoded(name, target_prefix):
  """In one program and over a cloud, every row with its own seed; and the traffic."""
  case = served().cases[NAMES.index(name)]
  kwargs = dict(max_len=MAX_LEN, target_prefix=target_prefix, end_token=4)
  out = jaxspec.speculate(case.params, *rows_of(ROWS), **case.parts(), **kwargs)
  far, traffic = decode_over_cloud(case.edge(**kwargs), *rows_of(ROWS), LocalCloud(served().engine))
  return jax.tree.map(np.asarray, out), far, traffic


@pytest.mark.slow
@pytest.mark.parametrize("name, target_prefix", [("markov:ciar-exact", 3), ("markov:ciar-greedy", 0)])
def test_a_cloud_gives_the_tokens_of_the_loop(name, target_prefix):
  """Identical tokens, origins, counters, scores and gates; bytes and calls are those of the rows' own calls."""
  out, far, traffic = decoded(name, target_prefix)
  assert_same(far, out)
  assert_gated_traffic(out, traffic)
  first = out.origin[:, 0] == Origin.FIRST
  # The cloud draws token 0 of a prefix, and of rows whose gate is open there: all rows of Markov tables or none.
  is_called = out.report.scores[:, 0] > served().cases[NAMES.index(name)].params.draft.gate
  np.testing.assert_array_equal(first, True if target_prefix else is_called)
  assert first.all()
  if name == "markov:ciar-greedy":  # 16 + 16 bits, and the 3 bits of an id for each token that went up
    np.testing.assert_array_equal(traffic.coded_bits, 32 * traffic.exchanges + 3 * out.report.sent)


@pytest.mark.slow
def test_a_row_ends_where_its_end_token_is():
  """Rows end in the prefix, by a local token and by the cloud's own, without later calls."""
  out, far, _ = decoded("markov:ciar-exact", 3)
  ends = out.tokens[np.arange(ROWS), out.lengths - 1] == 4
  kinds = set(out.origin[np.arange(ROWS), out.lengths - 1][ends].tolist())
  assert {int(Origin.FIRST), int(Origin.LOCAL), int(Origin.BONUS)} <= kinds
  assert (out.lengths[~ends] == MAX_LEN).all()
