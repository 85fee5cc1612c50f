"""Trees on random transformers: the distribution of joint tokens against plain decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec import testing
from tests.helpers import eagle_condition, tiny_eagle

pytestmark = pytest.mark.slow


@pytest.mark.long_runs
def test_chi_square_of_joint_triples_against_plain_decoding():
  """With guidance and top-k; tests/contract enumerates trees without them."""
  rows = 4096
  params, kwargs, *_ = tiny_eagle("captions", 2.0, jaxspec.Warp(top_k=8), total=9, top_k=4)
  same = jax.tree.map(lambda leaf: jnp.repeat(leaf[1:2], rows, axis=0), eagle_condition("captions", 2))
  fast = jaxspec.speculate(params, testing.fast_keys(11, rows), same, max_len=4, **kwargs)
  plain = jaxspec.autoregress(params, testing.fast_keys(12, rows), same, verifier=kwargs["verifier"], max_len=4)
  assert 0.05 < float(fast.counters.accepted.sum()) / rows
  code = lambda out: np.ravel_multi_index(tuple(np.asarray(out.tokens[:, 1:]).T), (13,) * 3)
  a, b = np.bincount(code(fast), minlength=13**3), np.bincount(code(plain), minlength=13**3)
  big = (a + b) >= 10
  table = np.array([np.append(a[big], a[~big].sum()), np.append(b[big], b[~big].sum())])
  table = table[:, table.sum(0) > 0]
  p_value = stats.chi2_contingency(table).pvalue
  assert p_value > 0.01 and table.shape[1] > 10, (p_value, table.shape)
