"""A decode by a gated device and a cloud that know of each other only what crosses as bytes.

`decode_gated_over_link` runs both ends in one process. A row that needs no verification sends nothing, and a round in which
no row does is not an exchange at all; the next message of the row brings what the cloud missed. With the same key the tokens
are those of `jaxspec.speculate`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import rng
from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_law import SparseLaw
from jaxspec.decode.loop import (
  cloud_round,
  edge_commit,
  edge_round,
  end_array,
  needs_exchange,
  reply_unasked,
  start_cloud,
  start_edge,
)
from jaxspec.decode.state import CloudState, DecodeResult, SpecParams, result
from jaxspec.link import arrays
from jaxspec.link.bitstream import require
from jaxspec.link.driver import Channel
from jaxspec.link.gated_message import GatedDrafts, GatedWire, read_gated, write_gated
from jaxspec.link.message import FIRST
from jaxspec.types import Backlog, Draft, Drafter, Key, PyTree, Verdict, Verifier

_start_cloud = jax.jit(start_cloud, static_argnames=("verifier", "max_len", "window"))
_start_edge = jax.jit(start_edge, static_argnames=("drafter", "max_len"))
_edge_round = jax.jit(edge_round, static_argnames=("drafter",))
_cloud_round = jax.jit(cloud_round, static_argnames=("verifier",))
_edge_commit = jax.jit(edge_commit, static_argnames=("drafter",))


class GatedTraffic(NamedTuple):
  """What was emitted, ``[B]`` int64."""

  payload_bits: np.ndarray  # of the uplink, framing not included
  uplink_bytes: np.ndarray  # whole messages
  downlink_bytes: np.ndarray  # whole replies; token 0 where the device took it from the cloud
  exchanges: np.ndarray  # uplink messages


def decode_gated_over_link(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  codec: SparseCodec | None,
  vocab: int,
  window: int,
  max_len: int,
  end_token: int | tuple[int, ...] | None = None,
  feature_width: int = 0,
  uplink: Channel = lambda data: data,
  downlink: Channel = lambda data: data,
) -> tuple[DecodeResult, GatedTraffic]:
  """Decodes like `jaxspec.speculate`, with the same tokens for the same key, through messages.

  Args:
    params: both sides' parameters; each end reads its own.
    drafter: an `interval_gated` drafter; with a codec one that draws by `SparseDraw` from it.
    verifier: a `gated_target`; rule `lossless_sparse` with a codec, `greedy` without.
    codec: how laws are sent; None sends tokens only.
    window: most drafts of an exchange, as in drafter and verifier.
    feature_width: numbers in the interval features of a token, of a drafter that injects some.
    uplink: what happens to a message on its way to the cloud; ``downlink`` on the way back.
  Returns:
    The result, and the traffic.
  Raises:
    MessageError: if a message does not arrive as it was sent.
  """
  wire = GatedWire.of(codec, vocab=vocab, window=window, max_len=max_len, feature_width=feature_width)
  keys = rng.row_keys(key, jax.tree.leaves(condition)[0].shape[0])
  rows, end = keys.shape[0], end_array(end_token)
  traffic = GatedTraffic(*(np.zeros(rows, np.int64) for _ in GatedTraffic._fields))
  kwargs = dict(max_len=max_len, end_token=end)
  cloud, prefill = _start_cloud(params.target, keys, condition, verifier=verifier, window=drafter.window, **kwargs)
  first = arrays.frames_of_reply(prefill, cloud.cursor, wire.limits, first=True)
  heard = [arrays.arrived(downlink(data)) for data in first]
  got = arrays.verdict_of(arrays.replies_of_frames(heard, 0, [0] * rows, wire.limits, expected=FIRST))
  edge = _start_edge(params.draft, keys, condition, got, drafter=drafter, **kwargs)
  # A device that settles token 0 needs no reply to its prompt.
  traffic.downlink_bytes[:] += np.where(np.asarray(edge.counters.settled) > 0, 0, [len(data) for data in first])

  like = Verdict(jnp.zeros((rows,), jnp.int32), jnp.zeros((rows,), jnp.int32))
  while bool(edge.cursor.live.any()):
    before = edge.cursor
    flight, message = _edge_round(params.draft, edge, drafter=drafter)
    if not bool(needs_exchange(before, message)):
      edge = _edge_commit(params.draft, flight, reply_unasked(message, like), drafter=drafter)
      continue
    frames = _frames(message, before, wire, traffic)
    frames = [None if data is None else arrays.arrived(uplink(data)) for data in frames]
    cloud, verdict, number = _answer(params.target, cloud, frames, wire, codec, max_len, verifier)
    asked = before._replace(live=before.live & message.needs_verify)
    replies = arrays.frames_of_reply(verdict, asked, wire.limits)
    traffic.downlink_bytes[:] += [0 if data is None else len(data) for data in replies]
    replies = [None if data is None else arrays.arrived(downlink(data)) for data in replies]
    reply = arrays.verdict_of(arrays.replies_of_frames(replies, int(before.round), number, wire.limits))
    settled = message.num_settled
    reply = reply._replace(num_accepted=reply.num_accepted + settled)
    edge = _edge_commit(params.draft, flight, reply, drafter=drafter)
  return result(edge, drafter), traffic


def _frames(message: Draft, cursor, wire: GatedWire, traffic: GatedTraffic) -> arrays.Frames:
  """Messages of all rows that ask."""
  asked = np.asarray(cursor.live & message.needs_verify)
  backlog = jax.tree.map(np.asarray, message.backlog)
  tokens, settled, number = map(np.asarray, (message.tokens, message.num_settled, message.num_drafted))
  law = SparseLaw(*map(np.asarray, message.proposal)) if wire.sends_laws else None
  features = np.asarray(message.aux) if wire.feature_width else None
  frames: arrays.Frames = [None] * len(asked)
  for row in np.flatnonzero(asked):
    read, length, s = int(backlog.read[row]), int(backlog.length[row]), int(settled[row])
    unread = [*backlog.tokens[row, read:length].tolist(), *tokens[row, :s].tolist()]
    drafts = tokens[row, s : number[row]].tolist()
    if law is not None:
      drafts = [arrays.record_of(law, row, place, token) for place, token in enumerate(drafts)]
    said = None if features is None else features[row, read : read + len(unread) + len(drafts)]
    data, bits = write_gated(int(backlog.round), read, unread, drafts, wire, said)
    frames[row] = data
    traffic.payload_bits[row] += bits
    traffic.uplink_bytes[row] += len(data)
    traffic.exchanges[row] += 1
  return frames


def _answer(
  params: PyTree, cloud: CloudState, frames: arrays.Frames, wire: GatedWire, codec, max_len: int, verifier: Verifier
) -> tuple[CloudState, Verdict, np.ndarray]:
  """The cloud's side of an exchange; it reads ``frames`` and its own state only."""
  rows, window = len(frames), wire.limits.max_drafts
  # What it has read, its own cache says: all but the newest token of the last exchange.
  known = np.asarray(cloud.cursor.length) - 1
  tokens, places = np.zeros((rows, window), np.int32), np.zeros((rows, max_len), np.int32)
  length, number = np.asarray(cloud.cursor.length).copy(), np.zeros(rows, np.int32)
  size = codec.max_sent if codec is not None else 1
  ids = np.zeros((rows, window, size), np.int32)
  law = SparseLaw(ids, np.zeros_like(ids), np.zeros_like(tokens), np.zeros_like(tokens))
  features = np.zeros((rows, max_len, wire.feature_width), np.float32)
  rounds = set()
  for row, data in enumerate(frames):
    if data is None:
      continue
    got: GatedDrafts = read_gated(data, wire, read=int(known[row]))
    rounds.add(got.round)
    places[row, got.read : got.read + len(got.unread)] = got.unread
    length[row], number[row] = got.read + len(got.unread), len(got.drafts)
    if got.features is not None:
      features[row, got.read : got.read + len(got.features)] = got.features
    for place, draft in enumerate(got.drafts):
      tokens[row, place] = draft.token if wire.sends_laws else draft
      if wire.sends_laws:
        arrays.put_law(law, (row, place), draft)
  require(len(rounds) == 1, "order", f"rounds {sorted(rounds)} in one exchange")
  (round_,) = rounds
  require(round_ >= int(cloud.cursor.round), "order", f"round {round_} after round {int(cloud.cursor.round)}")
  asked = jnp.asarray([data is not None for data in frames])
  backlog = Backlog(jnp.asarray(places), jnp.asarray(known), jnp.asarray(length), jnp.int32(round_))
  proposal = SparseLaw(*map(jnp.asarray, law)) if wire.sends_laws else ()
  draft = Draft(
    jnp.asarray(tokens), proposal, jnp.asarray(number), jnp.zeros((rows,), jnp.int32), asked, backlog=backlog,
    aux=jnp.asarray(features) if wire.feature_width else (),
  )  # fmt: skip
  # Which rows are alive is the device's knowledge: those that ask are.
  cloud = cloud.replace(cursor=cloud.cursor._replace(live=asked))
  cloud, verdict = _cloud_round(params, cloud, draft, verifier=verifier)
  return cloud, verdict, number
