"""What crossed between edge and cloud in a decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Traffic(NamedTuple):
  """What was sent, in frames of the rows.

  The frame of token 0 counts where the edge took token 0 from it. An edge that accepts a token 0 of its own does not use it.
  """

  coded_bits: np.ndarray  # [B] int64, payload of the uplink: tokens, distributions, features
  uplink_bytes: np.ndarray  # [B] int64, whole frames of the edge
  downlink_bytes: np.ndarray  # [B] int64, whole frames of the cloud
  exchanges: np.ndarray  # [B] int64, frames of the edge; each has its reply
  transport_bytes: np.ndarray  # [2] int64, up and down, with all that the transport adds; 0 where it does not count


def no_traffic(num_rows: int) -> Traffic:
  """Nothing was sent yet."""
  return Traffic(*(np.zeros(num_rows, np.int64) for _ in range(4)), np.zeros(2, np.int64))


def join_traffic(parts: Sequence[Traffic]) -> Traffic:
  """The traffic of several rows or decodes as that of one."""
  rows = (np.concatenate(columns) for columns in zip(*(part[:4] for part in parts)))
  return Traffic(*rows, np.sum([part.transport_bytes for part in parts], axis=0))
