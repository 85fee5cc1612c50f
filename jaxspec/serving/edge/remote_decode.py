"""Rows of a decode over any `Cloud`, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.state import DecodeResult
from jaxspec.core.types import Drafter, Key, PyTree
from jaxspec.serving.edge.edge_stream import EdgeStream
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Watch
from jaxspec.serving.edge.retries import Budget, CallTimes, Policy
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.profiles import find_profile
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.traffic import Traffic, join_traffic


def decode_over_cloud(params: PyTree, key: Key, condition: PyTree, **kwargs: Any) -> tuple[DecodeResult, Traffic]:
  """Decodes like `jaxspec.speculate`, with the target behind a cloud.

  Args:
    params, key, condition, kwargs: as in `rows_over_cloud`, which also says what is raised.
  Returns:
    The result with leaves ``[B, ...]``, and the traffic.
  """
  found = list(rows_over_cloud(params, key, condition, **kwargs))
  results = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(result for result, _ in found))
  return results, join_traffic([traffic for _, traffic in found])


def rows_over_cloud(
  params: PyTree,
  key: Key,
  condition: PyTree,
  *,
  cloud: Cloud,
  drafter: Drafter,
  wire: Wire,
  max_len: int,
  captions: Sequence[str] | None = None,
  profile: int | None = None,
  journal: Journal | None = None,
  policy: Policy = Policy(),
  watch: Watch | None = None,
  **options: Any,
) -> Iterator[tuple[DecodeResult, Traffic]]:
  """Decodes rows one after the other, with the target behind a cloud.

  Args:
    params: the draft's parameters.
    key: one typed key or ``[B]`` row keys.
    condition: the family's condition with ``B`` rows.
    cloud: where the target is.
    drafter, wire, max_len: as in `EdgeStream`.
    captions: the texts that the conditions were made of, one for each row, for a cloud that encodes them.
    profile: number of the cloud's profile; by default the first that goes with the wire.
    journal: of one row: where its replies are kept, and where it goes on.
    policy: when a call is tried again.
    watch: told about the calls of all rows.
    options: others of `EdgeStream`.
  Yields:
    The result of a row, leaves ``[1, ...]``, and its traffic.
  Raises:
    CloudError: for a call that is refused, or not answered however often it is tried.
    MessageError: for an answer that is not valid.
    ValueError: for a journal of several rows, captions that are not one for each, or a cloud without such a profile.
  """
  number = condition.batch_size
  if journal is not None and number != 1:
    raise ValueError(f"Must have one row for a journal, we instead got {number}")
  if captions is not None and len(captions) != number:
    raise ValueError(f"Must have a caption for each of {number} rows, we instead got {len(captions)}")
  if profile is None:
    told = {name: options[name] for name in ("top_p", "cfg_scale") if name in options}
    profile = find_profile(cloud.description, wire, **told).id
  edge = EdgeStream(params, drafter=drafter, wire=wire, max_len=max_len, profile=profile, **options)
  keys, texts = rng.row_keys(key, number), [None] * number if captions is None else captions
  row_of = lambda tree, row: jax.tree.map(lambda leaf: leaf[row : row + 1], tree)
  shared = dict(policy=policy, budget=Budget(), times=CallTimes(), journal=journal, watch=watch)
  for row, text in enumerate(texts):
    before = _counted(cloud)
    result, traffic = edge.run(row_of(condition, row), keys[row : row + 1], cloud, caption=text, **shared)
    yield result, traffic._replace(transport_bytes=_counted(cloud) - before)


def _counted(cloud: Cloud) -> np.ndarray:
  """``[2]`` bytes up and down so far; 0 of a cloud that does not count. Of a shared cloud others' calls count too."""
  return np.array([getattr(cloud, name, 0) for name in ("uplink_bytes", "downlink_bytes")], np.int64)
