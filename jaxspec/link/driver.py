"""A decode whose two ends know of each other only what crosses as bytes.

`decode_over_link` runs both ends in one process, each with its own parameters, caches and cursor; ``uplink`` and
``downlink`` are functions on messages, so that a socket, a lossy channel or a recorder can stand between them. What the
ends compute are the jitted functions of `jaxspec.decode.loop`; the host only exchanges.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import rng
from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_law import SparseLaw
from jaxspec.decode.loop import cloud_round, edge_commit, edge_round, end_array, start_cloud, start_edge
from jaxspec.decode.state import CloudState, DecodeResult, InFlight, SpecParams, result
from jaxspec.link import arrays
from jaxspec.link.lazy import cloud_finish, cloud_test
from jaxspec.link.message import FIRST, REQUEST, read_law, write_reply
from jaxspec.link.records import Limits
from jaxspec.types import Drafter, Key, PyTree, Verifier

Channel = Callable[[bytes], bytes]

_start_cloud = jax.jit(start_cloud, static_argnames=("verifier", "max_len", "window"))
_start_edge = jax.jit(start_edge, static_argnames=("drafter", "max_len"))
_edge_round = jax.jit(edge_round, static_argnames=("drafter",))
_cloud_round = jax.jit(cloud_round, static_argnames=("verifier",))
_edge_commit = jax.jit(edge_commit, static_argnames=("drafter",))
_cloud_test = jax.jit(cloud_test, static_argnames=("verifier",))
_cloud_finish = jax.jit(cloud_finish)


class Traffic(NamedTuple):
  """What was emitted, ``[B]`` int64."""

  coded_bits: np.ndarray  # payload of the uplink: laws and drafted tokens
  wire_bytes: np.ndarray  # whole uplink messages, framing included
  reply_bytes: np.ndarray  # whole downlink messages
  exchanges: np.ndarray  # uplink messages


def decode_over_link(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  codec: SparseCodec,
  max_len: int,
  end_token: int | tuple[int, ...] | None = None,
  uplink: Channel = lambda data: data,
  downlink: Channel = lambda data: data,
) -> tuple[DecodeResult, Traffic]:
  """Decodes like `jaxspec.speculate`, with the same tokens for the same key, through messages.

  Args:
    params: both sides' parameters; each end reads its own.
    drafter: a `compressed` drafter with this codec.
    verifier: a `target_model` with rule `lossless_sparse`; for coding ``lazy`` with ``feedback_fn=target_laws``.
    uplink: what happens to a message on its way to the verifying side; ``downlink`` on the way back.
  Returns:
    The result, and the traffic.
  Raises:
    MessageError: if a message does not arrive as it was sent.
  """
  limits = Limits.of(codec, drafter.window)
  keys = rng.row_keys(key, jax.tree.leaves(condition)[0].shape[0])
  rows, end = keys.shape[0], end_array(end_token)
  traffic = Traffic(*(np.zeros(rows, np.int64) for _ in Traffic._fields))
  send_up = functools.partial(_send, channel=uplink, size=traffic.wire_bytes, count=traffic.exchanges)
  send_down = functools.partial(_send, channel=downlink, size=traffic.reply_bytes)

  kwargs = dict(max_len=max_len, end_token=end)
  cloud, prefill = _start_cloud(params.target, keys, condition, verifier=verifier, window=drafter.window, **kwargs)
  first = send_down(arrays.frames_of_reply(prefill, cloud.cursor, limits, first=True))
  first = arrays.verdict_of(arrays.replies_of_frames(first, 0, [0] * rows, limits, expected=FIRST))
  edge = _start_edge(params.draft, keys, condition, first, drafter=drafter, **kwargs)

  while bool(edge.cursor.live.any()):
    flight, message = _edge_round(params.draft, edge, drafter=drafter)
    frames, bits = arrays.frames_of_drafts(message, edge.cursor, limits)
    traffic.coded_bits[:] += bits
    frames = send_up(frames)
    if codec.coding == "lazy":
      cloud, reply = _lazy_exchange(params, cloud, flight, frames, limits, codec, verifier, traffic, send_up, send_down)
    else:
      got = arrays.draft_of_frames(frames, cloud.cursor, limits, codec.max_sent)
      before = cloud.cursor
      cloud, verdict = _cloud_round(params.target, cloud, got, verifier=verifier)
      reply = send_down(arrays.frames_of_reply(verdict, before, limits))
    number = np.asarray(flight.draft.num_drafted)
    reply = arrays.verdict_of(arrays.replies_of_frames(reply, int(edge.cursor.round), number, limits))
    edge = _edge_commit(params.draft, flight, reply, drafter=drafter)
  return result(edge, drafter), traffic


def _lazy_exchange(
  params, cloud: CloudState, flight: InFlight, frames, limits, codec, verifier, traffic, send_up, send_down
) -> tuple[CloudState, arrays.Frames]:
  """The round trips of one lazy round; the edge's part reads ``flight`` and requests only, the cloud's the rest."""
  round_, rows = int(cloud.cursor.round), len(frames)
  got = arrays.draft_of_frames(frames, cloud.cursor, limits, 1)
  cloud, tested = _cloud_test(params.target, cloud, got, verifier=verifier)
  asks = np.asarray(tested.asks & cloud.cursor.live)
  accepted = np.asarray(tested.verdict.num_accepted)
  requests = [write_reply(round_, int(accepted[row]), None, limits) if asks[row] else None for row in range(rows)]

  # Drafting side: answers what it is asked.
  number = np.asarray(flight.draft.num_drafted)
  requests = arrays.replies_of_frames(send_down(requests), round_, number, limits, expected=REQUEST)
  answers: arrays.Frames = [None] * rows
  for row, request in enumerate(requests):
    if request is not None:
      answers[row], bits = arrays.frame_of_law(flight.draft, row, request.num_accepted, round_, limits)
      traffic.coded_bits[row] += bits
  answers = send_up(answers)

  # Verifying side: the token that ends the round.
  law = SparseLaw(*(np.zeros((rows, *shape), np.int32) for shape in ((codec.max_sent,), (codec.max_sent,), (), ())))
  for row in np.flatnonzero(asks):
    arrays.put_law(law, (row,), read_law(answers[row] or b"", limits, round_=round_, place=int(accepted[row])))
  before = cloud.cursor
  cloud, verdict = _cloud_finish(cloud, got, tested, SparseLaw(*map(jnp.asarray, law)))
  return cloud, send_down(arrays.frames_of_reply(verdict, before, limits))


def _send(
  frames: arrays.Frames, *, channel: Channel, size: np.ndarray, count: np.ndarray | None = None
) -> arrays.Frames:
  """Puts messages on a channel and counts their bytes.

  Raises:
    MessageError: if nothing arrives.
  """
  for row, data in enumerate(frames):
    if data is not None:
      size[row] += len(data)
      if count is not None:
        count[row] += 1
  return [None if data is None else arrays.arrived(channel(data)) for data in frames]
