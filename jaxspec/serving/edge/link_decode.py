"""A whole decode with the target at the other end of a link, wherever that is."""

from __future__ import annotations

from typing import Any

from jaxspec.codecs.codec import SparseCodec
from jaxspec.core.loop import EndTokens
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.types import Drafter, Key, PyTree, Verifier
from jaxspec.serving.edge.draft_endpoint import DraftEndpoint, Transport
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.edge.target_endpoint import TargetEndpoint
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.handshake import ConditionSpec
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.sqs_codec import SqsWire
from jaxspec.serving.wire.traffic import Traffic


def decode_over_link(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  max_len: int,
  wire: Wire | None = None,
  codec: SparseCodec | None = None,
  verifier: Verifier | None = None,
  transport: Transport | None = None,
  cloud: Cloud | None = None,
  end_token: EndTokens = None,
  target_prefix: int = 0,
  **options: Any,
) -> tuple[DecodeResult, Traffic]:
  """Decodes like `jaxspec.speculate`, with the same tokens for the same key, through messages.

  Args:
    params: both sides' parameters; ``params.target`` is only read with a ``verifier``.
    key: as in `jaxspec.speculate`.
    condition: the family's condition with ``B`` rows, a named tuple of arrays.
    drafter: source of proposals, of the kind that the wire carries.
    max_len: tokens N of every row.
    wire: `SqsWire`, `CiarWire` or `PlainWire`.
    codec: in place of ``wire``, of a `jaxspec.CompressedDrafter` drafter.
    verifier: the judge, for a target side in this process. With `SqsWire` a `target_model` with rule `lossless_sparse`, for
      coding ``lazy`` also with ``feedback_fn=target_logits``; with `CiarWire` a `gated_target` with rule `lossless_sparse`,
      or `greedy` for ids alone.
    transport: the way to a `TargetEndpoint` elsewhere, in place of ``verifier``.
    cloud: a server of many edges, in place of ``verifier``: `jaxspec.connect`.
    end_token: as in `jaxspec.speculate`.
    target_prefix: leading tokens of every row that the target side draws alone.
    options: with a cloud, those of `jaxspec.serving.edge.remote_decode.decode_over_cloud`. The cloud draws at temperature 1,
      without guidance, unless they say so.
  Returns:
    The result, and the traffic.
  Raises:
    CloudError: for a call that a cloud refuses, or that is not answered however often it is tried.
    MessageError: if a message does not arrive as it was sent.
    ValueError: unless exactly one of ``verifier``, ``transport`` and ``cloud`` is given, and one of ``wire`` and ``codec``;
      or if parts do not go together.
  """
  ends = {name: end for name, end in dict(verifier=verifier, transport=transport, cloud=cloud).items() if end is not None}
  if len(ends) != 1:
    raise ValueError(f"Must have one of verifier, transport and cloud, we instead got {' and '.join(ends) or 'none'}")
  if (wire is None) == (codec is None):
    raise ValueError(f"Must have a wire or a codec, we instead got {'none' if wire is None else 'both'}")
  if cloud is None and options:
    raise ValueError(f"Must have a cloud with {sorted(options)[0]}, we instead got a {next(iter(ends))}")
  wire = SqsWire(codec, drafter.window) if wire is None else wire
  shared = dict(drafter=drafter, wire=wire, max_len=max_len, end_token=end_token, target_prefix=target_prefix)
  if cloud is not None:
    return decode_over_cloud(params.draft, key, condition, cloud=cloud, **shared, **options)
  edge = DraftEndpoint(params.draft, **shared)
  if transport is None:
    spec, rows = ConditionSpec.like(condition), condition.batch_size
    sizes = dict(window=drafter.window, max_rows=rows, max_len=max_len)
    transport = TargetEndpoint(params.target, verifier=verifier, wire=wire, condition=spec, **sizes).handle
  return edge.run(condition, key, transport)
