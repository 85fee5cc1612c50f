"""Rows of a decode over any `Cloud`, one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.state import DecodeResult
from jaxspec.core.types import Key, PyTree
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.reliable_stream import RetrySettings
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.traffic import Traffic, join_traffic


@dataclasses.dataclass(frozen=True)
class RemoteOptions:
  """Options of a decode over a cloud.

  Attributes:
    captions: the texts of the conditions, one for each row, for a cloud that encodes them.
    journal: file of the replies of one row, from which an interrupted decode continues.
    policy: limits of retries.
    observer: of the calls of all rows.
  """

  captions: Sequence[str] | None = None
  journal: Journal | None = None
  policy: Policy = Policy()
  observer: Observer | None = None


def decode_over_cloud(
  edge: Edge, key: Key, condition: PyTree, cloud: Cloud, options: RemoteOptions = RemoteOptions()
) -> tuple[DecodeResult, Traffic]:
  """Decodes like `jaxspec.speculate`, with the target behind a cloud; arguments and errors as in `rows_over_cloud`.

  Returns:
    The result with leaves ``[B, ...]``, and the traffic.
  """
  found = list(rows_over_cloud(edge, key, condition, cloud, options))
  results = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(result for result, _ in found))
  return results, join_traffic([traffic for _, traffic in found])


def rows_over_cloud(
  edge: Edge, key: Key, condition: PyTree, cloud: Cloud, options: RemoteOptions = RemoteOptions()
) -> Iterator[tuple[DecodeResult, Traffic]]:
  """Decodes rows one after the other, with the target behind a cloud.

  Args:
    edge: the draft side.
    key: one typed key or ``[B]`` row keys.
    condition: the family's condition with ``B`` rows.
    cloud: has the target.
  Yields:
    The result of a row, leaves ``[1, ...]``, and its traffic.
  Raises:
    CloudError: for a call that is refused, or has no reply within the limits of the policy.
    MessageError: for an invalid reply.
    ValueError: for a journal of several rows, a number of captions that is not that of the rows, or a cloud without a
      profile of the edge.
  """
  number, captions, journal = condition.batch_size, options.captions, options.journal
  if journal is not None and number != 1:
    raise ValueError(f"Must have one row for a journal, we instead got {number}")
  if captions is not None and len(captions) != number:
    raise ValueError(f"Must have a caption for each of {number} rows, we instead got {len(captions)}")
  edge, settings = edge.for_cloud(cloud), RetrySettings(options.policy)
  keys, texts = rng.row_keys(key, number), [None] * number if captions is None else captions
  row_of = lambda tree, row: jax.tree.map(lambda leaf: leaf[row : row + 1], tree)
  for row, text in enumerate(texts):
    before = _transport_bytes(cloud)
    result, traffic = edge.run(
      row_of(condition, row), keys[row : row + 1], cloud, caption=text, settings=settings, journal=journal,
      observer=options.observer,
    )  # fmt: skip
    yield result, traffic._replace(transport_bytes=_transport_bytes(cloud) - before)


def _transport_bytes(cloud: Cloud) -> np.ndarray:
  """``[2]`` bytes up and down so far; 0 for a cloud without a count. A shared cloud counts the calls of all its streams."""
  return np.array([getattr(cloud, name, 0) for name in ("uplink_bytes", "downlink_bytes")], np.int64)
