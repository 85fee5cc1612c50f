"""A batch of a bench decoded by two ends that exchange bytes."""

from __future__ import annotations

from collections.abc import Callable

import jax

from experiments.engine.bench import Bench
from experiments.engine.rows import Row
from jaxspec.core import rng
from jaxspec.core.state import DecodeResult
from jaxspec.serving.edge.link_decode import decode_over_link
from jaxspec.serving.edge.target_endpoint import TargetEndpoint
from jaxspec.serving.wire.handshake import ConditionSpec
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.traffic import Traffic


def over_link(
  bench: Bench, entry: Row, wire: Wire, rows: int, index: int, watch: Callable | None = None
) -> tuple[DecodeResult, Traffic]:
  """Decodes one batch of ``rows`` by two ends; ``watch`` wraps the transport."""
  parts, batches = bench.decoder(entry).parts, bench.batches(entry, rows)
  condition, keys = batches.condition[index], rng.of_key_data(batches.key_data[index])
  max_len = entry.max_len or bench.pipeline.host.num_tokens
  sizes = dict(window=parts.drafter.window, max_rows=rows, max_len=max_len)
  spec = ConditionSpec.like(condition)
  target = TargetEndpoint(parts.params.target, verifier=parts.verifier, wire=wire, condition=spec, **sizes)
  transport = target.handle if watch is None else watch(target.handle)
  kwargs = dict(drafter=parts.drafter, wire=wire, max_len=max_len, target_prefix=parts.target_prefix)
  with bench.pipeline.context():
    result, traffic = decode_over_link(parts.params, keys, condition, transport=transport, **kwargs)
  return jax.device_get(result), traffic
