"""Bits and bytes between edge and cloud in a decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Traffic(NamedTuple):
  """Sums over the frames of each row.

  The frame of token 0 counts only where the edge uses it; an edge may accept a token 0 of its own.
  """

  coded_bits: np.ndarray  # [B] int64, payload of the uplink: tokens, distributions, features
  uplink_bytes: np.ndarray  # [B] int64, whole frames of the edge
  downlink_bytes: np.ndarray  # [B] int64, whole frames of the cloud
  exchanges: np.ndarray  # [B] int64, frames of the edge; each has its reply
  transport_bytes: np.ndarray  # [2] int64, up and down, with the overhead of the transport; 0 without a count


def no_traffic(num_rows: int) -> Traffic:
  """Sums of zero."""
  zeros = lambda: np.zeros(num_rows, np.int64)
  return Traffic(zeros(), zeros(), zeros(), zeros(), np.zeros(2, np.int64))


def join_traffic(parts: Sequence[Traffic]) -> Traffic:
  """The traffic of several rows or decodes as that of one."""
  bits, up, down, exchanges = (np.concatenate(columns) for columns in zip(*(part[:4] for part in parts)))
  return Traffic(bits, up, down, exchanges, np.sum([part.transport_bytes for part in parts], axis=0))
