"""Decodes once more by two ends that know of each other only what crosses as bytes, and counts the bytes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxspec.cli.decoding import Batches, MethodRun
from jaxspec.cli.errors import UserError, interruptible
from jaxspec.cli.settings import Settings
from jaxspec.cli.sources import Source
from jaxspec.decode.compression import make_codec
from jaxspec.link.driver import Traffic, decode_over_link


def prefer_float32(chosen: dict[str, Any]) -> dict[str, Any]:
  """The chosen settings, with products in float32 where nothing else was chosen.

  Products of rounded factors come out differently in one program and in three, which may change a token.
  """
  return chosen | {"matmul_precision": chosen.get("matmul_precision") or "float32"}


def check_wire(settings: Settings) -> None:
  """Refuses methods that have no messages."""
  if settings.parts.drafter != "compressed":
    raise UserError(f"--wire goes with --method sqs, we instead got {settings.method}")


def add_traffic(source: Source, settings: Settings, batches: Batches, run: MethodRun) -> None:
  """Puts the traffic of all rows into ``run``, and whether the two ends made the same tokens as the one program."""
  params, drafter, verifier = source.assemble(settings, method=run.method)
  codec = make_codec(settings, source.target.config.vocab_size)
  kwargs = dict(drafter=drafter, verifier=verifier, codec=codec, max_len=source.num_tokens, end_token=source.end_token)
  decode = lambda data, condition: decode_over_link(params, jax.random.wrap_key_data(data), condition, **kwargs)
  num, parts, tokens = len(batches.prompt), [], []
  with jax.default_matmul_precision(settings.matmul_precision):
    for key_data, condition in zip(batches.key_data, batches.condition):
      result, traffic = interruptible(decode, key_data, condition)
      parts.append(traffic)
      tokens.append(np.asarray(result.tokens))
  run.traffic = Traffic(*(np.concatenate(columns)[:num] for columns in zip(*parts)))
  run.wire_agrees = bool((np.concatenate(tokens)[:num] == run.result.tokens).all())
