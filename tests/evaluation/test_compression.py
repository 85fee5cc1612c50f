"""Figures of a decode under a bit budget, against counts by hand."""

import numpy as np
import pytest

from jaxspec.core.state import Counters, DecodeResult, Origin
from jaxspec.drafters.sqs_drafter import SqsReport, SqsStats
from jaxspec.run.compression import compression_figures
from jaxspec.serving.wire.traffic import Traffic

BY_HAND = np.array(
  [
    [Origin.FIRST, Origin.DRAFT, Origin.DRAFT, Origin.BONUS, Origin.REPLACED],
    [Origin.FIRST, Origin.DRAFT, Origin.REPLACED, Origin.EMPTY, Origin.EMPTY],
  ],
  np.int8,
)


def _decode():
  """Two rows: 4 and 2 tokens after token 0, by 2 rounds and 1."""
  counts = lambda *values: np.array(values, np.int32)
  counters = Counters(
    rounds=counts(2, 1), drafted=counts(3, 2), accepted=counts(2, 1), local=counts(0, 0), target_calls=counts(3, 2),
    draft_calls=counts(4, 3),
  )  # fmt: skip
  stats = SqsStats(
    formula_bits=np.array([90.0, 30.0], np.float32), empty_rounds=counts(0, 1), dropped=np.array([0.3, 0.3], np.float32),
    fed=np.array([0.6, 0.6], np.float32), support=counts(12, 8),
  )  # fmt: skip
  tokens = np.zeros(BY_HAND.shape, np.int32)
  report = SqsReport(stats, ())
  return DecodeResult(tokens, counts(5, 3), counters, BY_HAND == Origin.DRAFT, BY_HAND, tokens, report=report)


def test_figures_of_a_decode():
  found = compression_figures(_decode())
  assert (found["tokens"], found["rounds"], found["drafted"], found["rejected"], found["edge_passes"]) == (6, 3, 5, 2, 5)
  assert found["resampling_rate"] == pytest.approx(2 / 3) and found["support"] == pytest.approx(4)
  assert found["formula_bits_per_token"] == pytest.approx(20) and found["dropped"] == pytest.approx(0.1)
  assert "final_beta" not in found and "coded_bits" not in found


def test_figures_of_what_was_sent():
  """All counts of the traffic, and counts of rows by token."""
  rows = lambda *values: np.array(values, np.int64)
  traffic = Traffic(rows(100, 20), rows(30, 12), rows(9, 3), rows(2, 1), np.zeros(2, np.int64))
  found = compression_figures(_decode(), traffic)
  assert {name: found[name] for name in Traffic._fields} == {
    "coded_bits": 120, "uplink_bytes": 42, "downlink_bytes": 12, "exchanges": 3, "transport_bytes": 0,
  }  # fmt: skip
  assert (found["coded_bits_per_token"], found["uplink_bytes_per_token"], found["downlink_bytes_per_token"]) == (20, 7, 2)
