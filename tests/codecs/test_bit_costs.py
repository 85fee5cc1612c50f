"""Prices: the reference table, break-even sizes, exact ceilings."""

import math

import numpy as np
import pytest

from jaxspec.codecs import bit_costs as bits

V, ELL, BUDGET = 50257, 100, 5000
TOP_K = {
  1: (15.62, 320), 2: (36.89, 135), 4: (75.32, 66), 8: (144.24, 34), 16: (266.67, 18), 32: (481.87, 10), 48: (675.71, 7),
  64: (856.36, 5), 96: (1191.60, 4), 128: (1503.03, 3), 256: (2613.12, 1), 512: (4505.35, 1), 1000: (7551.93, 0),
}  # fmt: skip
CONFORMAL = {
  1: (32.0, 156), 8: (160.60, 31), 16: (283.06, 17), 32: (498.80, 10), 64: (872.92, 5), 128: (1519.45, 3), 256: (2630.09, 1),
}  # fmt: skip


def paper(size, ceilings=False, vocab=V, coding="paper"):
  return bits.formula_bits(coding, vocab=vocab, ell=ELL, size=size, ceilings=ceilings)


@pytest.mark.parametrize("ceilings,table", [(False, TOP_K), (True, CONFORMAL)])
def test_reference_prices(ceilings, table):
  for size, (price, drafts) in table.items():
    assert abs(paper(size, ceilings) - price) <= 0.01, size
    assert BUDGET // paper(size, ceilings) == drafts, size
  traced = bits.price_table("paper", vocab=V, ell=ELL, max_size=1000, ceilings=ceilings)
  for size, (price, _) in table.items():
    assert abs(traced[size] - price) <= 0.01


def test_largest_support_with_a_draft_and_break_even():
  assert max(k for k in range(1, 1000) if paper(k) <= BUDGET) == 585
  assert max(k for k in range(1, 1000) if paper(k, True) <= BUDGET) == 582
  for vocab, price, even in ((16384, 875.7, 78), (32000, 972.0, 80), (V, 1037.1, 81), (128256, 1172.2, 84)):
    dense = paper(1, vocab=vocab, coding="dense")
    assert abs(dense - price) < 0.05
    assert next(k for k in range(1, 200) if paper(k, vocab=vocab) >= dense) == even
  # Not monotone: the subset's part peaks at V / 2, and at V the counts are all that is left.
  assert round(bits.log2_binomial(V, V // 2)) == 50249
  assert paper(V // 2) > 51000 and round(paper(V)) == 1037


def test_ceilings_are_exact():
  for vocab in (2, 7, 64, 255, 256, 1000):
    for size in range(1, vocab + 1, max(1, vocab // 9)):
      cases = math.comb(vocab, size)
      width = bits.subset_width(vocab, size)
      assert 2**width >= cases and (width == 0 or 2 ** (width - 1) < cases)
      formula = bits.formula_bits("paper", vocab=vocab, ell=5, size=size, ceilings=True)
      assert round(formula - bits.log2_binomial(5 + size - 1, size - 1)) == width + bits.ceil_log2(vocab)
  assert (bits.subset_width(V, 64), bits.lattice_width(ELL, 64)) == (704, 153)
  assert abs(bits.log2_binomial(V, 64) - 703.44) < 0.01 and abs(bits.log2_binomial(163, 63) - 152.92) < 0.01


def test_half_precision_of_the_whole_vocabulary_is_raw_floats():
  assert paper(V, coding="half") == pytest.approx(16 * V)
  assert not np.isfinite(bits.price_table("trimmed", vocab=50, ell=4, max_size=10, ceilings=False)[5:]).any()
  with pytest.raises(ValueError, match="coding"):
    paper(3, coding="gzip")
  with pytest.raises(ValueError, match="k <= n"):
    bits.log2_binomial(3, 4)
