"""A gated edge and its cloud as two ends in one process: the fused loop's tokens and counters, and what was sent."""

import functools
import itertools

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.serving.edge.link_decode import decode_over_link
from tests.serving.edge.pairs import MAX_LEN, assert_gated_traffic, assert_same, case_named, rows_of

ROWS = 200


@functools.cache
def decoded(name, target_prefix):
  """In one program and by two ends, every row with a seed of its own; and the traffic."""
  case = case_named(name)
  keys, condition = rows_of(ROWS)
  kwargs = case.parts() | dict(max_len=MAX_LEN, target_prefix=target_prefix, end_token=4)
  out = jaxspec.speculate(case.params, keys, condition, **kwargs)
  far, traffic = decode_over_link(case.params, keys, condition, wire=case.wire, **kwargs)
  return jax.tree.map(np.asarray, out), far, traffic


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, target_prefix",
  # `test_processes` has the prefix of transformers.
  [*itertools.product(("markov:ciar-exact", "markov:ciar-greedy"), (0, 3)), ("transformer:ciar-exact", 0)],
)
def test_two_ends_give_the_tokens_of_the_loop(name, target_prefix):
  """Identical tokens, origins, counters, scores and gates; bytes and exchanges are those of the rows' own calls."""
  out, far, traffic = decoded(name, target_prefix)
  assert_same(far, out)
  assert_gated_traffic(out, traffic)
  first = out.origin[:, 0] == Origin.FIRST
  # The cloud draws token 0 of a prefix, and of rows whose gate is open there: all rows of Markov tables or none.
  is_called = out.report.scores[:, 0] > case_named(name).params.draft.gate
  np.testing.assert_array_equal(first, True if target_prefix else is_called)
  assert target_prefix or first.any() and first.all() == name.startswith("markov")
  if name == "markov:ciar-greedy":  # 16 + 16 bits, and the 3 bits of an id for each token that went up
    np.testing.assert_array_equal(traffic.coded_bits, 32 * traffic.exchanges + 3 * out.report.sent)


@pytest.mark.slow
def test_a_row_ends_where_its_end_token_is():
  """Rows end in the prefix, by a local token and by the cloud's own; none is asked about afterwards."""
  out, far, _ = decoded("markov:ciar-exact", 3)
  ends = out.tokens[np.arange(ROWS), out.lengths - 1] == 4
  kinds = set(out.origin[np.arange(ROWS), out.lengths - 1][ends].tolist())
  assert {int(Origin.FIRST), int(Origin.LOCAL), int(Origin.BONUS)} <= kinds
  assert (out.lengths[~ends] == MAX_LEN).all()
