"""What crossed between the two ends of a decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Traffic(NamedTuple):
  """What was sent. The sum of frames, openings and envelopes is what was handed to the transport, both ways.

  Frames are counted for the row they belong to. The frame of a prefill counts where the draft side took token 0 from it;
  where the draft side accepted a token 0 of its own, that frame counts as envelope.
  """

  coded_bits: np.ndarray  # [B] int64, payload of the uplink: tokens, distributions, features
  uplink_bytes: np.ndarray  # [B] int64, whole frames from the draft side
  downlink_bytes: np.ndarray  # [B] int64, whole frames from the target side
  exchanges: np.ndarray  # [B] int64, frames from the draft side; each has its reply
  opening_bytes: np.ndarray  # [] int64, the message that opens the stream, with the condition
  envelope_bytes: np.ndarray  # [] int64, everything else: envelopes around frames, and closing
  transport_bytes: np.ndarray  # [2] int64, up and down, with all that the transport adds; 0 where it does not count


def no_traffic(num_rows: int) -> Traffic:
  """Nothing was sent yet."""
  return Traffic(*(np.zeros(num_rows, np.int64) for _ in range(4)), np.int64(0), np.int64(0), np.zeros(2, np.int64))


def join_traffic(parts: Sequence[Traffic], num_rows: int | None = None) -> Traffic:
  """The traffic of several decodes as that of one.

  Args:
    num_rows: keep the counts of this many leading rows, where later ones were padding; bytes of envelopes stay whole.
  """
  rows = (np.concatenate(columns)[:num_rows] for columns in zip(*(part[:4] for part in parts)))
  return Traffic(*rows, *(np.sum(column, axis=0) for column in zip(*(part[4:] for part in parts))))
