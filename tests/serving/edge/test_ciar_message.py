"""The uplink message of CIAR: encoding is inverted by decoding, and other bytes are errors."""

import numpy as np
import pytest

from jaxspec.codecs import topk_lattice
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.ciar_message import CiarLimits, read_ciar, write_ciar
from jaxspec.serving.wire.distribution_bits import Record
from jaxspec.serving.wire.framing import OVERHEAD_BYTES

N = 16
SIZES = dict(vocab=13, window=3, max_len=N)


def test_messages_and_what_they_refuse():
  ids = CiarLimits.of(None, **SIZES)
  data, bits = write_ciar(5, 2, [7, 1], [12, 0, 3], ids)
  got = read_ciar(data, ids)
  assert (got.round, got.read, got.pending, got.tokens) == (5, 2, (7, 1), (12, 0, 3)) and bits == 32 + 5 * 4
  assert len(data) == OVERHEAD_BYTES + -(-bits // 8) <= ids.max_bytes
  distributions = CiarLimits.of(topk_lattice(13, 5, ell=20), **SIZES)
  record = Record((1, 4, 8), (3, 7, 10), 20, 4)
  assert read_ciar(write_ciar(0, 0, [2], [record], distributions)[0], distributions).records == (record,)
  with pytest.raises(MessageError, match="token is not below"):
    read_ciar(write_ciar(5, 2, [15], [], CiarLimits.of(None, **(SIZES | dict(vocab=16))))[0], ids)
  with pytest.raises(MessageError, match="range"):
    shorter = CiarLimits.of(None, **(SIZES | dict(max_len=15)))
    read_ciar(write_ciar(0, 10, [1] * 6, [], ids)[0], shorter)
  for pending, drafts in (([], []), ([1], [1] * 4), ([1] * N, [1])):
    with pytest.raises(ValueError, match="pending tokens and at most 3 drafts"):
      write_ciar(0, 0, pending, drafts, ids)


def test_whatever_arrives_is_a_message_or_a_message_error():
  ids, generator = CiarLimits.of(None, **SIZES), np.random.default_rng(0)
  data, _ = write_ciar(5, 2, [7, 1], [12, 0, 3], ids)
  for _ in range(300):
    noisy = bytearray(data)
    for _ in range(generator.integers(1, 4)):
      noisy[generator.integers(len(noisy))] = generator.integers(256)
    try:
      read_ciar(bytes(noisy[: generator.integers(len(noisy) + 1)]), ids)
    except MessageError:
      pass
